"""``cloudml-serve``: the model server from a command line, with TensorFlow Serving's flags."""

import argparse
import logging
from pathlib import Path

import uvloop

from cloud_ml.serving.server import ModelServer
from cloud_ml.serving.settings import Settings


def main() -> None:
    """Read the flags and serve."""
    parser = argparse.ArgumentParser(prog="cloudml-serve", description=__doc__)
    parser.add_argument("--model_name", default="default", help="name of the model")
    parser.add_argument("--model_base_path", required=True, type=Path, help="folder of its numbered versions")
    parser.add_argument("--port", type=int, default=8500, help="port for gRPC and HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    told = parser.parse_args()
    settings = Settings(models={told.model_name: told.model_base_path}, host=told.host, port=told.port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    uvloop.run(ModelServer(settings).run())
