"""LitServe: one worker, as its documentation begins."""

import sys

import litserve as ls
import numpy as np
import onnxruntime

FILE, PORT = sys.argv[1], int(sys.argv[2])


class Served(ls.LitAPI):
    def setup(self, device):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(FILE, options)

    def decode_request(self, request):
        return np.asarray(request["instances"], np.float32)

    def predict(self, x):
        return self.session.run(None, {"x": x})[0]

    def encode_response(self, output):
        return {"predictions": output.tolist()}


if __name__ == "__main__":
    server = ls.LitServer(Served(), accelerator="cpu", workers_per_device=1)
    server.run(
        port=PORT,
        host="127.0.0.1",
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
