"""The resident spawner: one small process that outlives the server and keeps a supervisor for each gang.

Forking a process that has everything imported takes a millisecond where a fresh Python takes a hundred.
It speaks with the server over a unix socket, a JSON line each way, with the folder's token in each request:
``{"ensure": <gang>}`` is answered
``{"ok": true}`` once a supervisor has it, ``{"retire": true}`` ends the spawner (its supervisors
run on). Between requests it makes control groups ready, removes used ones, and buries supervisors.
With nobody to serve and nobody to look after it leaves by itself, so that nothing stays behind for good.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hmac
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml import failpoints
from cloud_ml.domain.observed import GangState
from cloud_ml.engines.base import Gang, GangKey
from cloud_ml.engines.local import cgroups, leftovers
from cloud_ml.engines.local.cgroups import Group, Pool
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.etc import Etc
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import TENANT
from cloud_ml.engines.local.network.tenants import Networks
from cloud_ml.engines.local.standby import DONE, READY, Supervision, rehearse, stand_by
from cloud_ml.engines.local.zygotes.nursery import Nursery, clear
from cloud_ml.engines.local.zygotes.order import Order
from cloud_ml.models import codec

SOCKET_NAME = "spawner.sock"
TOKEN_NAME = "spawner.token"  # noqa: S105 - a file's name
_IDLE_S = 30.0
_TIDY_PAUSE_S = 0.05
_LOOKS, _LOOK_S = 20, 0.005
_QUIET_S = 0.05
"""A supervisor is made ahead when nobody has asked for so long: what starts at present needs the cores."""
_NETWORKS_S = 1.0
"""Networks are looked after no more often: it takes a process, and there is a rest after every short job."""
_SPARE = 2
"""So many supervisors without a gang are kept while others come and go, and one when nothing has for long."""


@dataclass
class _Connection:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)


class Spawner:
    """Answers the server and looks after the supervisors it has forked."""

    def __init__(self, config: LocalConfig, listener: socket.socket, networks: Networks | None = None) -> None:
        self._config = config
        self._ledger = Ledger(Path(config.root))
        hierarchy = cgroups.restore(dict(config.cgroups))
        self._pool = Pool(hierarchy) if hierarchy else None
        self._children: dict[int, Supervision] = {}
        self._wanted = True  # one that waits, when it is quiet
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._retired = False
        self._connections = 0
        self._etc = Etc(config.etc, leave=config.network.kept_in_etc)
        self._networks = networks
        self._tidy_networks_at = 0.0
        if networks is not None and networks.changes is not None:
            self._selector.register(networks.changes, selectors.EVENT_READ, lambda _: self._restore(networks))
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self._token = make_token(Path(config.root))
        self._nursery = Nursery(config.zygotes)
        self._heard_at = time.monotonic()

    def run(self) -> None:
        """Serve until retired."""
        self._listen_to_children()
        in_use = self._groups_in_use()
        if self._pool is not None:
            self._pool.sweep(in_use)
        self._etc.create()
        clear(Path(self._config.root))
        rehearse(self._config)
        gc.freeze()  # what is there now stays shared with the children
        while not self._retired:
            busy = self._pool is not None and self._pool.tidy()
            ready = self._selector.select(0.0 if busy else self._pause())
            for key, _ in ready:
                key.data(key.fileobj)
            if ready:
                self._heard_at = time.monotonic()
            self._bury()
            if not ready and not busy:
                self._rest()
        self._leave()

    def _pause(self) -> float:
        if self._pool is not None and self._pool.waiting:
            return _TIDY_PAUSE_S
        if self._connections and (self._wanted or self._nursery.wanted(self._kept())):
            return _QUIET_S
        return min(_IDLE_S, self._nursery.patience(self._kept()))

    def _rest(self) -> None:
        """Nothing has happened during a pause: get a supervisor ready, or leave if nobody is served."""
        self._etc.refresh()
        if self._networks is not None and time.monotonic() >= self._tidy_networks_at:
            self._tidy_networks_at = time.monotonic() + _NETWORKS_S
            with _noted():
                self._networks.tidy([child.tenant for child in self._children.values() if child.key or child.zygote])
        for child in self._nursery.outdated(self._zygotes()):
            self._retire(child)
        if self._wanted and self._connections:
            self._wanted = False
            with contextlib.suppress(OSError):  # a gang that needs one will say what is wrong
                if not self._spares():
                    self._fork(1)
        elif self._connections and (order := self._nursery.wanted(self._kept())) is not None:
            with _noted():
                self._keep(order)
        elif not self._waited and time.monotonic() - self._heard_at >= _IDLE_S:
            for spare in self._spares()[1:]:
                self._dismiss(spare)
            self._retired = not self._busy and not self._connections

    @property
    def _waited(self) -> bool:
        """Whether there is something to do soon."""
        return (self._pool is not None and self._pool.waiting) or (self._wanted and self._connections > 0)

    def _leave(self) -> None:
        for child in [child for child in self._children.values() if child.key is None]:
            self._dismiss(child)
        if self._pool is not None:
            self._pool.close()
        if self._networks is not None:
            with _noted():
                self._networks.leave()

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
            if not hmac.compare_digest(str(request.get("token", "")), self._token):
                return {"ok": False, "error": "the token is not the one in " + TOKEN_NAME}
            if "ensure" in request:
                self._spawn(request["ensure"])
                return {"ok": True}
            idle = not self._busy and self._connections == 1
            self._retired = bool(request.get("retire")) or (idle and bool(request.get("retire_if_idle")))
        except Exception as error:
            traceback.print_exc()
            return {"ok": False, "error": str(error)}
        waiting = [child.pid for child in self._spares()]
        zygotes = [child.pid for child in self._zygotes() if child.ready]
        return {
            "ok": True,
            "pid": os.getpid(),
            "waiting": waiting,
            "zygotes": zygotes,
            "config": codec.encode(self._config),
        }

    def _spawn(self, document: dict[str, Any]) -> None:
        gang = codec.decode(Gang, document, ignore_unknown=True)
        if self._ledger.gate(gang.key) is not None or any(c.key == gang.key for c in self._children.values()):
            return  # claimed, or about to be
        self._etc.refresh()
        failpoints.here("spawner.fork.before")
        if gang.network == TENANT:
            self._need_network(gang.tenant)
        self._bury()  # one that has ended is no help
        self._wanted = True
        processes = len(gang.processes)
        ready = self._nursery.choose(gang, self._zygotes()) or next(iter(self._spares()), None)
        ready = ready if processes == 1 else None
        failpoints.here("spawner.tell.before")
        if ready is None or not ready.tell(gang.key, document):  # it has ended meanwhile, and will be buried
            self._fork(processes).tell(gang.key, document)
        failpoints.here("spawner.tell.after")

    def _restore(self, networks: Networks) -> None:
        with _noted():
            networks.restore()

    def _need_network(self, tenant: int) -> None:
        if self._networks is None:
            raise OSError("organisations have no networks of their own here")
        if self._networks.renew():  # who waits knows the folder that was removed
            for child in [child for child in self._children.values() if child.key is None and not child.leaving]:
                self._dismiss(child)
        self._networks.need(tenant)

    @property
    def _busy(self) -> bool:
        return any(child.key is not None for child in self._children.values())

    def _spares(self) -> list[Supervision]:
        """Supervisors that wait for any gang."""
        return [child for child in self._children.values() if child.key is None and not child.zygote]

    def _zygotes(self) -> list[Supervision]:
        """Those that wait with an interpreter for a gang that needs it, or until it has imported."""
        return [child for child in self._children.values() if child.key is None and child.zygote and not child.leaving]

    def _kept(self) -> list[str]:
        return [child.zygote for child in self._zygotes()]

    def _keep(self, order: Order) -> None:
        """Have an interpreter import ahead, instead of the one that waited the longest if there are as many."""
        if len(waiting := self._zygotes()) >= self._config.zygotes.most:
            self._retire(self._nursery.oldest(waiting))
        if order.network == TENANT:
            self._need_network(order.tenant)
        self._fork(1).keep(order)

    def _retire(self, child: Supervision) -> None:
        with contextlib.suppress(KeyError):  # it has ended, and is not buried yet
            self._selector.unregister(child.line)
        child.retire()

    def _fork(self, processes: int) -> Supervision:
        """A supervisor that waits for its gang."""
        groups = self._groups(processes)
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become_supervisor(theirs, groups)
        theirs.close()
        child = self._children[pid] = Supervision(pid, ours, groups)
        self._selector.register(ours, selectors.EVENT_READ, lambda _: self._hear(child))
        return child

    def _groups(self, processes: int) -> list[Group]:
        return [self._pool.take() for _ in range(processes)] if self._pool is not None else []

    def _become_supervisor(self, line: socket.socket, groups: list[Group]) -> None:
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
            stand_by(line, self._config, groups)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    # ---- supervisors whose gang is over, or that ended

    def _hear(self, child: Supervision) -> None:
        try:
            lines = child.heard()
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
                self._nursery.expect(json.loads(line))

    def _use_again(self, child: Supervision) -> None:
        """Have a supervisor that is done wait for another gang, if it is of use."""
        self._give_back(child.groups)
        child.groups, child.key, child.zygote, child.ready = [], None, "", False
        with contextlib.suppress(OSError):
            if not child.worn and len(self._spares()) <= _SPARE and child.settle(self._groups(1)):
                return
        self._dismiss(child)

    def _dismiss(self, child: Supervision) -> None:
        del self._children[child.pid]
        self._let_go(child)
        child.dismiss()

    def _let_go(self, child: Supervision) -> None:
        with contextlib.suppress(KeyError, ValueError):  # ValueError: it is closed
            self._selector.unregister(child.line)
        self._give_back(child.groups)

    def _listen_to_children(self) -> None:
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = (receiver, sender)
        self._selector.register(receiver, selectors.EVENT_READ, _drain)

    def _bury(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue
            if child.key is not None:
                failpoints.here("spawner.bury.before")
                if status:  # in order, it has reported and tidied up
                    self._look_after(child.key, pid)
                failpoints.here("spawner.bury.after")
            elif child.zygote and not child.leaving:
                self._nursery.failed(child.zygote)
            self._let_go(child)
            child.line.close()

    def _give_back(self, groups: list[Group]) -> None:
        for group in groups:
            if self._pool is not None:
                self._pool.give_back(group)

    def _look_after(self, key: GangKey, supervisor: int) -> None:
        """Do what a supervisor that was killed cannot do any more."""
        self._ledger.clear_drafts()
        gate = self._ledger.gate(key)
        if gate is None:  # killed before it had the gang
            with contextlib.suppress(OSError):  # a full disk; the engine looks again in any case
                self._ledger.tell_unclaimed(key)
            return
        if gate.pid != supervisor:
            return  # one of several that lost the race for the claim
        report = self._ledger.read_report(key)
        if report is None or not report.state.over:
            if not self._ended(key):
                return  # the engine looks again: nothing may be called over that has a process left
            seen = self._ledger.observe(key)
            if seen is not None and seen.state.over:
                self._ledger.report(seen)
        leftovers.clear(self._ledger, key)

    def _ended(self, key: GangKey) -> bool:
        for _ in range(_LOOKS):
            if leftovers.end(self._ledger, self._config, key):
                return True
            time.sleep(_LOOK_S)
        return False

    def _groups_in_use(self) -> list[str]:
        """Of the gangs that are not over; of the others nothing stays that a predecessor would have removed."""
        self._ledger.clear_drafts()
        names: list[str] = []
        for uid in self._ledger.known_jobs():
            for attempt in self._ledger.attempts(uid):
                key = GangKey(uid, attempt)
                seen = self._ledger.observe(key)
                if seen is None:
                    continue
                if not seen.state.over:
                    names += leftovers.group_names(self._ledger, key)
                elif seen.state is not GangState.LOST:  # whether the last process of one is gone, the engine finds out
                    leftovers.clear(self._ledger, key)
        return names


def make_token(root: Path) -> str:
    """What every request must carry, in a file that only the server's user reads.

    Landlock hides files from a job without a sandbox, but not a socket's name from one of the same user.
    """
    token = os.urandom(16).hex()
    draft = root / f".{TOKEN_NAME}"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:  # noqa: PTH123
        file.write(token)
    draft.replace(root / TOKEN_NAME)
    return token


def _drain(receiver: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while receiver.recv(4096):
            pass


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """What goes wrong with networks is told in the log, and does not end the spawner: each job that needs one tries."""
    try:
        yield
    except OSError:
        traceback.print_exc()


def _networks(config: LocalConfig) -> Networks | None:
    networks = Networks(config)
    if config.network.fence != TENANT:
        if os.geteuid() == 0 and networks.pins.folder.exists():  # of before the setting was changed
            with _noted():
                networks.leave()
        return None
    try:
        networks.start()
    except OSError as error:
        sys.exit(f"cloudml: networks of organisations cannot be had: {error}")
    return networks


def main() -> None:
    """Become the spawner: the configuration comes as JSON on standard input."""
    failpoints.arm(os.environ)
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
    spawner = Spawner(config, listener, _networks(config))
    print("ready", flush=True)  # noqa: T201 - the server waits for this line
    os.close(1)
    os.open(os.devnull, os.O_WRONLY)
    spawner.run()


if __name__ == "__main__":
    main()
