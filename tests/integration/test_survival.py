"""The server is killed, again and again: what was acknowledged is kept, and no job notices."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.ledger import is_alive
from cloud_ml.engines.local.processes import proctree
from cloud_ml.errors import AlreadyExists, CloudMlError
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from support.server import RealServer, eventually, serving, trainer

pytestmark = pytest.mark.xdist_group("survival")

LINES = 20
BRIEF = f"""
import os, pathlib, sys, time
with open(sys.argv[1], "a") as runs:
    runs.write(os.environ["CLOUDML_ATTEMPT"] + "\\n")
for number in range({LINES}):
    print("line", number)
    time.sleep(0.005)
"""
PATIENT = """
import os, pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
place.mkdir()
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
token = os.urandom(8).hex()
print("up", token)

def until(name):
    while not (place / name).exists():
        time.sleep(0.01)

until("speak")
print("spoken", token)
(place / "spoken").touch()
until("go")
print("done", token)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server that these tests may kill. Each of them leaves it running."""
    folder = tmp_path_factory.mktemp("survival")
    with serving(
        folder,
        CLOUDML_ENGINE_STOP_GRACE_S=1,
        CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=6,
        CLOUDML_SERVER_SHUTDOWN_TIMEOUT_S=120,
    ) as running:
        yield running


@pytest.fixture
def client(server: RealServer) -> CloudMlClient:
    return server.client()


class Patient:
    """A job that speaks and ends when it is told to, by files in its folder of the bucket."""

    def __init__(
        self, server: RealServer, client: CloudMlClient, folder: Path, *words: str, code: int = 0
    ) -> None:
        self._place = server.bucket(folder.name)
        self._server = server
        uri = f"fds://cloudml/{folder.name}"
        code_folder = trainer(folder / "code", PATIENT)
        job = TrainJob(
            folder.name.replace("_", "-"),
            "trainer.task",
            str(code_folder),
            job_args=[uri, str(code), *words],
        )
        self.handle: JobHandle = client.submit_train_job(job)
        self.token = eventually(self._token, "the job speaks")

    @property
    def supervisor(self) -> int:
        """The process id of the job's supervisor, which is of one piece with its processes."""
        gate = self._server.ledger.gate(GangKey(self.handle.uid, 1))
        assert gate is not None
        assert is_alive(gate)
        return gate.pid

    @property
    def processes(self) -> set[int]:
        """Every process of the job."""
        return set(proctree.find_marked(f"CLOUDML_GANG={self.handle.uid}.1"))

    def speak(self) -> None:
        """Have it print its second line, and wait until it has."""
        (self._place / "speak").touch()
        eventually((self._place / "spoken").exists, "the job has spoken")

    def go(self) -> None:
        """Have it print its last line and end."""
        (self._place / "go").touch()

    def ended(self) -> bool:
        """Whether the engine has its end on record, server or not."""
        seen = self._server.observed(self.handle.uid)
        return seen is not None and seen.state.over

    def is_complete(self, log: bytes) -> bool:
        """Whether ``log`` has everything it said, once and in order, behind the words of the
        installation.
        """
        expected = "".join(f"{word} {self.token}\n" for word in ("up", "spoken", "done")).encode()
        return log.endswith(expected) and log.count(self.token.encode()) == 3

    def _token(self) -> str | None:
        log = self._server.ledger.log_folder(GangKey(self.handle.uid, 1)) / "master-0.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return next((line.removeprefix("up ") for line in lines if line.startswith("up ")), None)


# ---- a killed server and its jobs


def test_a_running_job_is_adopted_again_with_the_same_process_and_a_complete_log(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = Patient(server, client, tmp_path)
    supervisor, processes = job.supervisor, job.processes
    assert processes
    followed = _follow(job.handle)
    server.kill()
    job.speak()
    assert (job.supervisor, job.processes) == (supervisor, processes)
    server.start()
    eventually(lambda: job.handle.refresh().phase == Phase.RUNNING, "its status says that it runs")
    job.go()
    ended = job.handle.wait(30)
    assert (ended.phase, ended.attempt) == (Phase.SUCCEEDED, 1)
    assert job.is_complete(b"".join(job.handle.logs()))
    assert followed() == b"".join(job.handle.logs())


def test_a_job_that_ended_while_the_server_was_dead(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = Patient(server, client, tmp_path, code=7)
    server.kill()
    job.speak()
    job.go()
    eventually(job.ended, "the job has ended")
    server.start()
    ended = job.handle.wait(30)
    assert (ended.phase, ended.reason, ended.exit_code, ended.attempt) == (
        Phase.FAILED,
        "NonZeroExit",
        7,
        1,
    )
    assert job.is_complete(b"".join(job.handle.logs()))


def test_a_cancel_that_was_answered_takes_effect_after_the_crash(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = Patient(server, client, tmp_path, "stubborn")  # it cannot have ended before the kill
    job.handle.cancel()
    server.kill()
    assert job.processes
    server.start()
    ended = job.handle.wait(30)
    assert (ended.phase, ended.reason) == (Phase.STOPPED, "Cancelled")
    assert job.processes == set()


def test_a_saved_job_is_kept_and_can_be_started_after_the_crash(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path, "print('at last')"))
    saved = client.submit_train_job(TrainJob("kept-saved", "trainer.task", code, save_mode=True))
    server.kill()
    server.start()
    assert saved.refresh().phase == Phase.SAVED
    client.start_train_job(saved.uid)
    assert saved.wait(30).succeeded


def test_sigterm_lets_go_of_followers_and_harms_no_job(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = Patient(server, client, tmp_path)
    followers = [_follow(job.handle) for _ in range(5)]
    eventually(lambda: server.connections() >= 5, "the followers are connected")
    assert server.terminate() < 60, "other requests get two minutes"
    job.speak()
    server.start()
    job.go()
    assert job.handle.wait(30).succeeded
    assert job.is_complete(b"".join(job.handle.logs()))
    assert [followed() for followed in followers] == [b"".join(job.handle.logs())] * 5


@pytest.mark.slow
def test_the_api_answers_after_each_crash(server: RealServer, client: CloudMlClient) -> None:
    """How soon is for ``benchmarks/idle.py`` to say."""
    for _ in range(3):
        server.kill()
        server.start()
        assert client.whoami().user == "admin"


def test_a_dead_spawner_and_a_dead_server_at_once(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = Patient(server, client, tmp_path)
    server.kill()
    server.kill_spawner()
    job.speak()
    server.start()
    job.go()
    assert job.handle.wait(30).succeeded
    assert job.is_complete(b"".join(job.handle.logs()))
    assert server.observed(job.handle.uid).state is GangState.EXITED  # type: ignore[union-attr]


# ---- under load


class Submitter(threading.Thread):
    """Submits jobs under given names, each until it is acknowledged, whatever happens to the
    server.
    """

    def __init__(
        self, client: CloudMlClient, names: list[str], uri: str, acknowledged: list[str]
    ) -> None:
        super().__init__()
        self._client = client
        self._names = names
        self._uri = uri
        self._acknowledged = acknowledged

    def run(self) -> None:
        for name in self._names:
            while not self._submitted(name):
                pass
            self._acknowledged.append(name)

    def _submitted(self, name: str) -> bool:
        job = TrainJob(name, "trainer.task", self._uri, job_args=[f"fds://cloudml/load/{name}"])
        try:
            self._client.submit_train_job(job)
        except (
            AlreadyExists
        ) as error:  # the answer to an earlier try was lost: this one tells what became of it
            return error.same_spec is True
        except CloudMlError:  # no answer: unknown, so ask again
            return False
        return True


class Watcher(threading.Thread):
    """Looks at the acknowledged jobs until each has ended, and notes the order of every state
    that it is shown.
    """

    def __init__(self, client: CloudMlClient, acknowledged: list[str]) -> None:
        super().__init__()
        self.seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.enough = threading.Event()
        self._client = client
        self._acknowledged = acknowledged

    def run(self) -> None:
        ended: set[str] = set()
        while not self.enough.is_set():
            for name in [name for name in self._acknowledged if name not in ended]:
                try:
                    job = self._client.describe_train_job(name)
                except CloudMlError:
                    continue
                self.seen[name].append(WorkloadStatus(Phase(job.phase), attempt=job.attempt).order)
                if job.finished:
                    ended.add(name)


@pytest.mark.slow
def test_killed_at_random_moments_under_load(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    luck = random.Random(2016)
    first = client.submit_train_job(
        TrainJob("load-first", "trainer.task", str(trainer(tmp_path, BRIEF)), save_mode=True)
    )
    uri = first.job.spec["trainer_uri"]
    client.storage.upload(tmp_path / "trainer" / "__init__.py", "fds://cloudml/load/made")
    names = [[f"load-{one}-{number}" for number in range(12)] for one in range(3)]
    everyone = [name for some in names for name in some]
    acknowledged: list[str] = []
    submitters = [Submitter(server.client(), some, uri, acknowledged) for some in names]
    watcher = Watcher(server.client(), acknowledged)
    for thread in (*submitters, watcher):
        thread.start()
    for kill in range(5):
        eventually(lambda kills=kill: len(acknowledged) > 6 * kills, "more jobs are acknowledged")
        threading.Event().wait(luck.uniform(0.0, 0.4))  # the random moment that this test is about
        server.kill()
        server.start()
    for thread in submitters:
        thread.join(60)
    ended = {name: client.get_train_job(name).wait(60) for name in everyone}
    watcher.enough.set()
    watcher.join(60)

    assert sorted(acknowledged) == sorted(everyone)
    assert {name: (job.phase, job.attempt) for name, job in ended.items()} == dict.fromkeys(
        everyone, (Phase.SUCCEEDED, 1)
    )
    runs = {name: server.bucket("load", name).read_text() for name in everyone}
    assert runs == dict.fromkeys(everyone, "1\n")
    whole = "".join(f"line {number}\n" for number in range(LINES)).encode()
    logs = {name: b"".join(client.train_job_logs(name)) for name in everyone}
    assert [
        name for name, log in logs.items() if not log.endswith(whole) or log.count(b"line") != LINES
    ] == []
    assert all(orders == sorted(orders) for orders in watcher.seen.values())
    assert any(len(set(orders)) > 1 for orders in watcher.seen.values())


def _follow(handle: JobHandle) -> Callable[[], bytes]:
    """Follow a job's log in a thread; call the result for all of it."""
    chunks: list[bytes] = []
    thread = threading.Thread(target=lambda: chunks.extend(handle.logs(follow=True)), daemon=True)
    thread.start()

    def whole() -> bytes:
        thread.join(60)
        assert not thread.is_alive()
        return b"".join(chunks)

    return whole
