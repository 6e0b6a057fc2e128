"""The supervisors of the spawner: forked before their gang or for it, used again, let go, and
buried.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any

from cloud_ml import failpoints
from cloud_ml.engines.gang import Gang, GangKey
from cloud_ml.engines.local.cgroups import Group, Pool
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.spawner import reaper
from cloud_ml.engines.local.spawner.prelaunched_supervisor import DONE, READY, Supervision, stand_by
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec
from cloud_ml.engines.local.warm_pool.pool import InterpreterPool
from cloud_ml.models import codec

_SPARE = 4
"""So many supervisors without a gang are kept while others come and go, and one when nothing has
for long. With as many jobs at once some wait here and some still tidy up; fewer, and one is let
go and forked anew every few jobs.
"""

_NOT_BEGUN = 3
"""The exit code of a supervisor whose interpreter is gone. The gang that it was told in that
moment gets another.
"""


_PAUSE_S = 0.5
"""A supervisor that has failed ends so much later. The next one may fail at once, too."""


class SupervisorPool:
    """Everyone the spawner has forked. Those without a gang are spares, which wait for any, or
    keep an interpreter.
    """

    def __init__(
        self,
        config: LocalConfig,
        ledger: Ledger,
        pool: Pool | None,
        selector: selectors.BaseSelector,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._pool = pool
        self._selector = selector
        self._children: dict[int, Supervision] = {}
        self._failed_starts = reaper.FailedStarts(ledger)
        self.interpreter_pool = InterpreterPool(config.zygotes)

    @property
    def busy(self) -> bool:
        """Whether anyone has a gang."""
        return any(child.key is not None for child in self._children.values())

    @property
    def spares(self) -> list[Supervision]:
        """Supervisors that wait for any gang."""
        return [
            child
            for child in self._children.values()
            if child.key is None and not child.interpreter_key
        ]

    @property
    def interpreters(self) -> list[Supervision]:
        """Those that wait with an interpreter for a gang that needs it, or until it has
        imported.
        """
        return [
            child
            for child in self._children.values()
            if child.key is None and child.interpreter_key and not child.leaving
        ]

    @property
    def kept(self) -> list[str]:
        """The orders that have such an interpreter."""
        return [child.interpreter_key for child in self.interpreters]

    @property
    def tenants(self) -> list[int]:
        """The organisations that somebody works or waits for."""
        return [
            child.tenant for child in self._children.values() if child.key or child.interpreter_key
        ]

    def has(self, key: GangKey) -> bool:
        """Whether somebody has been told that gang."""
        return any(child.key == key for child in self._children.values())

    def hand_over(self, gang: Gang, document: dict[str, Any]) -> None:
        """Give the gang to one that waits, or to a new one.

        Raises:
            OSError: None can be forked, or has no control group.
        """
        # ``tell`` notes these groups before it writes. So they are given back when the child is
        # reaped, also where the child has ended already.
        ready = self.interpreter_pool.choose(gang, self.interpreters) or next(
            iter(self.spares), None
        )
        more = self._groups(gang.width - 1) if ready is not None else []
        failpoints.here("spawner.tell.before")
        # The supervisor may have ended meanwhile. It is reaped later.
        if ready is None or not ready.tell(gang.key, document, more):
            self._fork(max(1, gang.width)).tell(gang.key, document)
        failpoints.here("spawner.tell.after")

    def have_a_spare(self) -> None:
        """See that one waits.

        Raises:
            OSError: None can be forked, or has no control group.
        """
        if not self.spares:
            self._fork(1)

    def make_room(self) -> None:
        """Let the interpreter go that waited the longest, if there are as many as there may be."""
        if len(waiting := self.interpreters) >= self._config.zygotes.most:
            self._retire(self.interpreter_pool.oldest(waiting))

    def keep(self, order: InterpreterSpec) -> None:
        """Have an interpreter import ahead.

        Raises:
            OSError: Nobody can be forked for it, or has no control group.
        """
        self._fork(1).keep(order)

    def retire_outdated(self) -> None:
        """Let interpreters go for which no gang has come for too long."""
        for child in self.interpreter_pool.outdated(self.interpreters):
            self._retire(child)

    def dismiss_spares(self) -> None:
        """Let all of them go but one."""
        for spare in self.spares[1:]:
            self._dismiss(spare)

    def dismiss_waiting(self) -> None:
        """Let everybody go who has no gang, but for those that are leaving already."""
        for child in [
            child for child in self._children.values() if child.key is None and not child.leaving
        ]:
            self._dismiss(child)

    def dismiss_idle(self) -> None:
        """Let everybody go who has no gang."""
        for child in [child for child in self._children.values() if child.key is None]:
            self._dismiss(child)

    def bury(self) -> None:
        """Look who has ended, and after their gangs."""
        # One SIGCHLD may stand for several exits (signal(7)), so wait for all ended children.
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._bury(child, status)

    def _bury(self, child: Supervision, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        not_begun = code == _NOT_BEGUN
        if child.key is not None and not not_begun:
            failpoints.here("spawner.bury.before")
            # An end by a signal is not the supervisor's own failure: it was killed by a user or
            # the kernel.
            self._failed_starts.note(child.key, failed=code > 0)
            if status:  # in order, it has reported and tidied up
                reaper.look_after(self._ledger, self._config, child.key, child.pid)
            failpoints.here("spawner.bury.after")
        elif child.interpreter_key and not child.leaving:
            self.interpreter_pool.failed(child.interpreter_key)
        self._let_go(child)
        child.line.close()
        if child.key is not None and not_begun:
            gang = codec.decode(Gang, child.document, ignore_unknown=True)
            # If this fails, the engine requests the unclaimed gang again.
            with contextlib.suppress(OSError):
                self.hand_over(gang, child.document)

    def _fork(self, processes: int) -> Supervision:
        """A supervisor that waits for its gang."""
        groups = self._groups(processes)
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # With a copy of the spawner's end, the child would never read the end of its own
            # line.
            ours.close()
            self._become_supervisor(theirs, groups)
        theirs.close()
        child = self._children[pid] = Supervision(pid, ours, groups)
        self._selector.register(ours, selectors.EVENT_READ, lambda _: self._hear(child))
        return child

    def _become_supervisor(self, line: socket.socket, groups: list[Group]) -> None:
        """Continue in the forked child. Never returns."""
        code = 1
        try:
            # The socket is the spawner's: a signal of this process must not wake it.
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # A copy of another supervisor's line would hide the spawner's end from that
            # supervisor. The sockets are closed and not unregistered: the epoll instance is
            # shared with the spawner, which would hear them no more.
            for registered in list(self._selector.get_map().values()):
                if isinstance(registered.fileobj, socket.socket):
                    registered.fileobj.close()
            self._selector.close()
            # Signals to the group or the terminal of the spawner do not reach the gang.
            os.setsid()
            code = 0 if stand_by(line, self._config, groups) else _NOT_BEGUN
        except BaseException:
            traceback.print_exc()
            time.sleep(_PAUSE_S)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _hear(self, child: Supervision) -> None:
        try:
            lines = child.receive_lines()
        except OSError:
            return
        for line in lines:
            if not line:  # it is about to end; who buries it looks what became of its gang
                self._selector.unregister(child.line)
            elif line == DONE:
                self._use_again(child)
            elif line == READY:
                child.ready = True
            else:
                self.interpreter_pool.expect(json.loads(line))

    def _use_again(self, child: Supervision) -> None:
        """Have a supervisor that is done wait for another gang, if it is of use."""
        self._give_back(child.groups)
        child.groups, child.key, child.interpreter_key, child.ready = [], None, "", False
        with contextlib.suppress(OSError):
            if not child.worn and len(self.spares) <= _SPARE and child.settle(self._groups(1)):
                return
        self._dismiss(child)

    def _retire(self, child: Supervision) -> None:
        with contextlib.suppress(KeyError):  # it has ended, and is not buried yet
            self._selector.unregister(child.line)
        child.retire()

    def _dismiss(self, child: Supervision) -> None:
        # ``dismiss`` waits for this child itself, so ``bury`` must not find it.
        del self._children[child.pid]
        self._let_go(child)
        child.dismiss()

    def _let_go(self, child: Supervision) -> None:
        with contextlib.suppress(KeyError, ValueError):  # ValueError: it is closed
            self._selector.unregister(child.line)
        self._give_back(child.groups)

    def _groups(self, processes: int) -> list[Group]:
        return [self._pool.take() for _ in range(processes)] if self._pool is not None else []

    def _give_back(self, groups: list[Group]) -> None:
        for group in groups:
            if self._pool is not None:
                self._pool.give_back(group)
