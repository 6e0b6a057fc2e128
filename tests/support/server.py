"""A real ``cloudml server`` in a process of its own, with a home of its own, and everybody who
talks to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.observed import ObservedGang
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import probe
from cloud_ml.engines.local.processes import proctree
from cloud_ml.settings import EngineSettings
from support.environments import environment_home
from support.machine import end_engine, end_gateway, spawner_pid

CLOUDML = Path(sys.executable).parent / "cloudml"
READY_S = 150.0
"""Bounds a hang: with its machine to itself a server answers within a second."""
_LAST_LINE = "Stop with Ctrl-C"


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def good(self) -> Ran:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


def _hear_ctrl_c() -> None:
    """Tests that run in the background of a script have SIGINT ignored, and so would a child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class RealServer:
    """The platform on this machine, in ``folder``. May be killed and started again; ``destroy``
    takes all of it away.

    Args:
        folder: An empty folder for the data and the homes.
        settings: Variables such as ``CLOUDML_ENGINE_STOP_GRACE_S``.

    Attributes:
        program: What is started; another version's may be put there.
    """

    program = CLOUDML

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.home = folder / "operator"
        self.port = 0
        self.endpoint = ""
        self.announced: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._listening = threading.Lock()  # held while somebody reads what the process prints
        self._settings = {name: str(value) for name, value in settings.items()}
        self._clients: list[CloudMlClient] = []
        folder.chmod(0o755)  # users of jobs have their working folders below
        for home in (self.home, self.user_home):
            home.mkdir(parents=True)

    # ---- the process

    def start(self) -> RealServer:
        """Start, on the port of before if there was one, and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self.program),
                    "server",
                    "--port",
                    str(self.port),
                    "--data-dir",
                    str(self.data),
                ],
                env=self.environment(self.home),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                bufsize=0,
                start_new_session=True,
            )
        process, began = self.process, time.monotonic()
        with self._listening:
            self.announced = _announcement(process, began + READY_S)
        if not self.announced or not self.announced[-1].startswith(_LAST_LINE):
            ended = f"exit code {process.poll()} after {time.monotonic() - began:.1f} s"
            self.kill()
            raise AssertionError(
                f"the server did not start ({ended}): {self.announced}\n{self.log()[-4000:]}"
            )
        self.endpoint = self.announced[0].rpartition(" ")[2]
        self.port = int(self.endpoint.rpartition(":")[2])
        return self

    def kill(self) -> None:
        """SIGKILL: the crash."""
        self._end(signal.SIGKILL)

    def terminate(self) -> float:
        """SIGTERM: the orderly end. Returns the seconds that it took."""
        before = time.monotonic()
        self._end(signal.SIGTERM)
        return time.monotonic() - before

    def _end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is not None:
            assert process.stdout is not None
            process.send_signal(number)
            process.wait(60)
            with (
                self._listening
            ):  # another thread may wait for it to start: it sees that the process has ended
                process.stdout.close()

    def kill_spawner(self, *, may_have_left: bool = False) -> None:
        """SIGKILL for the process that starts supervisors. One that has nothing to do leaves
        with its server.
        """
        pid = spawner_pid(self.data / "engine")
        if pid is None and may_have_left:
            return
        assert pid is not None
        with contextlib.suppress(*([ProcessLookupError] if may_have_left else [])):
            os.kill(pid, signal.SIGKILL)

    def destroy(self) -> None:
        """End the server, its spawner, its supervisors, and remove its control groups and its
        folder.
        """
        for client in self._clients:
            client.close()
        self.kill()
        end_gateway(self.data / "gateway")
        if (self.data / "engine").exists():
            end_engine(self.findings.config)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def findings(self) -> Any:
        """What the machine gives to this server's jobs."""
        nowhere = self.folder / "nowhere"
        return probe(
            EngineSettings(),
            root=self.data / "engine",
            environments_home=nowhere,
            runtimes_dir=nowhere,
            uv=nowhere,
        )

    def log(self) -> str:
        """The server's own log so far."""
        return (self.folder / "server.log").read_text()

    # ---- who talks to it

    @property
    def user_home(self) -> Path:
        """The home of somebody who has no settings."""
        return self.folder / "user"

    @property
    def credentials(self) -> dict[str, str]:
        """The administrator's, as the first start wrote them."""
        document: dict[str, str] = json.loads((self.data / "credentials.json").read_text())
        return document

    def client(self) -> CloudMlClient:
        """A client in the administrator's name; closed at the end."""
        keys = self.credentials
        client = CloudMlClient(keys["access_key"], keys["secret_key"], self.endpoint)
        self._clients.append(client)
        return client

    def environment(self, home: Path, **variables: str) -> dict[str, str]:
        """The variables of a process of this test: nothing of the machine's home, no settings
        but ours.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CLOUDML_", "XDG_", "PYTEST"))
        }
        return {
            **kept,
            "HOME": str(home),
            "CLOUDML_ENVIRONMENTS_HOME": str(environment_home()),
            **self._settings,
            **variables,
        }

    @property
    def known(self) -> dict[str, str]:
        """The variables that tell a client of the server and hand it the administrator's key."""
        keys = self.credentials
        return {
            "CLOUDML_ENDPOINT": self.endpoint,
            "CLOUDML_ACCESS_KEY": keys["access_key"],
            "CLOUDML_SECRET_KEY": keys["secret_key"],
        }

    @property
    def command(self) -> list[str]:
        """The program, for those who start it themselves."""
        return [str(CLOUDML)]

    def cli(self, *arguments: str, timeout_s: float = 60.0, **options: Any) -> Ran:
        """Run ``cloudml`` to its end as a user who has nothing but the administrator's key; see
        ``spawn``.
        """
        with self.spawn(*arguments, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(
                    f"cloudml {arguments} did not end within {timeout_s} s:\n{out}\n{err}"
                ) from None
        return Ran(process.returncode, out, err)

    def spawn(
        self,
        *arguments: str,
        home: Path | None = None,
        folder: Path | None = None,
        hears_ctrl_c: bool = False,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start ``cloudml``; with a ``home`` given, only what is found there tells of the
        server. ``hears_ctrl_c`` if it is to be interrupted.
        """
        known = self.known if home is None else {}
        return subprocess.Popen(
            [str(CLOUDML), *arguments],
            env=self.environment(home or self.user_home, **known | variables),
            cwd=folder or self.user_home,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=_hear_ctrl_c if hears_ctrl_c else None,  # noqa: PLW1509
        )  # fmt: skip

    # ---- what a user cannot see

    @property
    def ledger(self) -> Ledger:
        """What the engine knows."""
        return Ledger(self.data / "engine")

    def observed(self, uid: str, attempt: int = 1) -> ObservedGang | None:
        """An attempt as the engine sees it, whether or not the server lives."""
        return self.ledger.observe(GangKey(uid, attempt))

    def processes_of(self, uid: str, attempt: int = 1) -> list[int]:
        """Every process of an attempt that lives on this machine."""
        return proctree.find_marked(f"CLOUDML_GANG={uid}.{attempt}")

    def connections(self) -> int:
        """How many connections of clients the server has."""
        assert self.process is not None
        return sum(
            one.status == psutil.CONN_ESTABLISHED
            for one in psutil.Process(self.process.pid).net_connections("tcp")
        )

    def bucket(self, *parts: str) -> Path:
        """A path in the folder of the default bucket."""
        return self.data.joinpath("objects", "cloudml", *parts)


def eventually(holds: Callable[[], Any], what: str, *, limit_s: float = 60.0) -> Any:
    """The first true value of ``holds``; fails, naming ``what``, when there is none within the
    limit.
    """
    deadline = time.monotonic() + limit_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.01)
    return found


def made(folder: Path, files: dict[str, str]) -> Path:
    """``folder`` with these files in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def trainer(folder: Path, source: str, **files: str) -> Path:
    """A folder with the module ``trainer.task``, made of ``source``, and further files
    (``setup_py=…``).
    """
    package = folder / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(source)
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_text(content)
    return folder


def _announcement(process: subprocess.Popen[bytes], deadline: float) -> list[str]:
    """What the process prints until it has said everything, has ended, or the time is over."""
    assert process.stdout is not None
    announced, output = b"", select.poll()  # `select.select` refuses descriptors above 1023
    output.register(process.stdout.fileno(), select.POLLIN)
    while _LAST_LINE.encode() not in announced and time.monotonic() < deadline:
        ended = process.poll() is not None
        if output.poll(0 if ended else 200):
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                break
            announced += chunk
        elif ended:  # what it started may hold the pipe open
            break
    return announced.decode().splitlines()


@contextlib.contextmanager
def serving(folder: Path, **settings: object) -> Iterator[RealServer]:
    """A server that runs, for the length of a block."""
    server = RealServer(folder, **settings)
    try:
        yield server.start()
    finally:
        server.destroy()
