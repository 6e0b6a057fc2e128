"""What the gateway's process is started with, and the names of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud_ml.domain.services.routes import CallingKey, Route

SOCKET_NAME = "gateway.sock"
TOKEN_NAME = "gateway.token"  # noqa: S105 - a file's name
LOCK_NAME = "gateway.lock"
LOG_NAME = "gateway.log"


@dataclass(frozen=True)
class ApplicationsConfig:
    """Where applications are served; see ``settings.applications``.

    ``tls``: the gateway itself speaks TLS with browsers. ``secure``: browsers come over TLS, which
    a proxy may speak.
    """

    host: str
    domain: str
    tls: bool = False
    secure: bool = False
    start_s: float = 60.0


@dataclass(frozen=True)
class GatewayConfig:
    """A gateway with another configuration is replaced by one with this.

    ``certificate`` is a digest of the files of TLS, so that a renewed one counts as another
    configuration. ``public_host`` is the address that callers are told, ``host`` where it is empty.
    ``user`` is who a gateway of root becomes, 0 for nobody else. ``job_sockets`` is what the
    local engine's ``JobSockets`` is made of; empty where replicas are called over TCP only.
    """

    folder: str
    version: str
    host: str
    public_host: str = ""
    user: int = 0
    job_sockets: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    certificate: str = ""
    connections: int = 10_000
    message_limit_bytes: int = 64 << 20
    bodies_bytes: int = 1 << 30
    organisation_bodies_bytes: int = 256 << 20
    answer_head_bytes: int = 16_384
    interim_answers: int = 16
    control_frames: int = 1_000
    answer_pause_s: float = 60.0
    replica_settings_s: int = 10
    replica_head_s: int = 30
    replica_unread_s: int = 60
    replica_window_bytes: int = 8 << 20
    replica_turn_units: int = 250
    caller_turn_units: int = 500
    caller_head_bytes: int = 16_384
    caller_dropped_body_bytes: int = 65_536
    caller_empty_frames: int = 16
    caller_kept_head_bytes: int = 131_072
    replica_streams: int = 1_000
    caller_http1_head_s: int = 10
    caller_http1_body_s: int = 20
    caller_http1_idle_s: int = 300
    caller_http1_pipelined: int = 64
    caller_http1_linger_s: int = 2
    caller_http1_half_closed_s: int = 2
    caller_greeting_s: int = 30
    caller_http2_streams: int = 1_000
    caller_http2_window_bytes: int = 8 << 20
    caller_http2_head_s: int = 30
    caller_http2_body_s: int = 120
    caller_http2_unread_s: int = 60
    caller_http2_idle_s: int = 3_600
    stream_unread_bytes: int = 262_144
    timeout_s: float = 300.0
    waiting: int = 1000
    waiting_s: float = 10.0
    in_flight: int = 2000
    attempts: int = 4
    token_limit_s: float = 366 * 24 * 3600.0
    drain_s: float = 60.0
    cors_origins: str = ""
    open_health: bool = False
    log_format: str = "text"
    applications: ApplicationsConfig | None = None


@dataclass(frozen=True)
class Instruction:
    """What the server tells the gateway: routes by the uid of their service, and keys by their
    access key.

    ``keep``, where given, are all services there are; ``keys``, where given, are all keys that
    work. ``tickets`` are those of applications that a predecessor has seen.
    """

    routes: Mapping[str, Route] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None
    keys: Mapping[str, CallingKey] | None = None
    tickets: Mapping[str, int] = field(default_factory=dict)
