"""A server of one's own to measure, its trainers, and figures beside what they are compared
with.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloud_ml
from cloud_ml.client import CloudMlClient
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.config import Credentials
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.jobs.calls import JobCalls
from cloud_ml.sdk.transport import Transport

CLOUDML = Path(sys.executable).parent / "cloudml"
KEY, SECRET = "benchmark", "benchmark-secret-of-a-server-that-lives-for-minutes"
STAMP = "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)\n"
"""A program whose first line tells when it ran, on a clock that all processes share."""
_READY_S = 60.0
_LAST_WORD = b"Stop with Ctrl-C"


@dataclass(frozen=True)
class Figure:
    """One promise beside what was measured. Lower is better unless ``least``.

    ``reference`` is a floor or a peer of the same run, in the same unit.
    """

    what: str
    ours: float
    unit: str
    target: float
    reference: float | None = None
    beside: str = ""
    least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        return self.ours >= self.target if self.least else self.ours <= self.target

    def __str__(self) -> str:
        ratio = f"{self.ours / self.reference:.2f} x" if self.reference else ""
        floor = f"{self.reference:.3g} {self.beside}" if self.reference else ""
        bound = f"{'>=' if self.least else '<='} {self.target:g}"
        verdict = "met" if self.met else "NOT MET"
        return f"{self.what:<52} {self.ours:>9.3g} {self.unit:<7} {bound:>9} {verdict:<8} {ratio:>8}  {floor} {self.note}"  # noqa: E501


class NotHere(SystemExit):
    """What a part needs is not on this machine: it is passed over, which is no failure."""


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def high(values: Sequence[float], share: float = 0.99) -> float:
    """The value that ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def timed(function: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


# ---- the server


class Server:
    """``cloudml server`` in a process of its own, on a free port, with its data below
    ``folder``.
    """

    def __init__(self, folder: Path, **settings: object) -> None:
        folder.chmod(0o755)  # users of jobs have their working folders below
        self.folder = folder
        self.data = folder / "data"
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self._settings = {name: str(value) for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""
        self.ready_s = 0.0

    def start(self) -> Server:
        """Start it and wait until it answers; ``ready_s`` says how long that took."""
        compile_package()
        start = time.monotonic()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [CLOUDML, "server", "--port", "0", "--data-dir", self.data],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
            )
        output = _read_until(self._process, _LAST_WORD, start + _READY_S)
        self.ready_s = time.monotonic() - start
        if _LAST_WORD not in output:
            words = (self.folder / "server.log").read_text()[-2000:]
            self.stop()
            raise SystemExit(f"the server did not start: {output.decode()}\n{words}")
        self.endpoint = output.split(b"\n")[0].rpartition(b" ")[2].decode()
        return self

    def stop(self) -> None:
        """End it, and its spawner, which leaves by itself when nothing runs."""
        process, self._process = self._process, None
        if process is None:
            return
        spawner = self.spawner()
        left = proctree.descendants(spawner) if spawner is not None else []
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
        for (
            pid
        ) in left:  # a job that was left running outlives its server, which is right, but not here
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if spawner is not None:
            _await_end(spawner)

    def crash(self) -> None:
        """Kill it at once, as nothing of it would wish; its spawner stays."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a process that knows this server and nothing else of ours."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CLOUDML_", "XDG_"))
        }
        home = os.environ.get("CLOUDML_ENVIRONMENTS_HOME")
        return {
            **kept,
            **({"CLOUDML_ENVIRONMENTS_HOME": home} if home else {}),
            "HOME": str(self.home),
            "CLOUDML_BOOTSTRAP_ACCESS_KEY": KEY,
            "CLOUDML_BOOTSTRAP_SECRET_KEY": SECRET,
            **self._settings,
            **more,
        }

    def client(self) -> CloudMlClient:
        return CloudMlClient(KEY, SECRET, self.endpoint)

    def calls(self) -> JobCalls:
        """The SDK's calls over a connection of their own."""
        return JobCalls(Transport(parse_endpoint(self.endpoint), Credentials(KEY, SECRET)))

    def spawner(self) -> int | None:
        try:
            return int((self.data / "engine" / "spawner.lock").read_text())
        except (OSError, ValueError):
            return None

    @property
    def pids(self) -> list[int]:
        """The server and its spawner."""
        assert self._process is not None
        return [pid for pid in (self._process.pid, self.spawner()) if pid is not None]

    @property
    def tree(self) -> list[int]:
        """Those, and everything below them: at rest, a supervisor that waits with its seat."""
        below = [child for pid in self.pids for child in proctree.descendants(pid)]
        return list(dict.fromkeys([*self.pids, *below]))


@functools.cache
def compile_package() -> None:
    """Compile what a checkout has changed since it was installed. Jobs may not write where our modules
    lie, and would compile those of each interpreter anew: two pairs of runs were 15 % apart.
    """
    compileall.compile_dir(str(Path(cloud_ml.__file__).parent), quiet=2)


@contextlib.contextmanager
def serving(**settings: object) -> Iterator[Server]:
    """A fresh server for the length of a block."""
    with temporary_folder() as folder:
        server = Server(folder, **settings)
        try:
            yield server.start()
        finally:
            server.stop()


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    # Not below /tmp: jobs have one of their own, in which a sandbox would have to make places to
    # mount our folders.
    folder = Path(tempfile.mkdtemp(prefix="cloudml-bench-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read_until(process: subprocess.Popen[bytes], word: bytes, deadline: float) -> bytes:
    assert process.stdout is not None
    output = b""
    while word not in output and (left := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                break
            output += chunk
    return output


def _await_end(pid: int) -> None:
    """Wait for a process that is about to leave; kill it if it does not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([descriptor], [], [], 10)[0]:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


# ---- jobs


def wheel(folder: Path, source: str, version: str = "1.0") -> Path:
    """A wheel with the module ``trainer.task``, made of ``source``."""
    target = folder / f"trainer-{version}-py3-none-any.whl"
    info = f"trainer-{version}.dist-info"
    files = {
        "trainer/__init__.py": "",
        "trainer/task.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: trainer\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: benchmark\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
    }
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(
            f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        )
    return target


def tree(folder: Path, source: str, *, setup: str = "") -> Path:
    """A folder with the module ``trainer.task``, and a ``setup.py`` if there is an expression for
    its version.
    """
    package = folder / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(source)
    if setup:
        (folder / "setup.py").write_text(
            f"from setuptools import setup\nsetup(name='trainer', version={setup}, "
            "packages=['trainer'])\n"
        )
    return folder


def upload(client: CloudMlClient, trainer: Path) -> str:
    """Send a trainer once; returns its URI."""
    from cloud_ml.sdk.trainers.upload import send_trainer

    return send_trainer(client.storage, str(trainer), client.whoami().default_bucket).uri


def finished(calls: JobCalls, job: Job) -> Job:
    """Wait until the job has ended well."""
    while not job.finished:
        job = calls.get(job.name, newer_than=job.revision, wait_s=30)
    if not job.succeeded:
        with calls.log(job.name) as log:
            raise SystemExit(f"job {job.name} {job.phase}: {job.message}\n{log.read().decode()}")
    return job


def train_job(name: str, uri: str) -> TrainJob:
    return TrainJob(name, "trainer.task", uri)


# ---- floors


@functools.cache
def clean_python() -> str:
    """The interpreter in a virtual environment without packages, as jobs have it: no ``.pth`` of
    the machine's.
    """
    folder = tempfile.mkdtemp(prefix="cloudml-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    return f"{folder}/bin/python"


def bare(program: str = "pass") -> list[str]:
    """The command of a Python without anything around it."""
    return [clean_python(), "-c", program]


def fenced(program: str = "pass") -> list[str]:
    """The same in bubblewrap with all namespaces, the whole machine read-only."""
    bwrap, why = sandbox.find_bwrap(None)
    if why:
        raise SystemExit(why)
    namespaces = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    return [
        bwrap,
        *namespaces,
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        *bare(program),
    ]


def stamped(command: list[str], **options: Any) -> float:
    """Milliseconds from the start of a command until the first line of its program."""
    start = time.clock_gettime(time.CLOCK_MONOTONIC)
    out = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, env={}, cwd="/", **options
    ).stdout
    return 1000 * (float(out) - start)
