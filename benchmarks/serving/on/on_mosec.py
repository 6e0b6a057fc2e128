"""Mosec: one worker, requests that wait together go together."""

import os
import sys

import numpy as np
import onnxruntime
from mosec import Server, Worker


class Served(Worker):
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["SERVED_FILE"], options)

    def forward(self, data):
        tensors = [np.asarray(each["instances"], np.float32) for each in data]
        made = self.session.run(None, {"x": np.concatenate(tensors)})[0]
        rows, at = [], 0
        for each in tensors:
            rows.append({"predictions": made[at : at + len(each)].tolist()})
            at += len(each)
        return rows


if __name__ == "__main__":
    os.environ["SERVED_FILE"] = sys.argv[1]  # workers begin with this file, too
    sys.argv[1:] = ["--port", sys.argv[2], "--address", "127.0.0.1", "--log-level", "warning"]
    server = Server()
    server.append_worker(Served, num=1, max_batch_size=32, max_wait_time=1)
    server.run()
