"""Supervisors that are there before their gang: forked, warm, and with a process in a control
group.

A fork, the first touch of its memory and the joining of a group take some 20 ms. The spawner has
that behind it when a gang comes: one supervisor waits, and is told its gang over a socket. When a
gang has ended in the usual way, its supervisor says so and waits for another; it never has two. One
whose spawner goes reads the end of the socket, and goes too when it has nothing to do.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import resource
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cloud_ml import failpoints
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import TENANT
from cloud_ml.engines.local.network.tenants import Networks
from cloud_ml.engines.local.processes import launch
from cloud_ml.engines.local.processes.readiness import find_readable
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.supervisor.staged import Ahead
from cloud_ml.engines.local.supervisor.supervisor import Supervisor
from cloud_ml.engines.local.warm_pool.interpreter import WarmInterpreter
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.runtime import BadRuntime
from cloud_ml.models import codec

_GARBAGE = 20_000
"""A supervisor makes hardly any: looking for it fifty times in a life of 10 ms is a tenth of
that.
"""
DONE, READY = b"done", b"ready"
_SEATS_AHEAD = 16
"""So many tasks of a gang have their processes before it is staged, which may take minutes. The
others get theirs when it is.
"""
_MOST_GANGS = 200
"""What a supervisor may gather over its gangs ends with it then."""


@dataclass
class Supervision:
    """The spawner's side of a supervisor. Without ``key`` it waits; ``groups`` are its gang's when
    it has one.

    ``document`` is the gang that it was told last. ``interpreter_key`` is the key of the order of
    the interpreter that it keeps, ``ready`` once that has imported; one that is ``leaving`` is not
    spoken to any more.
    """

    pid: int
    line: socket.socket
    groups: list[Group] = field(default_factory=list)
    key: GangKey | None = None
    tenant: int = 0
    served: int = 0
    interpreter_key: str = ""
    ready: bool = False
    leaving: bool = False
    document: dict[str, Any] = field(default_factory=dict)
    _received: bytes = b""

    @property
    def worn(self) -> bool:
        """Whether it has served so long that a fresh one should follow."""
        return self.served >= _MOST_GANGS

    def tell(self, key: GangKey, document: dict[str, Any], more: Sequence[Group] = ()) -> bool:
        """Hand over the gang, as JSON values, with control groups for its further tasks; false if
        nobody waits there any more.
        """
        self.key, self.document, self.groups = key, document, [*self.groups, *more]
        self.tenant, self.served = document["tenant"], self.served + 1
        return self._say({"gang": document, "more_groups": [group.name for group in more]})

    def settle(self, groups: list[Group]) -> bool:
        """Have it wait for the next gang with these groups; false if it is gone."""
        self.key, self.groups = None, groups
        return self._say({"groups": [group.name for group in groups]})

    def keep(self, order: InterpreterSpec) -> bool:
        """Have it start an interpreter that waits for a gang; false if it is gone."""
        self.interpreter_key, self.tenant = order.key, order.tenant
        return self._say({"zygote": codec.encode(order)})

    def receive_lines(self) -> list[bytes]:
        """What it says, in lines; ``b""`` at the end if it has ended.

        Raises:
            BlockingIOError: Nothing is there.
        """
        data = self.line.recv(1 << 16, socket.MSG_DONTWAIT)
        *lines, self._received = (self._received + data).split(b"\n")
        return lines if data else [b""]

    def retire(self) -> None:
        """Let it go without waiting for it."""
        self.leaving = True
        self.line.close()

    def dismiss(self) -> None:
        """Let it go, and wait until it is gone with its process."""
        self.line.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _say(self, message: dict[str, Any]) -> bool:
        try:
            self.line.sendall(json.dumps(message).encode("ascii") + b"\n")
        except OSError:
            return False
        return True


def stand_by(line: socket.socket, config: LocalConfig, groups: Sequence[Group]) -> bool:
    """In the forked child: get ready, wait for a gang, run it to its end, and wait for another.

    False if the interpreter that it was to keep is gone: a gang that it was told since then was
    never begun.
    """
    # Compared before a gang is begun: when the spawner dies, this process gets another parent.
    spawner = os.getppid()
    gc.set_threshold(_GARBAGE)
    if not config.cgroups:
        _bound_processes(config.max_processes)
    ledger, hierarchy = Ledger(Path(config.root)), cgroups.restore(dict(config.cgroups))
    exposure = Exposure(needed=config.tenant_uid_base > 0)
    # Opened before ``exposure`` takes a mount table of its own.
    networks = Networks(config).folder() if config.network.fence == TENANT else None
    fresh = Ahead(exposure, networks=networks, expect=functools.partial(_expect, line))
    ahead = _with_seats(config, fresh, groups[:1])
    # Skip this if a gang is already waiting.
    if not _has_message(line):
        rehearse(config)
    with line, line.makefile("rb") as messages:
        for words in messages:
            message = json.loads(words)
            if "zygote" in message:
                ahead = _keep(message["zygote"], line, config, groups, ahead)
                if ahead.interpreter is None:
                    failpoints.here("standby.leave.before")
                    return False
                continue
            if "groups" in message:
                groups = _groups(hierarchy, message["groups"])
                ahead = _with_seats(config, fresh, groups[:1])
                continue
            gang = codec.decode(ResolvedGang, message["gang"], ignore_unknown=True)
            if os.getppid() != spawner:
                # The next spawner removes control groups that no claimed gang has: it may have
                # removed these. It gets the gang from the engine.
                # On a full disk that cannot be told; the engine looks again in any case.
                with contextlib.suppress(OSError):
                    ledger.tell_unclaimed(gang.key)
                break
            groups = [*groups, *_groups(hierarchy, message["more_groups"])]
            if ahead.interpreter is not None:
                ahead.interpreter.wake()
            else:  # they join their control groups while the gang is claimed and staged
                ahead = _with_seats(config, ahead, groups[:_SEATS_AHEAD])
            if not Supervisor(gang, config, ledger, groups, ahead).run():
                return True
            ahead = fresh
            try:
                line.sendall(DONE + b"\n")
            except OSError:  # the spawner is gone
                return True
    if ahead.interpreter is not None:
        ahead.interpreter.leave()
    _leave_seats(ahead)
    return True


def _keep(
    document: dict[str, Any],
    line: socket.socket,
    config: LocalConfig,
    groups: Sequence[Group],
    ahead: Ahead,
) -> Ahead:
    """With an interpreter that has imported and waits until ``line`` has more to say; without
    one if it cannot.
    """
    _leave_seats(ahead)
    try:
        interpreter = WarmInterpreter(
            codec.decode(InterpreterSpec, document),
            config,
            ahead.exposure,
            groups[0],
            ahead.networks,
        )
    except OSError as error:
        print(f"cloudml: no zygote: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return replace(ahead, prelaunched={})
    if interpreter.imported(line):
        with contextlib.suppress(OSError):
            line.sendall(READY + b"\n")
        if interpreter.last(line):
            return replace(ahead, prelaunched={}, interpreter=interpreter)
    words = interpreter.words()
    interpreter.leave()
    if not _has_message(line):
        print(f"cloudml: no zygote: {words}", file=sys.stderr, flush=True)  # noqa: T201
    return replace(ahead, prelaunched={})


def _expect(line: socket.socket, hint: str, order: InterpreterSpec | None) -> None:
    """Tell the spawner what the next gang of a kind could start from."""
    with contextlib.suppress(OSError):
        line.sendall(
            json.dumps({"hint": hint, "order": order and codec.encode(order)}).encode("ascii")
            + b"\n"
        )


def _bound_processes(most: int) -> None:
    """Without control groups, the kernel counts the processes of a user: of all that this one
    runs.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def rehearse(config: LocalConfig) -> None:
    """Do what every supervisor does first, without a gang: fills caches, and touches the memory
    it will need.
    """
    with contextlib.suppress(BadRuntime):  # each attempt that needs the catalogue says so
        Catalog.load(Path(config.runtimes_dir), tuple(config.pythons)).digest  # noqa: B018
    pipconfig.read()
    gang = ObservedGang(
        "rehearsal", 1, GangState.STAGING, processes=(ObservedProcess("master", 0, running=True),)
    )
    codec.decode(ObservedGang, json.loads(json.dumps(codec.encode(gang))), ignore_unknown=True)
    launch.tenant_fence(config, user=None)


def _groups(hierarchy: cgroups.Hierarchy | None, names: Sequence[str]) -> list[Group]:
    return [hierarchy.group(name) for name in names] if hierarchy is not None else []


def _with_seats(config: LocalConfig, ahead: Ahead, groups: Sequence[Group]) -> Ahead:
    """With a mount table and a process in each of these control groups; whatever cannot be had
    ahead is not missed yet. Without a group there is nothing to join, so nothing to gain.
    """
    processes = dict(ahead.prelaunched)
    without = [group for group in groups if group.name not in processes]
    if not without:
        return ahead
    with contextlib.suppress(OSError):
        ahead.exposure.open()  # a process sees only what is mounted in a table that it shares
        fence = launch.tenant_fence(config, user=None)
        for group in without:
            processes[group.name] = launch.PrelaunchedProcess(fence, group)
    return replace(ahead, prelaunched=processes)


def _leave_seats(ahead: Ahead) -> None:
    for process in ahead.prelaunched.values():
        process.leave()


def _has_message(line: socket.socket) -> bool:
    return bool(find_readable([line], 0))
