"""What the model server is told, with its defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.serving.runtimes.base import LoadOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """Models by name with the folders of their versions; where to listen; bounds in bytes and seconds.

    With a ``unix_socket`` the server listens there and on no port.
    """

    models: Mapping[str, Path] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8500
    rest_port: int | None = None
    unix_socket: Path | None = None
    rest_timeout_s: float = 30.0
    threads: int = 2
    max_message_bytes: int = 64 << 20
    loading: LoadOptions = field(default_factory=LoadOptions)
    drain_s: float = 10.0
