"""The gateway and the replicas of model services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.settings.sizes import GIB, MIB


@dataclass(frozen=True)
class GatewaySettings:
    """The gateway in front of model services."""

    host: str = ""
    """Address that services are reached at; empty means ``server.host``. Beyond loopback TLS or
    ``behind_proxy`` is needed here too: callers send tokens.
    """
    public_host: str = ""
    """The host that ``address`` of a service names; empty means ``host``, and this machine's
    name where that is every address of the machine.
    """
    tls_cert: str = ""
    """PEM file of the certificate chain that services show; empty means ``server.tls_cert``.
    When the file changes, the new one is used within seconds, and no call is cut.
    """
    tls_key: str = ""
    """PEM file of the private key of ``gateway.tls_cert``."""
    ports: str = "8600-8999"
    """Ports for services, one each: a range, or several with commas between."""
    ports_share: float = 0.5
    """Largest part of these ports that services of one organisation may have, from 0 to 1. So no
    organisation takes the ports of all others. A service beyond it waits for a port, and its
    events say so.
    """
    original_clients: str = "auto"
    """Whether services made over the original wire are open to whoever reaches their port, since
    the original client sends no credentials when it predicts: ``yes``, ``no``, or ``auto``:
    where the gateway listens on loopback.
    """
    connections: int = 10_000
    """Connections of callers of all services together; fewer where the system allows fewer open
    files. For one more, the service with the most closes one that is idle; where it has none,
    the new one is closed.
    """
    message_limit_bytes: int = 64 * MIB
    """Largest request and largest answer. Replicas that start later take as much."""
    bodies_bytes: int = GIB
    """Memory for the bodies of all requests under way. A request for which there is no room is
    refused: 503, or ``RESOURCE_EXHAUSTED`` over gRPC.
    """
    organisation_bodies_bytes: int = 256 * MIB
    """The share of it that the services of one organisation may have."""
    answer_head_bytes: int = 16_384
    """Largest head of a replica's answer; over HTTP/1.1 together with interim answers. A replica
    that sends more is hung up on, as for the next three, and gets no call for a moment.
    """
    interim_answers: int = 16
    """Most interim answers (1xx) before an answer of a replica."""
    control_frames: int = 1_000
    """Most frames without an answer (PING, SETTINGS, WINDOW_UPDATE, empty DATA) from a replica
    over HTTP/2. Half are forgiven each second, and calls allow more.
    """
    answer_pause_s: float = 60.0
    """How long a replica's answer that has begun may pause. Streams may pause for ever."""
    replica_settings_s: int = 10
    """How long a replica may take to send its first SETTINGS over HTTP/2. The connection ends
    then, as for the next two.
    """
    replica_head_s: int = 30
    """How long a head or a frame of a replica that has begun may take to become whole."""
    replica_unread_s: int = 60
    """How long a replica may leave requests unread."""
    replica_window_bytes: int = 8 * MIB
    """Bytes that a replica may send over HTTP/2 before the gateway has read them: for each call
    and for each connection.
    """
    replica_turn_units: int = 250
    """Work for the replicas of one service in a turn of the event loop, in about microseconds.
    The rest waits for later turns, so that no service slows the calls of others.
    """
    caller_turn_units: int = 500
    """The same for all callers of all services. A light request is always read."""
    caller_head_bytes: int = 16_384
    """Largest head of a request. Replicas that start later take as much."""
    caller_dropped_body_bytes: int = 65_536
    """Largest body over HTTP/1.1 that is read and dropped after a head over its bound. A larger
    one ends the connection.
    """
    caller_empty_frames: int = 16
    """Most empty CONTINUATION frames that a head of a caller may have over HTTP/2."""
    caller_kept_head_bytes: int = 131_072
    """Most bytes of the heads that a connection of a caller recognises over HTTP/2; it costs
    that much memory.
    """
    replica_streams: int = 1_000
    """Most calls under way on one connection to a replica over HTTP/2; a replica may allow
    fewer.
    """
    caller_http1_head_s: int = 10
    """How long a head of a caller over HTTP/1.1 that has begun may take to become whole."""
    caller_http1_body_s: int = 20
    """How long a body over HTTP/1.1 may take, and a second more for each 16 KiB of it that came."""
    caller_http1_idle_s: int = 300
    """How long a connection of HTTP/1.1 may ask nothing."""
    caller_http1_pipelined: int = 64
    """Most calls under way on one connection of HTTP/1.1. More are read when one is answered."""
    caller_http1_linger_s: int = 2
    """How long more is read after an answer that ends a connection of HTTP/1.1."""
    caller_http1_half_closed_s: int = 2
    """How long a caller is answered over HTTP/1.1 that has closed its side of the connection:
    most such callers have left.
    """
    caller_greeting_s: int = 30
    """How long a connection may say nothing at all."""
    caller_http2_streams: int = 1_000
    """Most calls under way on one connection of a caller over HTTP/2."""
    caller_http2_window_bytes: int = 8 * MIB
    """Bytes that a caller may send over HTTP/2 before the gateway has read them: for each call
    and for each connection.
    """
    caller_http2_head_s: int = 30
    """How long a head or a frame over HTTP/2 that has begun may take to become whole."""
    caller_http2_body_s: int = 120
    """How long a call over HTTP/2 may take to become whole."""
    caller_http2_unread_s: int = 60
    """How long a caller may leave an answer over HTTP/2 unread."""
    caller_http2_idle_s: int = 3_600
    """How long a connection of HTTP/2 may ask nothing."""
    stream_unread_bytes: int = 262_144
    """Bytes of a stream (``ModelStreamInfer``, reflection, Watch) that one side has not read,
    from which on the other side gets no more window. At most that and a window wait in the
    gateway, and count to ``bodies_bytes``.
    """
    timeout_s: float = 300.0
    """How long a call may take that brings no deadline."""
    waiting: int = 1000
    """Calls of one service that may wait while none of its replicas can be reached; one more is
    refused at once.
    """
    waiting_s: float = 10.0
    """How long such a call waits."""
    in_flight: int = 2000
    """Calls of one service under way at once; one more is refused at once."""
    attempts: int = 4
    """How many replicas a call is tried at, where that is safe."""
    token_limit_s: float = 366 * 24 * 3600.0
    """How far ahead the end of a token may be."""
    rights_wait_s: float = 2.0
    """How long a request that changes a key, token, user or organisation waits until the gateway
    knows the change.
    """
    drain_s: float = 60.0
    """How long a gateway that is replaced by another version goes on to answer what it has
    begun.
    """
    cors_origins: str = ""
    """Origins whose pages may call services from a browser, such as ``https://app.example.com``:
    several with commas between, or ``*`` for all. Empty: none. Pages need a token as any caller.
    """
    open_health: bool = False
    """Whether probes may ask for health without a token: ``/v2/health/live``,
    ``/v2/health/ready``, ``/ping``, and over gRPC ``Check``, ``ServerLive`` and ``ServerReady``.
    Who asks learns which model of a service is not ready.
    """
    target_in_flight: float = 8.0
    """Calls under way for each replica that autoscaling aims at."""
    scale_down_s: float = 60.0
    """How long there must be fewer calls before autoscaling takes a replica away."""
    quota_wait_s: float = 10.0
    """How long a roll-out waits for room in the organisation's quota for one more replica. Then
    an old replica goes first, and the new one takes its place.
    """
    load_tries: int = 3
    """How often a replica tries to load its model, and how often a replica that crashes is
    started, before the release is Failed. A release that has answered once is started again
    without an end.
    """
    load_retry_s: float = 1.0
    """How long a replica waits between these tries."""
    load_outage_s: float = 60.0
    """How long a replica tries to load its model again where a file is missing or the network
    fails.
    """
    kept_releases: int = 5
    """Earlier releases of a service that are kept for `models rollback`."""
    kept_replicas: int = 10
    """Replicas of a service that have ended and whose output `models logs` still shows, the
    latest; 0 keeps none. Each has at most `engine.kept_attempts` times `engine.log_limit_bytes`
    of it.
    """


def ports_of(text: str) -> tuple[range, ...]:
    """Ranges of ports such as ``8600-8999, 9100``, the lowest first. No port is in two of them.

    Raises:
        ValueError: A word is none; it is the message.
    """
    found = []
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        numbers = [first, last if dash else first]
        if not all(
            each.isascii() and each.isdigit() and 0 < int(each) < 65_536 for each in numbers
        ):
            raise ValueError(word)
        found.append(range(int(numbers[0]), int(numbers[1]) + 1))
        if not found[-1]:
            raise ValueError(word)
    return _merge_ranges(found)


def _merge_ranges(ranges: Sequence[range]) -> tuple[range, ...]:
    """The same numbers, each once."""
    merged: list[range] = []
    for ports in sorted(ranges, key=lambda one: one.start):
        if merged and ports.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, ports.stop))
        else:
            merged.append(ports)
    return tuple(merged)
