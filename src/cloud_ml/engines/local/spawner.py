"""The resident spawner: one small process that outlives the server and forks a supervisor per gang.

Forking a process that has everything imported takes a millisecond where a fresh Python takes a hundred.
It speaks with the server over a unix socket, a JSON line each way: ``{"ensure": <gang>}`` is answered
``{"ok": true}`` once the supervisor is forked, ``{"retire": true}`` ends the spawner (its supervisors
run on). Between requests it makes control groups ready, removes used ones, and buries supervisors.
With nobody to serve and nobody to look after it leaves by itself, so that nothing stays behind for good.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml.engines.base import Gang, GangKey
from cloud_ml.engines.local import cgroups, leftovers
from cloud_ml.engines.local.cgroups import Group, Pool
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.etc import Etc
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.standby import Standby, rehearse, stand_by
from cloud_ml.models import codec

SOCKET_NAME = "spawner.sock"
_IDLE_S = 30.0
_TIDY_PAUSE_S = 0.05
_QUIET_S = 0.05
"""A supervisor is made ahead when nobody has asked for so long: what starts at present needs the cores."""


@dataclass
class _Connection:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class _Child:
    key: GangKey
    groups: list[Group]


class Spawner:
    """Answers the server and looks after the supervisors it has forked."""

    def __init__(self, config: LocalConfig, listener: socket.socket) -> None:
        self._config = config
        self._ledger = Ledger(Path(config.root))
        hierarchy = cgroups.restore(dict(config.cgroups))
        self._pool = Pool(hierarchy) if hierarchy else None
        self._children: dict[int, _Child] = {}
        self._standby: Standby | None = None
        self._wanted = True  # a standby, when it is quiet
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._retired = False
        self._connections = 0
        self._etc = Etc(config.etc)
        self._wakeup: tuple[socket.socket, socket.socket] | None = None

    def run(self) -> None:
        """Serve until retired."""
        self._listen_to_children()
        if self._pool is not None:
            self._pool.sweep(self._groups_in_use())
        self._etc.create()
        rehearse(self._config)
        gc.freeze()  # what is there now stays shared with the children
        while not self._retired:
            busy = self._pool is not None and self._pool.tidy()
            ready = self._selector.select(0.0 if busy else self._pause())
            for key, _ in ready:
                key.data(key.fileobj)
            self._bury()
            if not ready and not busy:
                self._rest()
        self._leave()

    def _pause(self) -> float:
        if self._pool is not None and self._pool.waiting:
            return _TIDY_PAUSE_S
        return _QUIET_S if self._wanted and self._connections else _IDLE_S

    def _rest(self) -> None:
        """Nothing has happened during a pause: get a supervisor ready, or leave if nobody is served."""
        self._etc.refresh()
        if self._wanted and self._connections:
            self._wanted = False
            with contextlib.suppress(OSError):  # a gang that needs one will say what is wrong
                self._standby = self._standby or self._fork(1)
        elif not self._children and not self._connections and self._pause() == _IDLE_S:
            self._retired = True

    def _leave(self) -> None:
        standby, self._standby = self._standby, None
        if standby is not None:
            standby.dismiss()
            self._give_back(standby.groups)
        if self._pool is not None:
            self._pool.close()

    # ---- the server's requests

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        entry = _Connection(connection)
        self._connections += 1
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._receive(entry))

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self._connections -= 1
            return
        connection.received += data
        while (end := connection.received.find(b"\n")) >= 0:
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            answer = json.dumps(self._handle(line)).encode() + b"\n"
            with contextlib.suppress(OSError):
                connection.socket.sendall(answer)

    def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if "ensure" in request:
                self._spawn(request["ensure"])
            idle = not self._children and self._connections == 1
            self._retired = bool(request.get("retire")) or (idle and bool(request.get("retire_if_idle")))
        except Exception as error:
            traceback.print_exc()
            return {"ok": False, "error": str(error)}
        return {"ok": True, "pid": os.getpid(), "config": codec.encode(self._config)}

    def _spawn(self, document: dict[str, Any]) -> None:
        gang = codec.decode(Gang, document, ignore_unknown=True)
        if self._ledger.gate(gang.key) is not None or any(c.key == gang.key for c in self._children.values()):
            return  # claimed, or about to be
        self._etc.refresh()
        ready = self._take_standby(len(gang.processes))
        self._children[ready.pid] = _Child(gang.key, ready.groups)
        if not ready.tell(document):  # it has ended meanwhile, and will be buried
            fresh = self._fork(len(gang.processes))
            self._children[fresh.pid] = _Child(gang.key, fresh.groups)
            fresh.tell(document)

    def _take_standby(self, processes: int) -> Standby:
        self._bury()  # one that has ended is no help
        self._wanted = True
        if self._standby is None or processes != 1:
            return self._fork(processes)
        ready, self._standby = self._standby, None
        return ready

    def _fork(self, processes: int) -> Standby:
        """A supervisor that waits for its gang."""
        groups = [self._pool.take() for _ in range(processes)] if self._pool is not None else []
        orders, ours = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            self._become_supervisor(orders, groups)
        os.close(orders)
        return Standby(pid, ours, groups)

    def _become_supervisor(self, orders: int, groups: list[Group]) -> None:
        """Continue in the forked child. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for registered in list(self._selector.get_map().values()):
                if isinstance(registered.fileobj, socket.socket):
                    registered.fileobj.close()
            self._selector.close()
            os.setsid()
            if self._standby is not None:
                os.close(self._standby.orders)
            stand_by(orders, self._config, groups)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    # ---- supervisors that ended

    def _listen_to_children(self) -> None:
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = (receiver, sender)
        self._selector.register(receiver, selectors.EVENT_READ, _drain)

    def _bury(self) -> None:
        while self._children or self._standby is not None:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._standby is not None and pid == self._standby.pid:  # the next gang brings a new one
                os.close(self._standby.orders)
                self._give_back(self._standby.groups)
                self._standby = None
            child = self._children.pop(pid, None)
            if child is not None:
                gate = self._ledger.gate(child.key)
                if gate is not None and gate.pid == pid:  # not one of several that lost the race for the claim
                    self._publish_if_lost(child.key)
                self._give_back(child.groups)

    def _give_back(self, groups: list[Group]) -> None:
        for group in groups:
            if self._pool is not None:
                self._pool.give_back(group)

    def _publish_if_lost(self, key: GangKey) -> None:
        report = self._ledger.read_report(key)
        if report is None or not report.state.over:
            leftovers.end(self._ledger, self._config, key)
            seen = self._ledger.observe(key)
            if seen is not None and seen.state.over:
                self._ledger.report(seen)

    def _groups_in_use(self) -> list[str]:
        names: list[str] = []
        for uid in self._ledger.known_jobs():
            for attempt in self._ledger.attempts(uid):
                key = GangKey(uid, attempt)
                seen = self._ledger.observe(key)
                if seen is not None and not seen.state.over:
                    names += leftovers.group_names(self._ledger, key)
        return names


def _drain(receiver: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while receiver.recv(4096):
            pass


def main() -> None:
    """Become the spawner: the configuration comes as JSON on standard input."""
    config = codec.decode(LocalConfig, json.load(sys.stdin))
    root = Path(config.root)
    lock = os.open(root / "spawner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # One spawner at a time. A record lock, since a flock would be inherited by the supervisors.
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    path = root / SOCKET_NAME
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    os.chdir(root)  # a socket's path is limited to about a hundred bytes, so it is given relative
    listener.bind(SOCKET_NAME)
    os.umask(previous)
    os.chdir("/")
    listener.listen(64)
    print("ready", flush=True)  # noqa: T201 - the server waits for this line
    os.close(1)
    os.open(os.devnull, os.O_WRONLY)
    Spawner(config, listener).run()


if __name__ == "__main__":
    main()
