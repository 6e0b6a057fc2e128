"""KServe's Python server with a model of its own: REST v1 and the Open Inference Protocol over
gRPC.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer

FILE, HTTP, GRPC = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv[1:] = []


class Served(Model):
    def __init__(self, name):
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(FILE, options)
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        if isinstance(payload, dict):
            x = np.asarray(payload["instances"], np.float32)
            return {"predictions": self.session.run(None, {"x": x})[0].tolist()}
        made = self.session.run(None, {"x": payload.inputs[0].as_numpy()})[0]
        output = InferOutput("y", list(made.shape), "FP32")
        output.set_data_from_numpy(made, binary_data=True)
        return InferResponse(payload.id, self.name, [output])


if __name__ == "__main__":
    name = Path(FILE).parent.parent.name
    ModelServer(
        http_port=HTTP,
        grpc_port=GRPC,
        workers=1,
        access_log_format=None,
        enable_latency_logging=False,
    ).start([Served(name)])
