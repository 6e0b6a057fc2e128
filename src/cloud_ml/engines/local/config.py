"""What the server tells the spawner once, and every supervisor inherits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Network:
    """What jobs see of the network: ``fence`` is ``tenant``, ``host`` or ``none``, the rest is
    about the first.

    ``instance`` names this engine on its machine, ``allow`` is what may be reached although it is
    private. With ``none``, ``no_gangs`` says why the tasks of a gang cannot have a network that
    they share with nobody; empty if they can. ``task_ports`` are for tasks, such as
    ``20000-29999``: the kernel gives them to no connection.
    """

    fence: str = "host"
    instance: str = ""
    allow: str = ""
    range: str = ""
    dns: tuple[str, ...] = ()
    connections: int = 4096
    idle_s: float = 3600.0
    no_gangs: str = ""
    task_ports: str = ""

    @property
    def kept_in_etc(self) -> tuple[str, ...]:
        """Files of ``/etc`` that are not the machine's: jobs have name servers of their own."""
        return ("resolv.conf",) if self.fence == "tenant" else ()


@dataclass(frozen=True)
class WarmPoolLimits:
    """Interpreters that have imported a framework ahead: how many, and for each its memory, wait
    and import.
    """

    most: int = 0
    memory_bytes: int = 2 * 2**30
    idle_s: float = 600.0
    import_s: float = 120.0


@dataclass(frozen=True)
class LocalConfig:
    """How gangs run on this machine. Found out by the server (``probe``), fixed for the spawner's
    life.

    ``bwrap`` is empty without a sandbox, ``init`` where bubblewrap's own first process serves, and
    ``seat`` where a fork of the supervisor becomes the command; ``landlock`` is the version of it
    that is used, 0 for none; ``cgroups`` describes the hierarchy and is empty without limits;
    ``tenant_uid_base`` is 0 when jobs run as the server's own user. ``pythons`` are the
    interpreters of other versions than ``python``'s: version such as ``3.12`` to program.
    ``gang_format`` is the form in which gangs are told: a spawner that knows another is replaced,
    and its supervisors run on.
    """

    version: str
    root: str
    environments_home: str
    runtimes_dir: str
    uv: str
    python: str
    pythons: Mapping[str, str] = field(default_factory=dict)
    bwrap: str = ""
    init: str = ""
    seat: str = ""
    seccomp: bool = True
    landlock: int = 0
    network: Network = field(default_factory=Network)
    cgroups: Mapping[str, str] = field(default_factory=dict)
    tenant_uid_base: int = 0
    node: str = "local"
    processor: str = ""
    tool_timeout_s: float = 1800.0
    download_tries: int = 3
    tool_memory_bytes: int = 2**30
    tool_disk_bytes: int = 20 * 2**30
    log_limit_bytes: int = 64 * 2**20
    kept_attempts: int = 5
    stop_grace_s: float = 10.0
    usage_period_s: float = 5.0
    thrash_s: float = 30.0
    max_processes: int = 4096
    default_memory_bytes: int = 0
    default_disk_bytes: int = 0
    kept_disk_bytes: int = 0
    disk_reserve_bytes: int = 0
    disk_period_s: float = 5.0
    max_files: int = 0
    project_id_base: int = 0
    zygotes: WarmPoolLimits = field(default_factory=WarmPoolLimits)
    gang_format: int = 7

    @property
    def zygotes_fit(self) -> bool:
        """Whether every fence is there that an interpreter needs that waits for its job."""
        return bool(self.bwrap and self.init and self.cgroups and self.tenant_uid_base)

    def user(self, tenant: int) -> tuple[int, int] | None:
        """The (uid, gid) of a tenant's jobs, or ``None`` for the server's own."""
        number = self.tenant_uid_base + tenant
        return (number, number) if self.tenant_uid_base else None

    @property
    def etc(self) -> Path:
        """The folder that jobs see as ``/etc``."""
        return Path(self.root) / "etc"
