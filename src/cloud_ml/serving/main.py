"""``cloudml-serve``: the model server from a command line, with TensorFlow Serving's flags."""

import argparse
import logging
from pathlib import Path

import uvloop

from cloud_ml.serving import flags, memory
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.server import ModelServer
from cloud_ml.serving.settings import Settings


def main() -> None:
    """Read the flags and serve."""
    parser = argparse.ArgumentParser(prog="cloudml-serve", description=__doc__)
    flags.add_life(parser)
    parser.add_argument("--port", type=int, default=8500, help="port for gRPC and HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--unix_socket", type=Path, help="listen here for gRPC and HTTP, and on no port"
    )
    parser.add_argument(
        "--rest_api_port", type=int, help="a second port, for clients that want one of their own"
    )
    parser.add_argument(
        "--rest_api_timeout_in_ms", type=int, default=30_000, help="time for a call over HTTP/1.1"
    )
    parser.add_argument(
        "--cors_origins",
        type=flags.origins,
        default=frozenset(),
        help="origins whose pages may call from a browser, with commas between, or * for all; "
        "none (default)",
    )
    parser.add_argument(
        "--tensorflow_engine", choices=["auto", "tensorflow"], default="auto",
        help="auto: onnxruntime runs SavedModels where it gives the same answers faster",
    )  # fmt: skip
    parser.add_argument(
        "--conversion_cache",
        type=Path,
        default=LoadOptions().cache,
        help="where converted models lie",
    )
    parser.add_argument(
        "--allow_models_that_run_code",
        action="store_true",
        help="load formats that run code of the model",
    )
    args = parser.parse_args()
    settings = Settings(
        host=args.host,
        port=args.port,
        rest_port=args.rest_api_port,
        unix_socket=args.unix_socket,
        rest_timeout_s=args.rest_api_timeout_in_ms / 1000,
        cors_origins=args.cors_origins,
        loading=LoadOptions(
            args.tensorflow_engine,
            args.conversion_cache,
            allow_code=args.allow_models_that_run_code,
        ),
        **flags.life_of(parser, args),
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    memory.keep_freed()
    try:
        uvloop.run(ModelServer(settings).run())
    except ServingError as error:
        parser.error(error.message)
