"""The engine that runs jobs, their environments and their code."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.settings.gateway import ports_of
from cloud_ml.settings.sizes import GIB, MIB


@dataclass(frozen=True)
class EngineSettings:
    """How jobs run on this machine."""

    sandbox: str = "auto"
    """``auto``: bubblewrap where it works, else Landlock where the kernel has it; ``require``:
    refuse to run without bubblewrap; ``landlock``: never bubblewrap; ``none``: no fence at all.
    """
    cgroups: str = "auto"
    """``auto``, ``require`` or ``none``, likewise for enforced limits."""
    network: str = "auto"
    """Network of jobs. ``tenant``: a network of each organisation's own, with a way out to the open
    internet, or the server does not start; ``host``: the machine's, all of it; ``none``: a
    loopback of their own, which the tasks of a job share (this takes root); ``auto``: ``tenant``
    where this machine gives it, else ``host``, and the server says so."""
    network_allow: str = ""
    """What jobs may reach although it is private, separated by commas:
    ``10.1.0.0/16, 10.2.3.4:5432``. What this machine itself serves is only opened by an address
    of its with a port.
    """
    network_range: str = ""
    """Addresses for the networks of organisations, two for each that has jobs; empty: a range of
    /20 that no route of this machine uses.
    """
    network_dns: str = ""
    """Name servers of jobs, separated by commas; empty: this machine's, as far as they are not
    on its loopback.
    """
    network_connections: int = 4096
    """Connections that an organisation's jobs may have to the outside at once: the machine keeps
    all in one table.
    """
    network_idle_s: float = 3600.0
    """How long the network of an organisation is kept without a job; the next one makes it anew
    in some 30 ms.
    """
    stop_grace_s: float = 10.0
    """Between SIGTERM and SIGKILL when a job is stopped that names no grace time of its own."""
    start_timeout_s: float = 3600.0
    """How long fetching and installing may take before the attempt fails."""
    tool_timeout_s: float = 1800.0
    """How long one run of an installer or a package build may take."""
    download_tries: int = 3
    """How often packages are downloaded where the network fails: a name service, a broken
    connection, an error 5xx.
    """
    tool_memory: str = "1G"
    """Memory of installers and package builds that run for a job. A job with a higher limit
    gives them its own; for a job without a limit they have none.
    """
    tool_disk: str = "20G"
    """What one run of an installer or a package build may write to the disk; empty: no limit."""
    log_limit_bytes: int = 64 * MIB
    """Most that is kept of one task's output; past it the middle is dropped and marked."""
    kept_attempts: int = 5
    """Attempts of a replica of a model service whose output is kept, the latest: it starts again
    each time it ends.
    """
    usage_period_s: float = 5.0
    """How often cpu and memory of a task are noted."""
    max_processes: int = 4096
    """Processes and threads of one task. It is less where all jobs together
    (``controller.max_running_jobs``) could take more than half of what the kernel can have
    (``kernel.pid_max``): see ``cloudml doctor isolation``.
    """
    tasks_per_job: int = 64
    """Most tasks that one job may have. Of an array, so many may run at a time."""
    tasks_per_array: int = 1000
    """Most tasks that an array may have."""
    ports: str = "20000-29999"
    """Ports of jobs of several tasks: one for each task, up to four with Dask and MPI. Each is one
    job's until it has ended.
    """
    thrash_s: float = 30.0
    """A task at its memory limit without progress for so long counts as out of memory."""
    tenant_uid_base: int = 1_600_000
    """As root, jobs of organisation n run as user ``tenant_uid_base + n``, and the gateway as
    ``tenant_uid_base``.
    """
    default_memory: str = ""
    """Memory limit of jobs and replicas that name none, such as ``2G``; empty means none. Quotas
    count it.
    """
    default_cpu: str = ""
    """Cores that quotas count for jobs and replicas that name no limit of processors, such as
    ``1``, and their share while others want the processors, too. They may use more when there is
    more. Empty: none, so a quota of processors refuses them.
    """
    cpu_overcommit: float = 0.0
    """How many times the machine's processors may be promised to jobs and replicas by their
    limits; 0: any number of times. Memory is never promised twice.
    """
    default_disk: str = "auto"
    """Disk limit of jobs that name none, such as ``20G``. ``auto``: a quarter of what is free
    when the server starts, for jobs and replicas made from then on; ``none`` or empty: no limit.
    ``cloudml doctor`` prints it.
    """
    kept_disk: str = "auto"
    """What the working folders and logs of an organisation's ended jobs may keep on the server's
    disk together, such as ``100G``. Beyond it, further jobs of the organisation fail at their
    start until some are deleted. ``auto``: as much as is free then, and 1G at least; ``none`` or
    empty: no limit.
    """
    disk_reserve: str = "512M"
    """What must stay free on the server's disk. When files of jobs grow and there is less, a job
    is ended and its working folder removed: the one that is furthest beyond an equal share.
    Empty: nothing.
    """
    disk_period_s: float = 5.0
    """How often the files of a job are measured, where it has a limit or the disk is nearly
    full.
    """
    project_id_base: int = 0
    """Where the data folder is on XFS or ext4 with project quotas (mounted with ``prjquota``), the
    kernel holds jobs to their disk limits. Jobs have projects with this number and higher ones,
    such as ``1600000000``, which nothing else may use. 0: limits are only measured. It takes a
    server that is root, and bubblewrap.
    """
    max_files: int = 1_000_000
    """Files and folders that a job may keep in its own folders; buckets are not counted. 0 means
    no limit.
    """
    zygotes: int = 0
    """Most interpreters that wait with a framework imported, each for one job of one
    organisation and for runtimes that have ``preload``. 0: none. They need bubblewrap, control
    groups, a C compiler and a server that is root.
    """
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
    """Folder of layers and caches; empty means ``environments`` inside the data folder. May be
    shared by servers of one user on one machine.
    """
    runtimes_dir: str = ""
    """Folder with further runtimes (TOML files); empty means ``runtimes`` inside the data
    folder.
    """
    pythons: str = ""
    """Versions of Python that are offered beside those found on this machine, such as
    ``3.13, 3.14``: uv fetches one when it is first needed.
    """
    layers_limit_bytes: int = 50 * GIB
    """Installed packages that are kept, in bytes; above it, those that no living job uses go,
    the longest unused first. 0 means no limit.
    """
    tidy_s: float = 600.0
    """How often that limit is looked at."""


@dataclass(frozen=True)
class TrainerSettings:
    """Where trainers may come from besides ``fds://``."""

    urls: str = "public"
    """``public``: ``http(s)://`` of the open internet and of ``url_allow``; ``none``: nothing
    from the web.
    """
    url_allow: str = ""
    """Hosts, addresses and ranges that may be fetched from although they are private, separated by
    commas:
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
    """How often one is fetched where the network fails: a name service, a broken connection, an
    answer of 5xx.
    """
    url_retry_s: float = 2.0
    """The pause before the second try; each later one is twice as long."""
    url_parallel: int = 4
    """Trainers fetched at once; others wait for their turn."""
    git: bool = True
    """Whether jobs keep the commit, branch, remote and changes of their code's folder. Without, what a
    client sends of them is left out.
    """
    folders: str = ""
    """Folders of this machine whose files any job may name by ``file://``, separated by commas;
    empty: none.
    """


def most_tasks(engine: EngineSettings) -> int:
    """How many tasks a job may have: no more than there are ports, or it would wait for ever."""
    return min(engine.tasks_per_job, sum(map(len, ports_of(engine.ports))))
