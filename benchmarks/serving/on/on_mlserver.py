"""MLServer with a runtime of its own, in one process: its pool of processes costs more for small
models.
"""

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    file, http, grpc = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ["SERVED_FILE"] = file
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    settings = {
        "http_port": http,
        "grpc_port": grpc,
        "metrics_endpoint": None,
        "host": "127.0.0.1",
        "debug": False,
        "parallel_workers": 0,
        "grpc_max_message_length": 64 << 20,
    }
    Path("settings.json").write_text(json.dumps(settings))
    name = Path(file).parent.parent.name
    Path("model-settings.json").write_text(
        json.dumps({"name": name, "implementation": "on_mlserver.Served"})
    )
    command = str(Path(sys.executable).with_name("mlserver"))
    os.execv(command, [command, "start", "."])

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Served(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["SERVED_FILE"], options)
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        made = self.session.run(None, {"x": x})[0]
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("y", made)]
        )
