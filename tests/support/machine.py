"""Real local engines for tests: made in a folder, and taken away with everything they started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.ledger import Ledger, is_alive
from cloud_ml.engines.local.network import TENANT, tenants
from cloud_ml.engines.local.network.pins import Pins
from cloud_ml.process_handles import has_open

_GONE_S = 60.0


def end_engine(config: LocalConfig) -> None:
    """Kill the spawner and the supervisors of an engine, by process id, and remove its control
    groups.
    """
    root = Path(config.root)
    if (pid := spawner_pid(root)) is not None:
        _kill(pid)
    ledger = Ledger(root)
    for uid in ledger.known_jobs():
        for attempt in ledger.attempts(uid):
            gate = ledger.gate(GangKey(uid, attempt))
            if gate is not None and gate.claimed and is_alive(gate):
                _kill(gate.pid)
    hierarchy = cgroups.restore(dict(config.cgroups))
    if hierarchy is not None:
        deadline = time.monotonic() + _GONE_S
        while names := [name for name in hierarchy.names() if not _removed(hierarchy.group(name))]:
            assert time.monotonic() < deadline, f"control groups that cannot be removed: {names}"
            time.sleep(0.01)  # who was killed is in its group until the kernel is done with it
        hierarchy.remove()
    if config.network.fence == TENANT:
        tenants.clear(Pins(config.network.instance))


def _removed(group: cgroups.Group) -> bool:
    group.kill()
    return group.remove()


def end_gateway(folder: Path) -> None:
    """Kill the gateway of a data folder, by process id."""
    if (pid := _holder(folder / "gateway.lock")) is not None:
        _kill(pid)


def spawner_pid(root: Path) -> int | None:
    """The process id of the spawner of an engine's folder, if one runs."""
    return _holder(root / "spawner.lock")


def _holder(lock: Path) -> int | None:
    """The process that a lock file names, if it has the file open: the number of an ended one
    may be another's now.
    """
    try:
        pid, status = int(lock.read_text()), lock.stat()
    except (OSError, ValueError):
        return None
    return pid if has_open(pid, status) else None


def _kill(pid: int) -> None:
    """Kill, and wait until it does nothing any more."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        over = os.pidfd_open(pid)
        try:
            select.select([over], [], [], _GONE_S)
        finally:
            os.close(over)
