"""BentoML: one worker of a service, by its own command."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.environ["SERVED_FILE"] = sys.argv[1]
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    command = str(Path(sys.executable).with_name("bentoml"))
    os.execv(
        command,
        [command, "serve", "on_bentoml:Served", "--port", sys.argv[2], "--host", "127.0.0.1"],
    )

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Served:
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["SERVED_FILE"], options)

    @bentoml.api
    def predict(self, instances: list) -> dict:
        return {
            "predictions": self.session.run(None, {"x": np.asarray(instances, np.float32)})[
                0
            ].tolist()
        }
