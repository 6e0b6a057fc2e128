"""tritonclient's calls over both protocols and on a stream: what each gave, as JSON."""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http


def tensor(module: Any, values: list[float]) -> list[object]:
    made = module.InferInput("x", [len(values)], "FP32")
    made.set_data_from_numpy(np.array(values, np.float32))
    return [made]


def read_everything(client: Any, module: Any, **as_json: bool) -> dict[str, object]:
    found = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model": client.is_model_ready("linear", "1"),
        "server": client.get_server_metadata(**as_json)["name"],
        "metadata": client.get_model_metadata("linear", **as_json)["inputs"][0]["name"],
        "infer": client.infer("linear", tensor(module, [1.0, 2.0])).as_numpy("y").tolist(),
    }
    config = client.get_model_config("linear", **as_json)
    found["config"] = config.get("config", config)["platform"]
    statistics = client.get_inference_statistics("linear", "1", **as_json)["model_stats"][0]
    found["counted"] = int(statistics["inference_count"]) >= 2
    index = client.get_model_repository_index(**as_json)
    found["index"] = (index["models"] if as_json else index)[0]["state"]
    for change in (client.load_model, client.unload_model):
        try:
            change("linear")
        except Exception as error:
            found[change.__name__] = "--allow_model_control" in str(error)
    try:
        client.infer("linear", tensor(module, [1.0]), sequence_id=7, sequence_start=True)
    except Exception as error:
        found["sequence"] = "'sequence_id' of the request is not offered" in str(error)
    return found


def streamed(client: over_grpc.InferenceServerClient) -> list[object]:
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    client.start_stream(
        lambda result, error: heard.put(str(error) if error else result.as_numpy("y").tolist())
    )
    for values in ([1.0], [2.0, 3.0]):
        client.async_stream_infer("linear", tensor(over_grpc, values))
    client.async_stream_infer("other", tensor(over_grpc, [1.0]))
    client.async_stream_infer("linear", tensor(over_grpc, [4.0]))
    found = [heard.get(timeout=30) for _ in range(4)]
    client.stop_stream()
    return found


rest, rpc = (
    over_http.InferenceServerClient(sys.argv[1]),
    over_grpc.InferenceServerClient(sys.argv[1]),
)
print(
    json.dumps(
        {
            "http": read_everything(rest, over_http),
            "grpc": read_everything(rpc, over_grpc, as_json=True),
            "stream": streamed(rpc),
        }
    )
)
