"""What this machine gives: sandbox, limits, users. Found out once, when the server starts."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cloud_ml
from cloud_ml.engines.local import cgroups, init, sandbox, seccomp
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.exposure import passable
from cloud_ml.errors import Unavailable
from cloud_ml.models.common import memory_bytes
from cloud_ml.settings import EngineSettings


@dataclass(frozen=True)
class Findings:
    """The configuration that fits this machine, and sentences about what is missing."""

    config: LocalConfig
    missing: Sequence[str]


def probe(
    settings: EngineSettings,
    *,
    root: Path,
    environments_home: Path,
    runtimes_dir: Path,
    uv: Path,
    pythons: Mapping[str, str] | None = None,
) -> Findings:
    """Find out how jobs can be run here. ``pythons`` are programs of other versions, by their version.

    Raises:
        Unavailable: A fence is required by the settings and cannot be had.
    """
    missing: list[str] = []
    as_root = os.geteuid() == 0
    user = (settings.tenant_uid_base, settings.tenant_uid_base) if as_root else None
    bwrap, why = sandbox.find_bwrap(user) if settings.sandbox != "none" else ("", "jobs are not sandboxed: by setting")
    _note(why, missing, required=settings.sandbox == "require")
    first, why = init.find(root, bwrap) if bwrap else ("", "")
    _note(why, missing, required=False)
    seat = init.find_seat(root) if first else ""
    instance = "cloudml-" + hashlib.sha256(str(root).encode()).hexdigest()[:12]
    hierarchy, why = cgroups.find(instance) if settings.cgroups != "none" else (None, "limits are off: by setting")
    _note(why, missing, required=settings.cgroups == "require")
    needed = (root, environments_home, Path(sys.base_prefix))
    closed = next((str(folder) for folder in needed if not passable(folder)), "")
    switch_user = as_root and (bool(bwrap) or not closed)
    if as_root and not switch_user:
        missing.append(
            f"jobs run as root: without bubblewrap a job's own user could not reach {closed}; install bubblewrap, or "
            "use folders that other users may pass through"
        )
    if bwrap and seccomp.program() is None:
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
            if bwrap or not switch_user or passable(Path(path).resolve().parent)
        },
        bwrap=bwrap,
        init=first,
        seat=seat,
        cgroups=hierarchy.description() if hierarchy else {},
        tenant_uid_base=settings.tenant_uid_base if switch_user else 0,
        node=socket.gethostname(),
        tool_timeout_s=settings.tool_timeout_s,
        log_limit_bytes=settings.log_limit_bytes,
        usage_period_s=settings.usage_period_s,
        thrash_s=settings.thrash_s,
        max_processes=settings.max_processes,
        default_memory_bytes=memory_bytes(settings.default_memory) if settings.default_memory else 0,
        default_disk_bytes=memory_bytes(settings.default_disk) if settings.default_disk else 0,
        disk_reserve_bytes=memory_bytes(settings.disk_reserve) if settings.disk_reserve else 0,
        disk_period_s=settings.disk_period_s,
    )
    return Findings(config, missing)


def in_force(config: LocalConfig, network: str) -> dict[str, str]:
    """Each fence and what stands there, for people."""
    version = config.cgroups.get("version")
    return {
        "sandbox": "bubblewrap: own pid, mount, ipc, uts and user namespaces" if config.bwrap else "none",
        "system_calls": "filtered" if config.bwrap and seccomp.program() is not None else "all",
        "limits": f"cgroup v{version}: memory, cpu, processes" if version else "memory, by looking every second",
        "user": f"{config.tenant_uid_base} + number of the organisation" if config.tenant_uid_base else _own_user(),
        "network": "of the machine" if network == "host" or not config.bwrap else "loopback only",
    }


def _own_user() -> str:
    return "the server's own" + (" (root)" if os.geteuid() == 0 else "")


def _note(why: str, missing: list[str], *, required: bool) -> None:
    if why and required:
        raise Unavailable(why)
    if why:
        missing.append(why)
