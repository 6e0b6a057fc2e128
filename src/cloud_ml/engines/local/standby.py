"""Supervisors that are there before their gang: forked, warm, and with a seat in a control group.

A fork, the first touch of its memory and the joining of a group take some 20 ms. The spawner has that
behind it when a gang comes: one supervisor waits, and is told its gang through a pipe. One that is not
told before the spawner goes reads the end of the pipe, and goes too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.engines.base import Gang
from cloud_ml.engines.local import launch
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.exposure import Exposure
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.stage import Ahead
from cloud_ml.engines.local.supervisor import Supervisor
from cloud_ml.environments import pipconfig
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.runtime import BadRuntime
from cloud_ml.models import codec


@dataclass(frozen=True)
class Standby:
    """The spawner's side of a supervisor without a gang; ``groups`` are the gang's when it has one."""

    pid: int
    orders: int
    groups: list[Group]

    def tell(self, gang: dict[str, Any]) -> bool:
        """Hand over the gang, as JSON values; false if nobody waits there any more."""
        try:
            with os.fdopen(self.orders, "w", encoding="ascii") as orders:
                json.dump(gang, orders)
                orders.write("\n")
        except BrokenPipeError:
            return False
        return True

    def dismiss(self) -> None:
        """Let it go, and wait until it is gone with its seat."""
        os.close(self.orders)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


_GARBAGE = 20_000
"""A supervisor makes hardly any: looking for it fifty times in a life of 10 ms is a tenth of that."""


def stand_by(orders: int, config: LocalConfig, groups: Sequence[Group]) -> None:
    """In the forked child: get ready, wait for a gang, and run it to its end."""
    gc.set_threshold(_GARBAGE)
    ahead = _settle(config, groups)
    if not _told(orders):
        rehearse(config)
    with os.fdopen(orders, "r", encoding="ascii") as words:
        line = words.readline()
    if line.endswith("\n"):
        gang = codec.decode(Gang, json.loads(line), ignore_unknown=True)
        Supervisor(gang, config, Ledger(Path(config.root)), groups, ahead).run()
    elif ahead.seat is not None:
        ahead.seat.leave()


def rehearse(config: LocalConfig) -> None:
    """Do what every supervisor does first, without a gang: fills caches, and touches the memory it will need."""
    with contextlib.suppress(BadRuntime):  # each attempt that needs the catalogue says so
        Catalog.load(Path(config.runtimes_dir), tuple(config.pythons)).digest  # noqa: B018
    pipconfig.read()
    gang = ObservedGang("rehearsal", 1, GangState.STAGING, processes=(ObservedProcess("master", 0, running=True),))
    codec.decode(ObservedGang, json.loads(json.dumps(codec.encode(gang))), ignore_unknown=True)
    launch.tenant_fence(config, user=None)


def _settle(config: LocalConfig, groups: Sequence[Group]) -> Ahead:
    """Take a mount table and, in a control group, a seat; whatever cannot be had ahead is not missed yet."""
    exposure = Exposure(needed=config.tenant_uid_base > 0)
    if not groups:  # nothing to join, so nothing to gain
        return Ahead(exposure)
    try:
        exposure.open()  # a seat sees only what is mounted in a table that it shares
        fence = launch.tenant_fence(config, user=None)
        return Ahead(exposure, launch.Seat(fence, groups[0]))
    except OSError:
        return Ahead(exposure)


def _told(orders: int) -> bool:
    return bool(select.select([orders], [], [], 0)[0])
