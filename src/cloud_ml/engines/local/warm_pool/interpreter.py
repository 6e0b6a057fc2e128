"""The supervisor's side of one: starts it, waits for its import, and has it become a job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group, Limits
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.network import NONE, TENANT
from cloud_ml.engines.local.processes import launch, proctree
from cloud_ml.engines.local.processes.readiness import find_readable
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec, find_shadowed
from cloud_ml.engines.local.warm_pool.mounts import Mount, show
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages.venv import make_venv
from cloud_ml.environments.removing import remove

FOLDER = "zygotes"
_PROGRAM = Path(__file__).with_name("program.py")
_REPLACED = (sandbox.WORK, "/tmp", sandbox.ENVIRONMENT)  # noqa: S108
_LONGEST_ANSWER = 1 << 20
_ANSWER_S = 2.0
_GONE_S, _LOOK_S = 2.0, 0.002
_IMPORTING_MILLIS, _WAITING_MILLIS = 1000, 50


class NotFit(Exception):
    """The job has to start the ordinary way; the message says why."""


@dataclass(frozen=True)
class Job:
    """What it is to become, beside the process.

    ``sites`` are the job's own folders on the path, ``searched`` the folders of this machine from
    which the job imports before it looks at what the interpreter has imported.
    """

    view: View
    work: Path
    tmp: Path
    sites: Sequence[str]
    searched: Sequence[str]
    environment: Mapping[str, str]


class WarmInterpreter:
    """An interpreter in a complete sandbox of its own that imports, and then waits for one job.

    Args:
        order: What it is to be.
        config: How gangs run here.
        exposure: Shows paths to the tenant's user.
        group: The control group, which becomes the job's.
        networks: The folder in which networks of organisations are mounted, opened.

    Raises:
        OSError: It cannot be started, or its packages are gone.
    """

    def __init__(
        self,
        order: InterpreterSpec,
        config: LocalConfig,
        exposure: Exposure,
        group: Group,
        networks: int | None,
    ) -> None:
        user = config.user(order.tenant)
        if user is None:
            raise OSError("it would run as the server's own user")
        self.order = order
        self._user = user
        self._group = group
        self._limits = config.zygotes
        self._config = config
        self._leases = Leases()
        self._launched: launch.Launched | None = None
        self._loaded: Sequence[str] = ()
        self._folder = Path(config.root, FOLDER, str(os.getpid()))
        self._control, theirs = socket.socketpair()
        try:
            self._start(exposure, networks, theirs.fileno())
            theirs.detach()  # closed with its other descriptors
        except BaseException:
            theirs.close()
            self.leave()
            raise
        self._control.setblocking(False)

    def _start(self, exposure: Exposure, networks: int | None, control: int) -> None:
        order, home = self.order, Path(self._config.environments_home).resolve()
        shared = [Path(site).parent for site in order.sites if Path(site).is_relative_to(home)]
        if not self._leases.take_all(shared):
            raise FileNotFoundError("its packages are gone")
        writable = [(self._place("home"), sandbox.WORK), (self._place("tmp"), "/tmp")]  # noqa: S108
        for folder, _ in writable:
            folder.mkdir(parents=True, mode=0o700)
            os.chown(folder, *self._user)
        self._folder.parent.chmod(0o711)
        self._folder.chmod(0o711)
        make_venv(
            self._place("venv"),
            Interpreter(Path(order.python), Path(order.prefix), order.version),
            [Path(site) for site in order.sites],
        )
        read_only = [*order.binds, (str(self._place("venv")), sandbox.ENVIRONMENT)]
        fence = launch.tenant_fence(self._config, self._user)
        view = View(
            read_only=[(exposure.path(source), target) for source, target in read_only],
            writable=[(exposure.path(str(source)), target) for source, target in writable],
            network=order.network != NONE,
            own_network=(networks, str(order.tenant))
            if order.network == TENANT and networks is not None
            else None,
            etc=exposure.path(str(self._config.etc)),
            unfinished=True,
            port=fence.port if order.network == NONE else 0,
        )
        self._shown = set(view.read_only)
        self._group.limit(
            Limits(self._limits.memory_bytes, _IMPORTING_MILLIS, self._config.max_processes)
        )
        process = launch.PrelaunchedProcess(fence, self._group, [control])
        python = f"{sandbox.ENVIRONMENT}/bin/python"
        command = [python, "-c", _PROGRAM.read_text("utf-8"), str(control), *order.preload]
        self._launched = process.run(view, command, order.environment, self._user)
        self._group.attach(self._launched.pid)
        self._deadline = time.monotonic() + self._limits.import_s

    def imported(self, line: socket.socket) -> bool:
        """Wait for the end of the import; false if it failed, took too long, or ``line`` has
        something to say.
        """
        words = self._hear(self._deadline, line)
        try:
            names = json.loads(words)["loaded"] if words else None
        except (ValueError, KeyError, TypeError, RecursionError):
            names = None
        if not isinstance(names, list):
            return False
        self._loaded = [name for name in names if isinstance(name, str)]
        self._group.limit(Limits(None, _WAITING_MILLIS, None))
        return True

    def last(self, line: socket.socket) -> bool:
        """Wait until ``line`` has something to say; false if the interpreter ends before."""
        assert self._launched is not None
        watched: list[socket.socket | int] = [line, self._control, *self._launched.ends]
        return line in find_readable(watched)

    def wake(self) -> None:
        """A gang is there: lift the limits of its control group, which from here on are the
        gang's affair.
        """
        self._group.limit(Limits(0, 0, self._config.max_processes))

    def words(self) -> str:
        """What it printed last."""
        output = b""
        with contextlib.suppress(OSError):
            while self._launched is not None and (more := os.read(self._launched.output, 65_536)):
                output += more
        return output.decode("utf-8", "replace").strip()[-2000:] or "it says nothing"

    def run(self, job: Job, plan: ProcessPlan) -> launch.Launched:
        """Have it become the process; its control group has the job's limits already.

        Raises:
            NotFit: It cannot, and nothing of the job has begun. It is gone.
        """
        try:
            launched = self._enter_job(job, plan)
        except (OSError, NotFit) as error:
            self.leave()
            raise NotFit(str(error)) from error
        self._launched = None
        self._control.close()
        return launched

    def _enter_job(self, job: Job, plan: ProcessPlan) -> launch.Launched:
        launched, view = self._launched, job.view
        first = next(iter(proctree.children(launched.pid)), None) if launched is not None else None
        if launched is None or first is None:
            raise NotFit("it has ended")
        # Check this before handing anything over, while the job can still start the ordinary way.
        if name := find_shadowed(self._loaded, job.searched):
            raise NotFit(f"the job has a {name} of its own")
        _hand_over(self._place("home"), job.work)
        _hand_over(self._place("tmp"), job.tmp)
        mounts = [Mount(source, target, writable=True) for source, target in view.writable]
        mounts += [Mount(*pair, writable=False) for pair in view.read_only if self._is_new(pair)]
        show(first, mounts, instead=_REPLACED, user=self._user, hostname=view.hostname)
        order = {
            "words": plan.command[2:],
            "environment": job.environment,
            "sites": list(job.sites),
            "folder": view.folder,
        }
        self._control.settimeout(_ANSWER_S)
        self._control.sendall(json.dumps(order).encode("ascii") + b"\n")
        if self._hear(time.monotonic() + _ANSWER_S) is None:
            raise NotFit("it does not answer")
        return launched

    def leave(self) -> None:
        """End it, if it has not become a job, and remove what was its own."""
        self._control.close()
        launched, self._launched = self._launched, None
        if launched is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(launched.pidfd, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(launched.pid, 0)
            # Processes in the sandbox end shortly after bubblewrap.
            deadline = time.monotonic() + _GONE_S
            while self._group.kill() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            launched.close()
        self._leases.close()
        remove(self._folder)

    def _is_new(self, pair: tuple[str, str]) -> bool:
        """Whether the sandbox does not show it yet, or not any more once the job's own folders
        are there.
        """
        return pair not in self._shown or pair[1].startswith(
            tuple(f"{target}/" for target in _REPLACED)
        )

    def _place(self, name: str) -> Path:
        return self._folder / name

    def _hear(self, deadline: float, line: socket.socket | None = None) -> bytes | None:
        """A line of its, without the end; ``None`` if there comes none."""
        received = b""
        watched = [self._control] if line is None else [self._control, line]
        while len(received) <= _LONGEST_ANSWER:
            ready = find_readable(watched, max(0.0, deadline - time.monotonic()))
            if self._control not in ready:
                return None
            try:
                more = self._control.recv(65_536)
            except OSError:
                return None
            received += more
            if not more or b"\n" in received:
                return received.partition(b"\n")[0] if more else None
        return None


def _hand_over(left: Path, folder: Path) -> None:
    """What the import has left in a folder of its own is the job's, as if that had imported."""
    for name in os.listdir(left):  # noqa: PTH208
        if not os.path.lexists(folder / name):
            (left / name).rename(folder / name)
