"""The server, its API and its controller."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from cloud_ml.settings.sizes import MIB


@dataclass(frozen=True)
class ServerSettings:
    """Where the server listens and keeps its data."""

    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback the server insists on TLS or ``behind_proxy``."""
    port: int = 8471
    """TCP port; 0 takes a free one and prints it."""
    data_dir: str = ""
    """Folder of everything the server keeps; empty means ``~/.local/share/cloudml``."""
    shared_data: bool = False
    """Several servers of this machine use the data folder: one of them leads, and another one
    continues when it ends. Needs PostgreSQL, and the same settings on each of them.
    """
    separate_data: bool = False
    """Several servers of one database have data folders of their own. Only records are common to
    them, such as studies for ask and tell, runs, keys and quotas: no jobs, logs and objects.
    """
    database_url: str = ""
    """Empty means SQLite inside ``data_dir``; or ``postgresql://user@host/database``. A password
    belongs into ``~/.pgpass``, the file of settings, or the environment, not into the command
    line.
    """
    database_readers: int = 8
    """Connections that read at once. One more writes, and with PostgreSQL another one listens."""
    database_slow_ms: float = 20.0
    """Records are found in SQLite without a thread, until one takes longer than so many
    milliseconds: then reads use threads for a second. 0: they always do.
    """
    tls_cert: str = ""
    """PEM file of the certificate chain."""
    tls_key: str = ""
    """PEM file of the private key."""
    behind_proxy: bool = False
    """A proxy in front speaks TLS: listening beyond loopback without a certificate is then
    right.
    """
    proxy_addresses: str = "127.0.0.1,::1"
    """With ``behind_proxy``: addresses or networks of the proxies, separated by commas. Only
    their ``X-Forwarded-For`` and ``X-Forwarded-Proto`` count. A proxy must overwrite what its
    clients send in these headers.
    """
    connections: int = 2000
    """Connections at once; one more is answered 503 and closed."""
    header_limit_bytes: int = 64 * 1024
    """Largest head of a request: its line and its headers. A larger one is answered with 431 or
    414, and ends its connection: what follows is not read, so a flood of large heads costs
    little. Clients connect again.
    """
    header_limit_count: int = 100
    """Most headers of a request."""
    header_timeout_s: float = 15.0
    """How long the head of a request may take to arrive, and a new connection to begin one."""
    body_timeout_s: float = 60.0
    """Longest pause in the middle of a request's body."""
    write_timeout_s: float = 60.0
    """How long a client may not read what it is sent, streams included, before it is hung up on."""
    keep_alive_s: float = 30.0
    """How long an idle connection is kept open for the next request."""
    shutdown_timeout_s: float = 8.0
    """How long open requests may take to end on SIGTERM. Followers of logs are cut off at once."""
    audit_retention_days: int = 365
    """How long the audit log keeps who did what; 0 keeps it for ever."""
    events_per_record: int = 1000
    """How many events a job or a model service keeps, 10 to 1000: the newest ones. Without a
    bound, a service that is updated again and again fills the database.
    """
    log_format: str = "auto"
    """``json``: every line that the server writes is JSON; ``text``; or ``auto``: a log in text
    on a terminal and in JSON otherwise, and the messages of the start in text.
    """


@dataclass(frozen=True)
class ApiSettings:
    """Bounds and rules of the HTTP surfaces."""

    body_limit_bytes: int = MIB
    """Largest JSON body. Uploads of objects are streamed and not bound by it."""
    signature_window_s: int = 300
    """How far a request's time may be from the server's, either way."""
    legacy_bodyless_window_s: int = 10
    """The same for a mutation in the original scheme without a body: its signature fits other
    methods too.
    """
    legacy_signatures: bool = True
    """Whether the original client's signatures are accepted at all."""
    list_page_limit: int = 1000
    """Most entries of one page."""
    list_details_limit: int = 200
    """Most entries of one page of jobs with their details, which are read one by one."""
    long_poll_limit_s: int = 60
    """Longest time a request may wait for a change."""
    streams_per_key: int = 100
    """Followers of logs and of changes that one key may have at once."""
    requests_per_org: int = 1000
    """Requests of one organisation under way at once, waits and streams among them: fewer than
    the server takes connections, so that no tenant has all of them.
    """
    records_per_org: int = 500_000
    """Jobs, and model services, that one organisation may have, saved and ended ones among them;
    0 for any number. A record takes 3 to 15 kB of the database, which is everybody's; one of
    more than 16 KiB counts as several.
    """
    heartbeat_s: float = 15.0
    """Longest silence on a stream of events before a line says that the server is still there."""
    stream_limit_s: float = 3600.0
    """Longest time that a stream of events stays open; the client signs anew then, and goes on."""
    metrics_token: str = ""
    """What a scraper shows to read ``/metrics``, as a bearer token. Empty: only the machine
    itself may, and nobody through a proxy. Belongs into the file of settings or the environment.
    """
    cors_origins: str = ""
    """Origins whose pages may use ``/api/v1`` from a browser with an access token: exact ones
    with commas between, such as ``https://app.example.com``. Empty: none. ``*`` is refused, and
    credentials of browsers are never allowed.
    """
    grace_limit_s: float = 3600.0
    """Longest grace time that a job may name: the time between SIGTERM and SIGKILL when it is
    stopped.
    """
    gpu_missing: str = "refuse"
    """What to do with a job that asks for a GPU where there is none: ``refuse`` or ``ignore``."""


@dataclass(frozen=True)
class ControllerSettings:
    """The loops that move jobs."""

    workers: int = 8
    """Reconciles under way at once; each waits for the store or the engine most of the time."""
    pass_limit_s: float = 30.0
    """How long a reconcile of one job or service may take. Then its worker goes on with others,
    an event names the step that does not end, and the record is tried again later. 0: no limit.
    """
    notice_limit_s: float = 1.0
    """How long the change feed waits for what one change causes at once, such as reading a quota
    again. After that the feed continues, and that work continues beside it.
    """
    poll_s: float = 5.0
    """How often the change feed is read without being woken: the promise behind the hints."""
    lease_ttl_s: float = 15.0
    """How long a dead controller blocks the next one."""
    backoff_first_s: float = 0.5
    """Delay after the first failed reconcile of a job; doubles up to ``backoff_longest_s``."""
    backoff_longest_s: float = 60.0
    """Longest delay between reconciles of a job that keeps failing."""
    failure_event_s: float = 3600.0
    """How often the same failure of reconciles becomes an event of its record; a different one
    does at once.
    """
    max_running_jobs: int = 0
    """Jobs started at once; 0 means four for each core."""
    reserved_places: int = 1
    """How many of these are kept for organisations that have no job running, where there is more
    than one: jobs that never end could hold all of them for ever. Half of them at most; 0 for
    none.
    """


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
