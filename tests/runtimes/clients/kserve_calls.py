"""KServe's clients against an address: what each call gave, as JSON."""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig


def request(values: list[float], *, binary: bool) -> InferRequest:
    tensor = InferInput("x", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32), binary_data=binary)
    return InferRequest(model_name="linear", infer_inputs=[tensor])


async def calls(address: str) -> dict[str, object]:
    base, found = f"http://{address}", {}
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=0)) as rest:
        found["live"] = await rest.is_server_live(base)
        found["ready"] = await rest.is_server_ready(base)
        found["model"] = await rest.is_model_ready(base, "linear")
        found["other"] = await rest.is_model_ready(base, "other")
        for binary in (False, True):
            answer = await rest.infer(base, request([1.0, 2.0], binary=binary), model_name="linear")
            found[f"infer binary={binary}"] = answer.outputs[0].as_numpy().tolist()
    async with InferenceRESTClient(RESTConfig(protocol="v1", retries=0)) as rest:
        found["v1 live"] = await rest.is_server_live(base)
        answer = await rest.infer(base, {"instances": [1.0, 2.0]}, model_name="linear")
        found["v1 predict"] = answer["predictions"]
    async with InferenceGRPCClient(address) as grpc:
        found["grpc live"] = await grpc.is_server_live()
        found["grpc ready"] = await grpc.is_server_ready()
        found["grpc model"] = await grpc.is_model_ready("linear")
        answer = await grpc.infer(request([1.0, 2.0], binary=True))
        found["grpc infer"] = answer.outputs[0].as_numpy().tolist()
    return found


print(json.dumps(asyncio.run(calls(sys.argv[1]))))
