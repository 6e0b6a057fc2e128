"""Flags of ``cloudml-serve`` about models, their versions and TLS; names are TensorFlow
Serving's where it has them.
"""

import argparse
from pathlib import Path
from typing import Any

from cloud_ml.net.connection_bounds import ConnectionBounds
from cloud_ml.net.http1.cors import parse_origins
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.versions.batching_parameters import parse_batching_parameters
from cloud_ml.serving.versions.model_config import Latest, ModelConfig, VersionPolicy, parse_policy
from cloud_ml.serving.versions.single_model import base_of
from cloud_ml.serving.versions.version_manager import Rules

_DEFAULT = Rules()
_BOUNDS = ConnectionBounds()


def add_life(parser: argparse.ArgumentParser) -> None:
    """Add them to a parser."""
    one = parser.add_argument_group("models")
    one.add_argument("--model_name", default="default", help="name of the only model")
    one.add_argument(
        "--model_base_path",
        type=Path,
        help="folder of its numbered versions, or of a model, or a file",
    )
    one.add_argument(
        "--model_version_policy", type=_policy, default=Latest(), metavar="latest[:N]|all|N,N…",
        help="versions that answer side by side: the newest N (default: latest:1), all, or these",
    )  # fmt: skip
    one.add_argument(
        "--model_config_file", type=Path, help="several models: a ModelServerConfig as text"
    )
    one.add_argument(
        "--model_config_file_poll_wait_seconds", type=_seconds, default=0.0,
        help="read that file again this often; 0: never (default)",
    )  # fmt: skip
    one.add_argument(
        "--file_system_poll_wait_seconds", type=_seconds, default=_DEFAULT.poll_s,
        help="look for new versions this often; 0: only at the start (default: 1)",
    )  # fmt: skip
    one.add_argument(
        "--version_settle_seconds", type=_seconds, default=_DEFAULT.settle_s,
        help="load a version when nothing was written into it for so long (default: 1)",
    )  # fmt: skip
    one.add_argument(
        "--allow_version_labels_for_unavailable_models", action="store_true",
        help="give labels to versions that do not answer yet",
    )  # fmt: skip
    one.add_argument(
        "--allow_model_control",
        action="store_true",
        help="callers may reload the configuration, load and unload models",
    )
    how = parser.add_argument_group("loading")
    how.add_argument(
        "--num_load_threads",
        type=_positive,
        default=_DEFAULT.load_threads,
        help="versions that are loaded at once (2)",
    )
    how.add_argument(
        "--max_num_load_retries", type=_whole, default=_DEFAULT.max_retries,
        help="tries after a load that failed, unless files change (5)",
    )  # fmt: skip
    how.add_argument(
        "--load_retry_interval_micros", type=_whole, default=int(_DEFAULT.retry_s * 1e6),
        help="time between them (60000000: a minute)",
    )  # fmt: skip
    how.add_argument(
        "--load_outage_seconds", type=_seconds, default=_DEFAULT.outage_s,
        help="keep trying for this long if a file is missing or the network fails (300)",
    )  # fmt: skip
    how.add_argument(
        "--total_model_memory_limit_bytes",
        type=_whole,
        default=0,
        help="load no version that does not fit in, at 1.2 times the size of its files; 0: no "
        "limit (default)",
    )
    how.add_argument(
        "--enable_model_warmup", type=_truth, default=True, metavar="true|false",
        help="run requests before a version answers (true)",
    )  # fmt: skip
    together = parser.add_argument_group("batching")
    together.add_argument(
        "--enable_batching", type=_truth, nargs="?", const=True, default=None, metavar="true|false",
        help="run calls of several clients together: true for every model, false for none; "
        "default: models whose rows are known to be independent of each other",
    )  # fmt: skip
    together.add_argument(
        "--batching_parameters_file",
        type=Path,
        help="sizes of batches: a BatchingParameters as text",
    )
    parser.add_argument(
        "--max_message_bytes",
        type=_positive,
        default=64 << 20,
        help="largest request and largest answer (64 MiB)",
    )
    parser.add_argument(
        "--request_memory_bytes",
        type=_positive,
        default=1 << 30,
        help="memory for the bodies of all requests under way; a request without room is "
        "refused (1 GiB)",
    )
    _add_connections(parser)
    parser.add_argument(
        "--ssl_config_file", type=Path, help="TLS on every port: an SSLConfig as text"
    )


def _add_connections(parser: argparse.ArgumentParser) -> None:
    one = parser.add_argument_group("connections")
    one.add_argument(
        "--turn_units",
        type=_positive,
        default=_BOUNDS.turn_units,
        help="work for all callers in a turn of the event loop, about microseconds; the rest "
        "waits (500)",
    )
    one.add_argument(
        "--head_bytes", type=_positive, default=_BOUNDS.head_bytes,
        help="largest head of a request (16384)",
    )  # fmt: skip
    one.add_argument(
        "--dropped_body_bytes", type=_whole, default=_BOUNDS.dropped_body_bytes,
        help="HTTP/1.1: largest body that is read and dropped behind a head over its bound (65536)",
    )  # fmt: skip
    one.add_argument(
        "--empty_frames", type=_whole, default=_BOUNDS.empty_frames,
        help="HTTP/2: most empty CONTINUATION frames of a head (16)",
    )  # fmt: skip
    one.add_argument(
        "--kept_head_bytes", type=_whole, default=_BOUNDS.kept_head_bytes,
        help="HTTP/2: most bytes of the heads that a connection recognises (131072)",
    )  # fmt: skip
    one.add_argument(
        "--http1_head_seconds", type=_positive, default=_BOUNDS.http1_head_s,
        help="HTTP/1.1: how long a head may take to become whole (10)",
    )  # fmt: skip
    one.add_argument(
        "--http1_body_seconds", type=_positive, default=_BOUNDS.http1_body_s,
        help="HTTP/1.1: how long a body may take, and a second more for each 16 KiB of it (20)",
    )  # fmt: skip
    one.add_argument(
        "--http1_idle_seconds", type=_positive, default=_BOUNDS.http1_idle_s,
        help="HTTP/1.1: how long a connection may ask nothing (300)",
    )  # fmt: skip
    one.add_argument(
        "--http1_pipelined", type=_positive, default=_BOUNDS.http1_pipelined,
        help="HTTP/1.1: most requests under way on one connection (64)",
    )  # fmt: skip
    one.add_argument(
        "--http1_linger_seconds", type=_positive, default=_BOUNDS.http1_linger_s,
        help="HTTP/1.1: how long more is read after an answer that ends the connection (2)",
    )  # fmt: skip
    one.add_argument(
        "--greeting_seconds", type=_positive, default=_BOUNDS.greeting_s,
        help="how long a connection may say nothing at all (30)",
    )  # fmt: skip
    one.add_argument(
        "--http2_max_streams", type=_positive, default=_BOUNDS.http2_streams,
        help="HTTP/2: most requests under way on one connection (1000)",
    )  # fmt: skip
    one.add_argument(
        "--http2_window_bytes",
        type=_window,
        default=_BOUNDS.http2_window_bytes,
        help="HTTP/2: bytes that a caller may send unread, for each request and connection "
        "(8388608)",
    )
    one.add_argument(
        "--http2_head_seconds", type=_positive, default=_BOUNDS.http2_head_s,
        help="HTTP/2: how long a head or frame may take to become whole (30)",
    )  # fmt: skip
    one.add_argument(
        "--http2_body_seconds", type=_positive, default=_BOUNDS.http2_body_s,
        help="HTTP/2: how long a request may take to become whole (120)",
    )  # fmt: skip
    one.add_argument(
        "--http2_unread_seconds", type=_positive, default=_BOUNDS.http2_unread_s,
        help="HTTP/2: how long an answer may lie unread without progress (60)",
    )  # fmt: skip
    one.add_argument(
        "--http2_idle_seconds", type=_positive, default=_BOUNDS.http2_idle_s,
        help="HTTP/2: how long a connection may ask nothing (3600)",
    )  # fmt: skip
    one.add_argument(
        "--stream_unread_bytes", type=_positive, default=_BOUNDS.stream_unread_bytes,
        help="gRPC streams: unread bytes of answers from which on further messages wait (262144)",
    )  # fmt: skip


def life_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Any]:
    """What they mean, as fields of ``Settings``."""
    if (args.model_base_path is None) == (args.model_config_file is None):
        parser.error("give --model_base_path for one model, or --model_config_file for several")
    models = {}
    if args.model_base_path is not None:
        base = base_of(args.model_base_path.absolute())
        models[args.model_name] = ModelConfig(args.model_name, base, args.model_version_policy)
    rules = Rules(
        poll_s=args.file_system_poll_wait_seconds,
        settle_s=args.version_settle_seconds,
        load_threads=args.num_load_threads,
        max_retries=args.max_num_load_retries,
        retry_s=args.load_retry_interval_micros / 1e6,
        outage_s=args.load_outage_seconds,
        memory_bytes=args.total_model_memory_limit_bytes,
        labels_for_unavailable=args.allow_version_labels_for_unavailable_models,
    )
    return {
        "models": models,
        "config_file": args.model_config_file,
        "config_poll_s": args.model_config_file_poll_wait_seconds,
        "rules": rules,
        "batching": args.enable_batching,
        **_batching_parameters(parser, args),
        "warm_up": args.enable_model_warmup,
        "allow_model_control": args.allow_model_control,
        "tls_file": args.ssl_config_file,
        "max_message_bytes": args.max_message_bytes,
        "request_memory_bytes": args.request_memory_bytes,
        "connections": _connections_of(args),
    }


def _connections_of(args: argparse.Namespace) -> ConnectionBounds:
    return ConnectionBounds(
        turn_units=args.turn_units,
        head_bytes=args.head_bytes,
        dropped_body_bytes=args.dropped_body_bytes,
        empty_frames=args.empty_frames,
        kept_head_bytes=args.kept_head_bytes,
        http1_head_s=args.http1_head_seconds,
        http1_body_s=args.http1_body_seconds,
        http1_idle_s=args.http1_idle_seconds,
        http1_pipelined=args.http1_pipelined,
        http1_linger_s=args.http1_linger_seconds,
        greeting_s=args.greeting_seconds,
        http2_streams=args.http2_max_streams,
        http2_window_bytes=args.http2_window_bytes,
        http2_head_s=args.http2_head_seconds,
        http2_body_s=args.http2_body_seconds,
        http2_unread_s=args.http2_unread_seconds,
        http2_idle_s=args.http2_idle_seconds,
        stream_unread_bytes=args.stream_unread_bytes,
    )


def _batching_parameters(
    parser: argparse.ArgumentParser, args: argparse.Namespace
) -> dict[str, Any]:
    """What the file says, as fields of ``Settings``; as in TensorFlow Serving, the file needs
    the flag.
    """
    file: Path | None = args.batching_parameters_file
    if file is None:
        return {}
    if not args.enable_batching:
        parser.error("--batching_parameters_file needs --enable_batching=true")
    try:
        parameters = parse_batching_parameters(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--batching_parameters_file cannot be read: {error}")
    except BadRequest as error:
        parser.error(f"{file}: {error.message}")
    return {"policy": parameters.policy, "threads": parameters.threads}


def origins(text: str) -> frozenset[str]:
    """The value of ``--cors_origins``."""
    try:
        return parse_origins(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _policy(text: str) -> VersionPolicy:
    try:
        return parse_policy(text)
    except BadRequest as error:
        raise argparse.ArgumentTypeError(error.message) from error


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return value


def _window(text: str) -> int:
    """RFC 9113, section 6.9.2: the peer begins with 65,535 bytes for a connection, and they
    cannot be taken back.
    """
    value = int(text)
    if not 65_536 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 65536 to 2147483647")
    return value


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"
