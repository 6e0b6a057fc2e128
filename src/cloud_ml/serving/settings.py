"""What the model server is told, with its defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.net.connection_bounds import ConnectionBounds
from cloud_ml.serving.batching import Policy
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.versions.model_config import ModelConfig
from cloud_ml.serving.versions.version_manager import Rules


@dataclass(frozen=True, slots=True)
class Settings:
    """Models by name, or a file that tells them; where to listen; bounds in bytes and seconds.

    ``allow_model_control`` lets callers change what is served; ``tls_file`` has keys and
    certificates for all ports. ``cors_origins`` are origins of pages that may call from a browser.
    With a ``unix_socket`` the server listens there and on no port. ``batching`` says whether calls
    of several clients run together; None leaves that to what is known of each model. ``policy``
    says how many. ``request_memory_bytes`` are for the bodies of all requests under way together.
    """

    models: Mapping[str, ModelConfig] = field(default_factory=dict)
    config_file: Path | None = None
    config_poll_s: float = 0.0
    rules: Rules = field(default_factory=Rules)
    warm_up: bool = True
    allow_model_control: bool = False
    tls_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8500
    rest_port: int | None = None
    unix_socket: Path | None = None
    rest_timeout_s: float = 30.0
    cors_origins: frozenset[str] = frozenset()
    threads: int = 2
    max_message_bytes: int = 64 << 20
    request_memory_bytes: int = 1 << 30
    connections: ConnectionBounds = field(default_factory=ConnectionBounds)
    loading: LoadOptions = field(default_factory=LoadOptions)
    batching: bool | None = None
    policy: Policy = field(default_factory=Policy)
    drain_s: float = 10.0
