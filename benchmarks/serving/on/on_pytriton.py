"""pytriton: Triton's server in front of a Python function, requests that wait together go
together.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

FILE, HTTP, GRPC = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(FILE, options)


@batch
def served(x):
    return session.run(None, {"x": x})


if __name__ == "__main__":
    given, made = session.get_inputs()[0].shape[1:], session.get_outputs()[0].shape[1:]
    config = TritonConfig(
        http_port=HTTP, grpc_port=GRPC, allow_metrics=False, http_address="127.0.0.1"
    )
    with Triton(config=config) as triton:
        triton.bind(
            Path(FILE).parent.parent.name,
            served,
            inputs=[Tensor(name="x", dtype=np.float32, shape=given)],
            outputs=[Tensor(name="y", dtype=np.float32, shape=made)],
            config=ModelConfig(max_batch_size=1024, batcher=DynamicBatcher()),
        )
        triton.serve()
