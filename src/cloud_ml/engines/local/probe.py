"""What this machine gives: sandbox, limits, users. Found out once, when the server starts."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import shutil
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cloud_ml
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits
from cloud_ml.engines.local import cgroups, init
from cloud_ml.engines.local.cleanup.owners import owner_of
from cloud_ml.engines.local.config import LocalConfig, Network, WarmPoolLimits
from cloud_ml.engines.local.disk.kept_disk import AS_MUCH_AS_IS_FREE, NO_LIMIT
from cloud_ml.engines.local.disk.project_ids import unusable
from cloud_ml.engines.local.environments import executable_disk
from cloud_ml.engines.local.isolation import landlock, sandbox, seccomp
from cloud_ml.engines.local.isolation.exposure import passable
from cloud_ml.engines.local.network import NONE, TENANT, finding
from cloud_ml.errors import Unavailable
from cloud_ml.models.common import cpu_millis, memory_bytes
from cloud_ml.settings import EngineSettings
from cloud_ml.settings.sizes import MIB

_MOST_LINES, _LONGEST_MODEL = 100, 100
"""Of what the kernel says of processors."""

_INSTEAD = (
    "; Landlock replaces it: files, signals and abstract sockets are isolated, shared memory is not"
)
_INSTEAD_FILES = "; Landlock replaces it, with this kernel for files only"
_NO_ZYGOTES = (
    "no interpreter waits with a framework imported (engine.zygotes): that takes a server that is "
    "root, bubblewrap, a C compiler and control groups"
)
_NO_SIZE = ("", "none", "auto")
_FREE_PART = 4
"""A job that names no disk limit may take this part of what is free."""
_NETWORKS = {
    TENANT: "of each organisation's own: outward to the open internet, not to this machine or "
    "private ranges",
    NONE: "loopback only",
}


@dataclass(frozen=True)
class Findings:
    """The configuration that fits this machine, and sentences about what is missing."""

    config: LocalConfig
    missing: Sequence[str]
    defaults: DefaultLimits = NO_DEFAULT_LIMITS
    """For new jobs. The disk limit may depend on what is free; it is not in the configuration,
    since a spawner whose configuration changes is replaced.
    """
    cpu_overcommit: float = 0.0


def probe(
    settings: EngineSettings,
    *,
    root: Path,
    environments_home: Path,
    runtimes_dir: Path,
    uv: Path,
    pythons: Mapping[str, str] | None = None,
) -> Findings:
    """Find out how jobs can be run here. ``pythons`` are programs of other versions, by their
    version.

    Raises:
        Unavailable: A fence is required by the settings and cannot be had.
    """
    missing: list[str] = []
    fences = _find_fences(settings, root, missing)
    hierarchy, network = _find_limits(settings, root, missing, sandboxed=bool(fences.bwrap))
    needed = (root, environments_home, Path(sys.base_prefix))
    switch_user = _may_switch_user(fences.bwrap, needed, missing)
    _note(executable_disk.refusal(environments_home), missing, required=False)
    if (fences.bwrap or fences.landlock) and seccomp.program() is None:
        missing.append(f"system calls are not filtered: no table for {os.uname().machine}")
    config = LocalConfig(
        version=cloud_ml.__version__,
        root=str(root),
        environments_home=str(environments_home),
        runtimes_dir=str(runtimes_dir),
        uv=str(uv),
        python=sys.executable,
        pythons={
            version: path
            for version, path in (pythons or {}).items()
            if fences.bwrap or not switch_user or passable(Path(path).resolve().parent)
        },
        bwrap=fences.bwrap,
        init=fences.init,
        seat=fences.seat,
        landlock=fences.landlock,
        network=network,
        cgroups=hierarchy.description() if hierarchy else {},
        tenant_uid_base=settings.tenant_uid_base if switch_user else 0,
        node=socket.gethostname(),
        processor=processor_name(),
        tool_timeout_s=settings.tool_timeout_s,
        download_tries=settings.download_tries,
        tool_memory_bytes=memory_bytes(settings.tool_memory),
        tool_disk_bytes=_bytes_or_none(settings.tool_disk),
        log_limit_bytes=settings.log_limit_bytes,
        kept_attempts=settings.kept_attempts,
        stop_grace_s=settings.stop_grace_s,
        usage_period_s=settings.usage_period_s,
        thrash_s=settings.thrash_s,
        max_processes=settings.max_processes,
        default_memory_bytes=_bytes_or_none(settings.default_memory),
        default_disk_bytes=_bytes_or_none(settings.default_disk),
        kept_disk_bytes=kept_disk_bytes(settings),
        disk_reserve_bytes=_bytes_or_none(settings.disk_reserve),
        disk_period_s=settings.disk_period_s,
        max_files=settings.max_files,
        project_id_base=_project_id_base(
            settings, root, missing, own_users=switch_user and bool(fences.bwrap)
        ),
        zygotes=WarmPoolLimits(
            settings.zygotes,
            memory_bytes(settings.zygote_memory),
            settings.zygote_idle_s,
            settings.zygote_import_s,
        ),
    )
    if settings.zygotes and not config.zygotes_fit:
        missing.append(_NO_ZYGOTES)
        config = replace(config, zygotes=replace(config.zygotes, most=0))
    defaults = DefaultLimits(
        disk_bytes=default_disk_bytes(settings, root),
        memory_bytes=config.default_memory_bytes,
        cpu_millis=cpu_millis(settings.default_cpu) if settings.default_cpu else 0,
    )
    return Findings(config, missing, defaults, settings.cpu_overcommit)


@dataclass(frozen=True)
class _Fences:
    """Programs and kernel features that isolate a job; empty where there is none."""

    bwrap: str
    landlock: int
    init: str
    seat: str


def _find_fences(settings: EngineSettings, root: Path, missing: list[str]) -> _Fences:
    as_root = os.geteuid() == 0
    user = (settings.tenant_uid_base, settings.tenant_uid_base) if as_root else None
    bwrap, why = _sandbox(settings.sandbox, user)
    inner = _landlock(bwrap) if settings.sandbox != "none" else 0
    if inner and not bwrap:
        why += _INSTEAD if inner >= landlock.SCOPES_SINCE else _INSTEAD_FILES
    _note(why, missing, required=settings.sandbox == "require")
    first, why = init.find(root, bwrap) if bwrap else ("", "")
    _note(why, missing, required=False)
    seat = init.find_seat(root) if first else ""
    return _Fences(bwrap, inner, first, seat)


def _find_limits(
    settings: EngineSettings, root: Path, missing: list[str], *, sandboxed: bool
) -> tuple[cgroups.Hierarchy | None, Network]:
    """The control groups and the networks that jobs of this server have."""
    owner = owner_of(str(root))
    hierarchy: cgroups.Hierarchy | None = None
    why = "limits are off: by setting"
    if settings.cgroups != "none":
        hierarchy, why = cgroups.find(f"cloudml-{owner.instance}", owner=owner)
    _note(why, missing, required=settings.cgroups == "require")
    network, why, lacking = finding.find(settings, owner.instance, sandboxed=sandboxed)
    _note(why, missing, required=settings.network == TENANT)
    missing += lacking
    return hierarchy, network


def _may_switch_user(bwrap: str, needed: Sequence[Path], missing: list[str]) -> bool:
    """Whether jobs run as users of their organisations.

    Only root may switch. Bubblewrap mounts what a job needs; without it, the job's user has to
    pass through the folders as they are.
    """
    if os.geteuid() != 0:
        return False
    closed = next((str(folder) for folder in needed if not passable(folder)), "")
    if bwrap or not closed:
        return True
    missing.append(
        f"jobs run as root: without bubblewrap a job's own user could not reach {closed}; "
        "install bubblewrap, or use folders that other users may pass through"
    )
    return False


def _project_id_base(
    settings: EngineSettings, root: Path, missing: list[str], *, own_users: bool
) -> int:
    """The first project id of disk limits that the kernel holds; 0 where it cannot."""
    why = unusable(root, settings.project_id_base, own_users=own_users)
    if not why:
        return settings.project_id_base
    if settings.project_id_base:
        missing.append(
            f"disk limits are measured, and the kernel does not hold jobs to them: {why}"
        )
    return 0


def processor_name() -> str:
    """The model of this machine's processor, as Linux has it; else its architecture."""
    with (
        contextlib.suppress(OSError),
        Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file,
    ):
        for line in itertools.islice(file, _MOST_LINES):
            name, _, value = line.partition(":")
            if name.strip() == "model name" and (model := " ".join(value.split())):
                return model[:_LONGEST_MODEL]
    return platform.machine()


def _bytes_or_none(size: str) -> int:
    """0 for no limit."""
    return 0 if size in _NO_SIZE else memory_bytes(size)


def default_disk_bytes(settings: EngineSettings, folder: Path) -> int:
    """The disk limit of jobs that name none; 0 for no limit. ``folder`` is where they run, or
    will be made.
    """
    if settings.default_disk != "auto":
        return 0 if settings.default_disk in _NO_SIZE else memory_bytes(settings.default_disk)
    there = next(
        (each for each in (folder, *folder.absolute().parents) if each.exists()), Path("/")
    )
    free = shutil.disk_usage(there).free // _FREE_PART
    return max(MIB, free - free % MIB)


def kept_disk_bytes(settings: EngineSettings) -> int:
    """What an organisation's ended jobs may keep, as ``KeptDisk.excess`` takes it."""
    if settings.kept_disk == "auto":
        return AS_MUCH_AS_IS_FREE
    return NO_LIMIT if settings.kept_disk in _NO_SIZE else memory_bytes(settings.kept_disk)


def in_force(config: LocalConfig) -> dict[str, str]:
    """Each fence and what stands there, for people."""
    version = config.cgroups.get("version")
    fenced = bool(config.bwrap or config.landlock)
    return {
        "sandbox": _fence(config),
        "system_calls": "filtered" if fenced and seccomp.program() is not None else "all",
        "limits": f"cgroup v{version}: memory, cpu, processes"
        if version
        else "memory, by looking every second",
        "user": f"{config.tenant_uid_base} + number of the organisation"
        if config.tenant_uid_base
        else _own_user(),
        "network": _NETWORKS.get(config.network.fence, "of the machine")
        if config.bwrap
        else "of the machine",
    }


def _fence(config: LocalConfig) -> str:
    if config.bwrap:
        return "bubblewrap: own pid, mount, ipc, uts and user namespaces"
    if not config.landlock:
        return "none"
    return "Landlock: files" + (
        ", signals, sockets" if config.landlock >= landlock.SCOPES_SINCE else ""
    )


def _sandbox(setting: str, user: tuple[int, int] | None) -> tuple[str, str]:
    """The path of bubblewrap, or an empty one and why not."""
    if setting in ("none", "landlock"):
        return "", "jobs are not sandboxed: by setting"
    return sandbox.find_bwrap(user)


def _landlock(bwrap: str) -> int:
    """The version to use; none where bubblewrap must gain privileges, which who is restricted
    cannot.
    """
    set_user_id = bool(bwrap) and bool(os.stat(bwrap).st_mode & stat.S_ISUID)  # noqa: PTH116
    return 0 if set_user_id else landlock.version()


def _own_user() -> str:
    return "the server's own" + (" (root)" if os.geteuid() == 0 else "")


def _note(why: str, missing: list[str], *, required: bool) -> None:
    if why and required:
        raise Unavailable(why)
    if why:
        missing.append(why)
