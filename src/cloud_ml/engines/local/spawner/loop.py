"""What the spawner does and when: a gang that is asked for first, what makes the next one quick
when it is quiet.

Between requests it makes control groups ready, removes used ones, and buries supervisors. With
nobody to serve and nobody to look after it leaves by itself, so that nothing stays behind for good.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Any

from cloud_ml import failpoints
from cloud_ml.engines.gang import Gang
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cgroups import Pool
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.isolation.etc import Etc
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import TENANT
from cloud_ml.engines.local.network.tenants import Networks
from cloud_ml.engines.local.spawner.fences import Fences, log_errors
from cloud_ml.engines.local.spawner.prelaunched_supervisor import rehearse
from cloud_ml.engines.local.spawner.reaper import InheritedGangs
from cloud_ml.engines.local.spawner.requests import Requests, make_token
from cloud_ml.engines.local.spawner.supervisor_pool import SupervisorPool
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec
from cloud_ml.engines.local.warm_pool.pool import clear
from cloud_ml.models import codec

_IDLE_S = 30.0
_TIDY_PAUSE_S = 0.05
_ESTATE_PAUSE_S = 1.0
"""Nobody tells when a gang of a predecessor is over."""
_QUIET_S = 0.05
"""A supervisor is made ahead when nobody has asked for so long: what starts at present needs the
cores.
"""


class Spawner:
    """Answers the server and looks after the supervisors it has forked."""

    def __init__(
        self, config: LocalConfig, listener: socket.socket, networks: Networks | None = None
    ) -> None:
        self._config = config
        self._ledger = Ledger(Path(config.root))
        hierarchy = cgroups.restore(dict(config.cgroups))
        self._pool = Pool(hierarchy) if hierarchy else None
        self._needs_supervisor = True  # a supervisor that waits, when it is quiet
        self._retired = False
        self._last_request_at = time.monotonic()
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self._selector = selectors.DefaultSelector()
        self._etc = Etc(config.etc, leave=config.network.kept_in_etc)
        self._supervisors = SupervisorPool(config, self._ledger, self._pool, self._selector)
        self._fences = Fences(networks, self._selector)
        self._requests = Requests(
            listener, self._selector, make_token(Path(config.root)), self._answer
        )

    def run(self) -> None:
        """Serve until retired."""
        self._listen_to_children()
        # Do this before the sweep: control groups of running gangs of an earlier spawner must
        # stay.
        self._inherited = InheritedGangs(self._ledger)
        if self._pool is not None:
            self._pool.sweep(self._inherited.groups)
        self._etc.create()
        clear(Path(self._config.root))
        rehearse(self._config)
        gc.freeze()  # what is there now stays shared with the children
        try:
            self._serve()
        finally:  # also where its folder was deleted under it: what it made of the machine goes
            self._leave()

    def _serve(self) -> None:
        while not self._retired:
            busy = self._pool is not None and self._pool.tidy()
            ready = self._selector.select(0.0 if busy else self._pause())
            for key, _ in ready:
                key.data(key.fileobj)
            if ready:
                self._last_request_at = time.monotonic()
            self._supervisors.bury()
            if not ready and not busy:
                self._rest()

    def _pause(self) -> float:
        if self._pool is not None and self._pool.waiting:
            return _TIDY_PAUSE_S
        interpreter_pool, kept = self._supervisors.interpreter_pool, self._supervisors.kept
        if self._requests.connections and (
            self._needs_supervisor or interpreter_pool.missing_interpreter(kept)
        ):
            return _QUIET_S
        return min(
            _ESTATE_PAUSE_S if self._inherited.groups else _IDLE_S, interpreter_pool.wait_left(kept)
        )

    def _rest(self) -> None:
        """Nothing has happened during a pause: get a supervisor ready, or leave if nobody is
        served.
        """
        self._etc.refresh()
        self._fences.tidy(self._supervisors.tenants)
        if self._pool is not None and self._inherited.groups:
            self._pool.take_over(self._inherited.done())
        self._supervisors.retire_outdated()
        served = self._requests.connections > 0
        if self._needs_supervisor and served:
            self._needs_supervisor = False
            with contextlib.suppress(OSError):  # a gang that needs one will say what is wrong
                self._supervisors.have_a_spare()
        elif (
            served
            and (
                order := self._supervisors.interpreter_pool.missing_interpreter(
                    self._supervisors.kept
                )
            )
            is not None
        ):
            with log_errors():
                self._keep(order)
        elif not self._has_work and time.monotonic() - self._last_request_at >= _IDLE_S:
            self._supervisors.dismiss_spares()
            self._retired = not self._supervisors.busy and not served and not self._inherited.groups

    @property
    def _has_work(self) -> bool:
        """Whether there is something to do soon."""
        return (self._pool is not None and self._pool.waiting) or (
            self._needs_supervisor and self._requests.connections > 0
        )

    def _leave(self) -> None:
        self._supervisors.dismiss_idle()
        if self._pool is not None:
            self._pool.close()
        self._fences.leave()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the server asks."""
        if "ensure" in request:
            self._spawn(request["ensure"])
            return {"ok": True}
        # The server that asks is this one connection.
        idle = not self._supervisors.busy and self._requests.connections == 1
        self._retired = bool(request.get("retire")) or (
            idle and bool(request.get("retire_if_idle"))
        )
        return {
            "ok": True,
            "pid": os.getpid(),
            "waiting": [child.pid for child in self._supervisors.spares],
            "zygotes": [child.pid for child in self._supervisors.interpreters if child.ready],
            "config": codec.encode(self._config),
        }

    def _spawn(self, document: dict[str, Any]) -> None:
        gang = codec.decode(Gang, document, ignore_unknown=True)
        if self._ledger.gate(gang.key) is not None or self._supervisors.has(gang.key):
            return  # claimed, or about to be
        self._etc.refresh()
        failpoints.here("spawner.fork.before")
        if gang.network == TENANT:
            self._need_network(gang.tenant)
        self._supervisors.bury()  # one that has ended is no help
        self._needs_supervisor = True
        self._supervisors.hand_over(gang, document)

    def _keep(self, order: InterpreterSpec) -> None:
        """Have an interpreter import ahead, instead of the one that waited the longest if there
        are as many.
        """
        self._supervisors.make_room()
        if order.network == TENANT:
            self._need_network(order.tenant)
        self._supervisors.keep(order)

    def _need_network(self, tenant: int) -> None:
        # Supervisors that wait have the removed folder open, so they go.
        self._fences.need(tenant, self._supervisors.dismiss_waiting)

    def _listen_to_children(self) -> None:
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        # If the buffer is full, the selector wakes up anyway, so extra bytes may be lost.
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        # Python writes to the wakeup descriptor only for signals that have a handler of Python's.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = (receiver, sender)
        self._selector.register(receiver, selectors.EVENT_READ, _drain)


def _drain(receiver: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while receiver.recv(4096):
            pass
