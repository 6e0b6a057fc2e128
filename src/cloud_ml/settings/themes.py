"""Every setting, by theme: name, type, default, and below it what it is and why. The reference page reads this file."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.models.local_paths import local_path

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True)
class ServerSettings:
    """Where the server listens and keeps its data."""

    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback the server insists on TLS or ``behind_proxy``."""
    port: int = 8471
    """TCP port; 0 takes a free one and prints it."""
    data_dir: str = ""
    """Folder of everything the server keeps; empty means ``~/.local/share/cloudml``."""
    database_url: str = ""
    """Empty means SQLite inside ``data_dir``; or ``postgresql://user@host/database``. A password belongs into
    ``~/.pgpass``, the file of settings, or the environment, not into the command line."""
    database_readers: int = 8
    """Connections that read at once. One more writes, and with PostgreSQL another one listens."""
    database_slow_ms: float = 20.0
    """Records are found in SQLite without a thread, until one takes longer than so many milliseconds: then reads
    use threads for a second. 0: they always do."""
    tls_cert: str = ""
    """PEM file of the certificate chain."""
    tls_key: str = ""
    """PEM file of the private key."""
    behind_proxy: bool = False
    """A proxy in front speaks TLS: listening beyond loopback without a certificate is then right."""
    proxy_addresses: str = "127.0.0.1,::1"
    """With ``behind_proxy``: addresses or networks of the proxies, separated by commas. Only their ``X-Forwarded-For``
    and ``X-Forwarded-Proto`` count. A proxy must overwrite what its clients send in these headers."""
    connections: int = 2000
    """Connections at once; one more is answered 503 and closed."""
    header_limit_bytes: int = 64 * 1024
    """Largest head of a request: its line and its headers. A larger one is answered with 431 or 414, and ends its
    connection: what follows is not read, so a flood of large heads costs little. Clients connect again."""
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
    log_format: str = "auto"
    """``json``: every line that the server writes is JSON; ``text``; or ``auto``: a log in text on a terminal and in
    JSON otherwise, and the messages of the start in text."""


@dataclass(frozen=True)
class ApiSettings:
    """Bounds and rules of the HTTP surfaces."""

    body_limit_bytes: int = MIB
    """Largest JSON body. Uploads of objects are streamed and not bound by it."""
    signature_window_s: int = 300
    """How far a request's time may be from the server's, either way."""
    legacy_bodyless_window_s: int = 10
    """The same for a mutation in the original scheme without a body: its signature fits other methods too."""
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
    """Requests of one organisation under way at once, waits and streams among them: fewer than the server takes
    connections, so that no tenant has all of them."""
    records_per_org: int = 500_000
    """Jobs, and model services, that one organisation may have, saved and ended ones among them; 0 for any number. A
    record takes 3 to 15 kB of the database, which is everybody's."""
    heartbeat_s: float = 15.0
    """Longest silence on a stream of events before a line says that the server is still there."""
    stream_limit_s: float = 3600.0
    """Longest time that a stream of events stays open; the client signs anew then, and goes on."""
    metrics_token: str = ""
    """What a scraper shows to read ``/metrics``, as a bearer token. Empty: only the machine itself may, and nobody
    through a proxy. Belongs into the file of settings or the environment."""
    cors_origins: str = ""
    """Origins whose pages may use ``/api/v1`` from a browser with an access token: exact ones with commas between, such
    as ``https://app.example.com``. Empty: none. ``*`` is refused, and credentials of browsers are never allowed."""
    grace_limit_s: float = 3600.0
    """Longest grace time that a job may name: the time between SIGTERM and SIGKILL when it is stopped."""
    gpu_missing: str = "refuse"
    """What to do with a job that asks for a GPU where there is none: ``refuse`` or ``ignore``."""


@dataclass(frozen=True)
class KeySettings:
    """How keys are looked up, given out and replaced."""

    staleness_s: float = 5.0
    """How long another server may go on to believe a key after it, its user or its organisation was disabled."""
    overlap_s: int = 24 * 3600
    """How long a rotated key works beside its successor, if the request does not say."""
    overlap_limit_s: int = 30 * 24 * 3600
    """Longest overlap that a request may ask for."""
    per_user: int = 20
    """Most keys of one user."""
    users_per_org: int = 1000
    """Most users of one organisation; 0 for any number."""
    tokens_per_user: int = 100
    """Most access tokens of one user. Expired tokens count for 7 days, so that their user can look them up."""
    token_lifetime_limit_s: int = 10 * 366 * 24 * 3600
    """Longest lifetime of an access token, in seconds."""


@dataclass(frozen=True)
class QuotaSettings:
    """Limits of organisations that have none of their own. Empty means no limit.

    Amounts: cores (``4``, ``0.5``), sizes (``16G``), whole numbers. What is used counts while a job holds a place.
    """

    train_cpu: str = ""
    """Cores of train jobs together."""
    train_memory: str = ""
    """Memory of train jobs together."""
    train_gpu: str = ""
    """GPUs of train jobs together."""
    train_count: str = ""
    """Train jobs at once."""
    model_cpu: str = ""
    """Cores of model services; shown today, and in force once there are model services."""
    model_memory: str = ""
    """Memory of model services, likewise."""
    model_gpu: str = ""
    """GPUs of model services, likewise."""
    model_count: str = ""
    """Model services at once, likewise."""
    dev_cpu: str = ""
    """Cores of development environments; shown today, and in force once there are such."""
    dev_memory: str = ""
    """Memory of development environments, likewise."""
    dev_gpu: str = ""
    """GPUs of development environments, likewise."""
    dev_count: str = ""
    """Development environments at once, likewise."""
    storage: str = ""
    """Bytes in all buckets together. Uploads beyond are refused; what jobs write counts and is not stopped."""
    open_applications: int = 20
    """Applications for quota that an organisation may have open."""


@dataclass(frozen=True)
class ControllerSettings:
    """The loops that move jobs."""

    workers: int = 8
    """Reconciles under way at once; each waits for the store or the engine most of the time."""
    pass_limit_s: float = 30.0
    """How long a reconcile of one job or service may take. Then its worker goes on with others, an event names the step
    that does not end, and the record is tried again later. 0: no limit."""
    notice_limit_s: float = 1.0
    """How long the change feed waits for what one change causes at once, such as reading a quota again. After that the
    feed continues, and that work continues beside it."""
    poll_s: float = 5.0
    """How often the change feed is read without being woken: the promise behind the hints."""
    lease_ttl_s: float = 15.0
    """How long a dead controller blocks the next one."""
    backoff_first_s: float = 0.5
    """Delay after the first failed reconcile of a job; doubles up to ``backoff_longest_s``."""
    backoff_longest_s: float = 60.0
    """Longest delay between reconciles of a job that keeps failing."""
    failure_event_s: float = 3600.0
    """How often the same failure of reconciles becomes an event of its record; a different one does at once."""
    max_running_jobs: int = 0
    """Jobs started at once; 0 means four for each core."""
    reserved_places: int = 1
    """How many of these are kept for organisations that have no job running, where there is more than one: jobs that
    never end could hold all of them for ever. Half of them at most; 0 for none."""


@dataclass(frozen=True)
class EngineSettings:
    """How jobs run on this machine."""

    sandbox: str = "auto"
    """``auto``: bubblewrap where it works, else Landlock where the kernel has it; ``require``: refuse to run without
    bubblewrap; ``landlock``: never bubblewrap; ``none``: no fence at all."""
    cgroups: str = "auto"
    """``auto``, ``require`` or ``none``, likewise for enforced limits."""
    network: str = "auto"
    """Network of jobs. ``tenant``: a network of each organisation's own, with a way out to the open
    internet, or the server does not start; ``host``: the machine's, all of it; ``none``: a loopback of their own;
    ``auto``: ``tenant`` where this machine gives it, else ``host``, and the server says so."""
    network_allow: str = ""
    """What jobs may reach although it is private, separated by commas: ``10.1.0.0/16, 10.2.3.4:5432``. What this
    machine itself serves is only opened by an address of its with a port."""
    network_range: str = ""
    """Addresses for the networks of organisations, two for each that has jobs; empty: a range of /20 that no route
    of this machine uses."""
    network_dns: str = ""
    """Name servers of jobs, separated by commas; empty: this machine's, as far as they are not on its loopback."""
    network_connections: int = 4096
    """Connections that an organisation's jobs may have to the outside at once: the machine keeps all in one table."""
    network_idle_s: float = 3600.0
    """How long the network of an organisation is kept without a job; the next one makes it anew in some 30 ms."""
    stop_grace_s: float = 10.0
    """Between SIGTERM and SIGKILL when a job is stopped that names no grace time of its own."""
    start_timeout_s: float = 3600.0
    """How long fetching and installing may take before the attempt fails."""
    tool_timeout_s: float = 1800.0
    """How long one run of an installer or a package build may take."""
    download_tries: int = 3
    """How often packages are downloaded where the network fails: a name service, a broken connection, an error 5xx."""
    tool_memory: str = "1G"
    """Memory of installers and package builds that run for a job. A job with a higher limit gives them its own; for a
    job without a limit they have none."""
    tool_disk: str = "20G"
    """What one run of an installer or a package build may write to the disk; empty: no limit."""
    log_limit_bytes: int = 64 * MIB
    """Most that is kept of one task's output; past it the middle is dropped and marked."""
    kept_attempts: int = 5
    """Attempts of a replica of a model service whose output is kept, the latest: it starts again each time it ends."""
    usage_period_s: float = 5.0
    """How often cpu and memory of a task are noted."""
    max_processes: int = 4096
    """Processes and threads of one task. It is less where all jobs together (``controller.max_running_jobs``) could
    take more than half of what the kernel can have (``kernel.pid_max``): see ``cloudml doctor isolation``."""
    thrash_s: float = 30.0
    """A task at its memory limit without progress for so long counts as out of memory."""
    tenant_uid_base: int = 1_600_000
    """As root, jobs of organisation n run as user ``tenant_uid_base + n``, and the gateway as ``tenant_uid_base``."""
    default_memory: str = ""
    """Memory limit of jobs and replicas that name none, such as ``2G``; empty means none. Quotas count it."""
    default_cpu: str = ""
    """Cores that quotas count for jobs and replicas that name no limit of processors, such as ``1``, and their share
    while others want the processors, too. They may use more when there is more. Empty: none, so a quota of processors
    refuses them."""
    cpu_overcommit: float = 0.0
    """How many times the machine's processors may be promised to jobs and replicas by their limits; 0: any number of
    times. Memory is never promised twice."""
    default_disk: str = "auto"
    """Disk limit of jobs that name none, such as ``20G``. ``auto``: a quarter of what is free when the server starts,
    for jobs and replicas made from then on; ``none`` or empty: no limit. ``cloudml doctor`` prints it."""
    kept_disk: str = "auto"
    """What the working folders and logs of an organisation's ended jobs may keep on the server's disk together, such as
    ``100G``. Beyond it, further jobs of the organisation fail at their start until some are deleted. ``auto``: as much
    as is free then, and 1G at least; ``none`` or empty: no limit."""
    disk_reserve: str = "512M"
    """What must stay free on the server's disk. When files of jobs grow and there is less, a job is ended and its
    working folder removed: the one that is furthest beyond an equal share. Empty: nothing."""
    disk_period_s: float = 5.0
    """How often the files of a job are measured, where it has a limit or the disk is nearly full."""
    max_files: int = 1_000_000
    """Files and folders that a job may keep in its own folders; buckets are not counted. 0 means no limit."""
    zygotes: int = 0
    """Most interpreters that wait with a framework imported, each for one job of one organisation and for runtimes
    that have ``preload``. 0: none. They need bubblewrap, control groups, a C compiler and a server that is root."""
    zygote_memory: str = "2G"
    """Most memory of one of them until its job comes."""
    zygote_idle_s: float = 600.0
    """How long one waits for a job."""
    zygote_import_s: float = 120.0
    """How long its import may take."""


@dataclass(frozen=True)
class EnvironmentSettings:
    """How environments of jobs are made."""

    home: str = ""
    """Folder of layers and caches; empty means ``environments`` inside the data folder. May be shared
    by servers of one user on one machine."""
    runtimes_dir: str = ""
    """Folder with further runtimes (TOML files); empty means ``runtimes`` inside the data folder."""
    pythons: str = ""
    """Versions of Python that are offered beside those found on this machine, such as ``3.13, 3.14``: uv fetches
    one when it is first needed."""
    layers_limit_bytes: int = 50 * GIB
    """Installed packages that are kept, in bytes; above it, those that no living job uses go, the longest unused
    first. 0 means no limit."""
    tidy_s: float = 600.0
    """How often that limit is looked at."""


@dataclass(frozen=True)
class StorageSettings:
    """Buckets and objects."""

    usage_staleness_s: float = 60.0
    """How old a count of what a bucket holds may be. Uploads are added to it at once."""
    presign_limit_s: float = 604_800.0
    """How long a link to an object may be good for."""
    upload_expiry_s: float = 604_800.0
    """How long an unfinished upload is kept after its last part or segment."""
    upload_part_limit_bytes: int = GIB
    """Largest part or segment of an upload in several requests. Other uploads are not bound by it."""
    uploads_per_bucket: int = 1000
    """Most uploads in several requests that may be under way to one bucket."""
    batch_objects: int = 250
    """Most objects in one request that sends or reads many small ones."""
    batch_bytes: int = 16 * MIB
    """Most bytes of objects that one such request may send."""
    batch_object_bytes: int = MIB
    """Largest object that such a request reads; each is held in memory while it is read."""
    buckets_per_org: int = 1000
    """Most buckets of one organisation; 0 for any number. Each is mounted into every job of it."""
    objects_per_org: int = 1_000_000
    """Most objects and folders in all buckets of one organisation, and files of its unfinished uploads; 0 for any
    number. Uploads beyond are refused; what jobs write counts and is not stopped. The count may be a minute old."""
    disk_reserve: str = "1G"
    """What must stay free on the disk of the objects for jobs and the database: uploads that would need it are refused,
    also while they come. The same holds for the last 2 % of the files that the disk can hold. Of a small disk the
    reserve is a twentieth at most. Empty: nothing."""
    usage_time_limit_s: float = 5.0
    """How long one count may take; after that the figure is a lower bound and says so."""
    bucket_wait_s: float = 10.0
    """How long a call that makes or removes a bucket waits for others that do the same with a bucket of its name."""


@dataclass(frozen=True)
class OutputSettings:
    """Files that jobs leave in their working directory and that are stored when they end."""

    max_bytes: str = "10G"
    """The most that one job may store. The smallest files come first; an event names the largest that are left out.
    Empty: no limit but the quota of storage."""
    max_files: int = 100_000
    """The most files that one job may store; 0 means no limit."""
    matching_s: float = 10.0
    """The processor time for comparing the files of one job with the patterns of ``--outputs`` or ``.cloudmlignore``.
    Files beyond it are not stored. 0 means no limit."""
    retention_days: int = 0
    """How long outputs are kept after the end of their job. 0: until the job is deleted."""


@dataclass(frozen=True)
class TrainerSettings:
    """Where trainers may come from besides ``fds://``."""

    urls: str = "public"
    """``public``: ``http(s)://`` of the open internet and of ``url_allow``; ``none``: nothing from the web."""
    url_allow: str = ""
    """Hosts, addresses and ranges that may be fetched from although they are private, separated by commas:
    ``packages.example.com,10.1.0.0/16``."""
    size_limit_bytes: int = 2 * GIB
    """Largest trainer from a bucket: it is copied when a job starts."""
    url_size_limit_bytes: int = 512 * MIB
    """Largest trainer from the web, or from a folder of this machine."""
    url_timeout_s: float = 300.0
    """How long fetching one may take in all."""
    url_redirects: int = 5
    """How often a URL may lead on to another one."""
    url_tries: int = 3
    """How often one is fetched where the network fails: a name service, a broken connection, an answer of 5xx."""
    url_retry_s: float = 2.0
    """The pause before the second try; each later one is twice as long."""
    url_parallel: int = 4
    """Trainers fetched at once; others wait for their turn."""
    folders: str = ""
    """Folders of this machine whose files any job may name by ``file://``, separated by commas; empty: none."""


@dataclass(frozen=True)
class GatewaySettings:
    """The gateway in front of model services."""

    host: str = ""
    """Address that services are reached at; empty means ``server.host``. Beyond loopback TLS or ``behind_proxy`` is
    needed here too: callers send tokens."""
    public_host: str = ""
    """The host that ``address`` of a service names; empty means ``host``, and this machine's name where that is every
    address of the machine."""
    tls_cert: str = ""
    """PEM file of the certificate chain that services show; empty means ``server.tls_cert``. When the file changes, the
    new one is used within seconds, and no call is cut."""
    tls_key: str = ""
    """PEM file of the private key of ``gateway.tls_cert``."""
    ports: str = "8600-8999"
    """Ports for services, one each: a range, or several with commas between."""
    ports_share: float = 0.5
    """Largest part of these ports that services of one organisation may have, from 0 to 1. So no organisation takes the
    ports of all others. A service beyond it waits for a port, and its events say so."""
    original_clients: str = "auto"
    """Whether services made over the original wire are open to whoever reaches their port, since the original client
    sends no credentials when it predicts: ``yes``, ``no``, or ``auto``: where the gateway listens on loopback."""
    connections: int = 10_000
    """Connections of callers of all services together; fewer where the system allows fewer open files. For one more,
    the service with the most closes one that is idle; where it has none, the new one is closed."""
    message_limit_bytes: int = 64 * MIB
    """Largest request and largest answer."""
    bodies_bytes: int = GIB
    """Memory for the bodies of all requests under way. A request for which there is no room is refused: 503, or
    ``RESOURCE_EXHAUSTED`` over gRPC."""
    organisation_bodies_bytes: int = 256 * MIB
    """The share of it that the services of one organisation may have."""
    answer_head_bytes: int = 16_384
    """Largest head of a replica's answer; over HTTP/1.1 together with interim answers. A replica that sends more is
    hung up on, as for the next three, and gets no call for a moment."""
    interim_answers: int = 16
    """Most interim answers (1xx) before an answer of a replica."""
    control_frames: int = 1_000
    """Most frames without an answer (PING, SETTINGS, WINDOW_UPDATE, empty DATA) from a replica over HTTP/2. Half are
    forgiven each second, and calls allow more."""
    answer_pause_s: float = 60.0
    """How long a replica's answer that has begun may pause. Streams may pause for ever."""
    replica_settings_s: int = 10
    """How long a replica may take to send its first SETTINGS over HTTP/2. The connection ends then, as for the next
    two."""
    replica_head_s: int = 30
    """How long a head or a frame of a replica that has begun may take to become whole."""
    replica_unread_s: int = 60
    """How long a replica may leave requests unread."""
    replica_window_bytes: int = 8 * MIB
    """Bytes that a replica may send over HTTP/2 before the gateway has read them: for each call and for each
    connection."""
    replica_turn_units: int = 250
    """Work for the replicas of one service in a turn of the event loop, in about microseconds. The rest waits for later
    turns, so that no service slows the calls of others."""
    caller_turn_units: int = 500
    """The same for all callers of all services. A light request is always read."""
    caller_dropped_body_bytes: int = 65_536
    """Largest body over HTTP/1.1 that is read and dropped after a head over its bound. A larger one ends the
    connection."""
    caller_empty_frames: int = 16
    """Most empty CONTINUATION frames that a head of a caller may have over HTTP/2."""
    caller_kept_head_bytes: int = 131_072
    """Most bytes of the heads that a connection of a caller recognises over HTTP/2; it costs that much memory."""
    stream_unread_bytes: int = 262_144
    """Bytes of a stream (``ModelStreamInfer``, reflection, Watch) that one side has not read, from which on the other
    side gets no more window. At most that and a window wait in the gateway, and count to ``bodies_bytes``."""
    timeout_s: float = 300.0
    """How long a call may take that brings no deadline."""
    waiting: int = 1000
    """Calls of one service that may wait while none of its replicas can be reached; one more is refused at once."""
    waiting_s: float = 10.0
    """How long such a call waits."""
    in_flight: int = 2000
    """Calls of one service under way at once; one more is refused at once."""
    attempts: int = 4
    """How many replicas a call is tried at, where that is safe."""
    token_limit_s: float = 366 * 24 * 3600.0
    """How far ahead the end of a token may be."""
    drain_s: float = 60.0
    """How long a gateway that is replaced by another version goes on to answer what it has begun."""
    cors_origins: str = ""
    """Origins whose pages may call services from a browser, such as ``https://app.example.com``: several with commas
    between, or ``*`` for all. Empty: none. Pages need a token as any caller."""
    open_health: bool = False
    """Whether probes may ask for health without a token: ``/v2/health/live``, ``/v2/health/ready``, ``/ping``, and over
    gRPC ``Check``, ``ServerLive`` and ``ServerReady``. Who asks learns which model of a service is not ready."""
    target_in_flight: float = 8.0
    """Calls under way for each replica that autoscaling aims at."""
    scale_down_s: float = 60.0
    """How long there must be fewer calls before autoscaling takes a replica away."""
    quota_wait_s: float = 10.0
    """How long a roll-out waits for room in the organisation's quota for one more replica. Then an old replica goes
    first, and the new one takes its place."""
    load_tries: int = 3
    """How often a replica tries to load its model, and how often a replica that crashes is started, before the release
    is Failed. A release that has answered once is started again without an end."""
    load_retry_s: float = 1.0
    """How long a replica waits between these tries."""
    load_outage_s: float = 60.0
    """How long a replica tries to load its model again where a file is missing or the network fails."""
    kept_releases: int = 5
    """Earlier releases of a service that are kept for `models rollback`."""
    kept_replicas: int = 10
    """Replicas of a service that have ended and whose output `models logs` still shows, the latest; 0 keeps none. Each
    has at most `engine.kept_attempts` times `engine.log_limit_bytes` of it."""


@dataclass(frozen=True)
class SecretSettings:
    """Secrets of organisations: values that jobs get and nobody is shown."""

    key_file: str = ""
    """File with the key that opens the secrets in the database; empty means ``sealing.key`` in the data folder. All
    servers of a database need the same key. Keep a copy, but not beside the backups of the database."""
    size_limit_bytes: int = 512 * 1024
    """Largest secret. It travels as a JSON body, so ``api.body_limit_bytes`` bounds it as well."""
    per_org: int = 500
    """Secrets that one organisation may have."""
    per_job: int = 20
    """Secrets that one job or model service may ask for."""
    per_job_bytes: int = MIB
    """Size of all secrets of one job together: server and supervisor hold them in memory."""


@dataclass(frozen=True)
class Settings:
    """All of it."""

    server: ServerSettings = field(default_factory=ServerSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    keys: KeySettings = field(default_factory=KeySettings)
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    environments: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    trainers: TrainerSettings = field(default_factory=TrainerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    outputs: OutputSettings = field(default_factory=OutputSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)

    @property
    def data_dir(self) -> Path:
        """The data folder, made absolute."""
        configured = self.server.data_dir or os.path.join(  # noqa: PTH118
            os.environ.get("XDG_DATA_HOME") or "~/.local/share", "cloudml"
        )
        return local_path(configured).absolute()

    @property
    def database_url(self) -> str:
        """The database, by default the one in the data folder."""
        return self.server.database_url or f"sqlite:///{self.data_dir / 'state.db'}"

    @property
    def sealing_key_file(self) -> Path:
        """The file of the sealing key, made absolute."""
        if self.secrets.key_file:
            return local_path(self.secrets.key_file).absolute()
        return self.data_dir / "sealing.key"

    @property
    def environments_home(self) -> Path:
        """The folder of layers and caches, made absolute."""
        if self.environments.home:
            return local_path(self.environments.home).absolute()
        return self.data_dir / "environments"

    @property
    def gateway_tls(self) -> tuple[str, str]:
        """Certificate and key of services; both empty without TLS."""
        chosen = self.gateway if self.gateway.tls_cert or self.gateway.tls_key else self.server
        return chosen.tls_cert, chosen.tls_key

    @property
    def gateway_host(self) -> str:
        """Where the gateway listens."""
        return self.gateway.host or self.server.host

    @property
    def public_gateway_host(self) -> str:
        """What the address of a service names."""
        host = self.gateway.public_host or self.gateway_host
        return os.uname().nodename if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not listened on

    @property
    def opens_original_services(self) -> bool:
        """Whether services of the original wire are open: see ``gateway.original_clients``."""
        if self.gateway.original_clients == "auto":
            return is_loopback(self.gateway_host)
        return self.gateway.original_clients == "yes"

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of Python to offer although they are not installed."""
        return tuple(self.environments.pythons.replace(",", " ").split())

    @property
    def runtimes_dir(self) -> Path:
        """The operator's folder of runtimes."""
        if self.environments.runtimes_dir:
            return local_path(self.environments.runtimes_dir).absolute()
        return self.data_dir / "runtimes"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ports_of(text: str) -> tuple[range, ...]:
    """Ranges of ports such as ``8600-8999, 9100``.

    Raises:
        ValueError: A word is none; it is the message.
    """
    found = []
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        numbers = [first, last if dash else first]
        if not all(each.isascii() and each.isdigit() and 0 < int(each) < 65_536 for each in numbers):
            raise ValueError(word)
        found.append(range(int(numbers[0]), int(numbers[1]) + 1))
        if not found[-1]:
            raise ValueError(word)
    return tuple(found)
