"""What a gang leaves behind when its supervisor dies: found and ended before anybody calls it over.

Bubblewrap and direct children die with the supervisor by the kernel's doing, but not in the same
instant, and without a sandbox grandchildren stay. The next attempt must not start beside them.
"""

from __future__ import annotations

import json
import os
import signal

from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.processes import proctree
from cloud_ml.engines.local.supervisor.attempt_folders import HOSTS, WRITABLE
from cloud_ml.environments.removing import remove


def group_names(ledger: Ledger, key: GangKey) -> list[str]:
    """Names of the control groups of a gang, as far as they were written down."""
    gate = ledger.gate(key)
    if gate is not None and gate.groups:
        return list(gate.groups)
    try:  # where a supervisor of an older version has them
        names = json.loads((ledger.attempt_folder(key) / "groups").read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def clear(ledger: Ledger, key: GangKey) -> None:
    """Remove what nobody looks at after the end, as the supervisor would have done; for a gang
    that is over.
    """
    for name in (*WRITABLE, HOSTS):
        remove(ledger.attempt_folder(key) / name)


def end(ledger: Ledger, config: LocalConfig, key: GangKey) -> bool:
    """Kill what is left of a gang without a supervisor; true when nothing was left any more.

    By control group where there is one, else by the mark in the processes' first environment.
    """
    hierarchy = cgroups.restore(dict(config.cgroups))
    names = group_names(ledger, key) if hierarchy else []
    if hierarchy and names:
        return not sum(hierarchy.group(name).kill() for name in names)
    left = [pid for pid in proctree.find_marked(f"CLOUDML_GANG={key}") if pid != os.getpid()]
    for pid in left:
        proctree.send(pid, signal.SIGKILL)
    return not left
