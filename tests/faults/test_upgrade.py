"""A server of an earlier commit, with jobs that run, and then today's on the same data, after
SIGTERM and SIGKILL.

It needs the history of the repository; an archive of the sources has none, and the tests say so.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.sql.migrations import HEAD
from faults.test_failpoints_of_a_start import version
from support import invariants
from support.calling import calling, token_of
from support.environments import pack
from support.server import RealServer, eventually, trainer
from support.services import ServiceApi, deployed, running
from support.serving import save_linear
from support.unpacking import UNPACKING

OLD = "8c35349"
"""The last commit with schema 0002."""
WITH_SERVICES = "2e94322"
"""An early commit with model services: its gateway and replicas speak the first protocols."""
FLAT = "b07cd2b3"
"""The last commit before the modules of the local engine moved into packages."""
GANGS = "74d1b19d"
"""The earliest commit of this history with jobs of several tasks, and before trials were rows."""
LINEAR = {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"}
_ROOT = Path(__file__).parents[2]

TASK = """
import fcntl, os, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
task = os.environ["CLOUDML_ROLE"] + "-" + os.environ["CLOUDML_INDEX"]
start = f"{task} {os.environ['CLOUDML_ATTEMPT']} {os.environ['CLOUDML_TASK_RESTART']}"
lock = open(place / ("lock-" + task), "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (place / "overlap").write_text(start)
(place / ("start " + start)).touch(exist_ok=False)
while not (place / "go").exists():
    if (place / ("end " + start)).exists():
        sys.exit(3)
    time.sleep(0.02)
"""
"""A task that runs until all may go, or until it is told to fail. No start of it happens twice."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("upgrade")]


def installed(commit: str, folder: Path) -> Path:
    """The program of an old commit, in an environment of its own, with today's dependencies."""
    command = ["git", "-C", str(_ROOT), "archive", commit, "src/cloud_ml"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(
            f"the old server comes from the repository's history, and there is no git: {error}"
        )
    if done.returncode:
        pytest.skip(f"the commit {commit} is not in this history: {done.stderr.decode().strip()}")
    folder.chmod(0o755)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, **UNPACKING)
    venv.create(folder / "venv", symlinks=True)
    site = site_of(folder)
    (folder / "src" / "cloud_ml").rename(site / "cloud_ml")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    program = folder / "venv" / "bin" / "cloudml"
    program.write_text(f"#!{folder}/venv/bin/python\nfrom cloud_ml.cli.main import main\nmain()\n")
    program.chmod(0o755)
    return program


def site_of(folder: Path) -> Path:
    """Where the packages of the environment in ``folder`` lie."""
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(OLD, tmp_path_factory.mktemp("old"))


@pytest.fixture
def server(old: Path, tmp_path: Path) -> Iterator[RealServer]:
    """The old one, which runs."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = RealServer(
        folder, CLOUDML_ENGINE_STOP_GRACE_S=1, CLOUDML_CONTROLLER_MAX_RUNNING_JOBS=2
    )
    server.program = old
    try:
        yield server.start()
    finally:
        server.destroy()


@pytest.mark.parametrize("leave", [RealServer.terminate, RealServer.kill])
def test_jobs_run_on_below_the_next_version(
    leave: Callable[[RealServer], object], server: RealServer, old: Path, tmp_path: Path
) -> None:
    client = server.client()
    file = pack(trainer(tmp_path / "code", invariants.WITNESS), tmp_path / "witness-1.0.tar.gz")
    client.storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")

    def submit(name: str, *words: str, retries: int = 0) -> None:
        words = (f"fds://cloudml/{name}", *words)
        uri = "fds://cloudml/witness-1.0.tar.gz"
        client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                uri,
                job_args=[*words],
                max_retries=retries,
                labels={"of": name},
            )
        )

    submit("ended")
    assert client.get_train_job("ended").wait(60).phase == "Succeeded"
    submit("runs", "wait")
    submit("stops", "forever")
    for name in ("runs", "stops"):
        eventually((server.bucket(name) / "runs").exists, f"{name} runs")
    submit("waits", "fail", retries=1)  # for one of the two places
    before = client.describe_train_job("runs")
    assert version(server.data / "state.db") == "0002"
    events = [event.reason for event in client.get_train_job("ended").events()]
    processes = server.processes_of(before.uid)
    assert processes

    leave(server)
    (server.bucket("runs") / "go").touch()  # it ends while nobody serves, or a moment later
    server.program = RealServer.program
    server.start()
    assert version(server.data / "state.db") == HEAD

    names = ["ended", "runs", "stops", "waits"]
    assert invariants.lost(client, names) == []
    assert sorted(job.name for job in client.list_train_jobs()) == names
    assert [job.name for job in client.list_train_jobs(name="ende*")] == ["ended"]
    assert [job.name for job in client.list_train_jobs(labels={"of": "ended"})] == ["ended"]
    assert [event.reason for event in client.get_train_job("ended").events()] == events
    stops = client.describe_train_job("stops")
    assert (stops.phase, stops.attempt) == ("Running", 1)
    assert server.processes_of(stops.uid)
    client.cancel_train_job("stops")
    assert client.get_train_job("stops").wait(60).phase == "Stopped"
    for name, attempt in (("runs", 1), ("waits", 2)):
        job = client.get_train_job(name).wait(60)
        assert (job.phase, job.attempt) == ("Succeeded", attempt), job.message
        assert invariants.ran_twice(name, server.bucket(name)) == []
    for name, attempts in (("ended", [1]), ("runs", [1]), ("waits", [1, 2])):
        log = b"".join(client.train_job_logs(name))
        assert invariants.log_incomplete(name, log, attempts[-1:], attempts[-1:]) == []

    output = run(old, server, "jobs", "list", "-o", "json")  # a client that was not renewed
    assert all(name in output for name in names), output
    run(old, server, "jobs", "delete", "ended")
    for name in names[1:]:
        client.get_train_job(name).delete()
    eventually(lambda: not list(client.list_train_jobs()), "all are gone")
    assert invariants.left_behind(server) == []

    server.terminate()
    server.program = old
    with pytest.raises(AssertionError, match="newer version"):
        server.start()
    assert version(server.data / "state.db") == HEAD


def test_a_spawner_runs_on_when_its_files_are_replaced(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """An upgrade in place, as pip does it: modules that a running spawner has are gone or moved."""
    place = tmp_path_factory.mktemp("place")
    server = RealServer(tmp_path, CLOUDML_ENGINE_STOP_GRACE_S=1)
    server.program = installed(FLAT, place)
    try:
        client = server.start().client()
        file = pack(trainer(tmp_path / "code", invariants.WITNESS), tmp_path / "witness-1.0.tar.gz")
        uri = "fds://cloudml/witness-1.0.tar.gz"
        client.storage.upload(file, uri)
        words = {"runs": ["wait"], "fails": ["fail"], "new": []}

        def submit(name: str, retries: int = 0) -> None:
            arguments = [f"fds://cloudml/{name}", *words[name]]
            job = TrainJob(name, "trainer.task", uri, job_args=arguments, max_retries=retries)
            client.submit_train_job(job)

        submit("runs")
        eventually((server.bucket("runs") / "runs").exists, "it runs")
        server.kill()
        shutil.rmtree(site_of(place) / "cloud_ml")
        shutil.copytree(_ROOT / "src" / "cloud_ml", site_of(place) / "cloud_ml")
        server.start()
        submit("fails", retries=1)
        submit("new")
        (server.bucket("runs") / "go").touch()
        for name, attempt in (("runs", 1), ("fails", 2), ("new", 1)):
            job = client.get_train_job(name).wait(60)
            assert (job.phase, job.attempt) == ("Succeeded", attempt), job.message
            assert invariants.ran_twice(name, server.bucket(name)) == []
            log = b"".join(client.train_job_logs(name))
            assert invariants.log_incomplete(name, log, [attempt], [attempt]) == []
        assert "Traceback" not in (server.data / "engine" / "spawner.log").read_text()
    finally:
        server.destroy()


@pytest.mark.parametrize("leave", [RealServer.terminate, RealServer.kill])
def test_jobs_of_several_tasks_run_on_below_the_next_version(
    leave: Callable[[RealServer], object],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    """Tasks start again alone while nobody serves; attempts, pauses and restarts follow under the
    next version. No task is lost, and none runs twice at the same time.
    """
    server = RealServer(tmp_path, CLOUDML_ENGINE_STOP_GRACE_S=1)
    server.program = installed(GANGS, tmp_path_factory.mktemp("old"))
    try:
        client = server.start().client()
        file = pack(trainer(tmp_path / "code", TASK), tmp_path / "task-1.0.tar.gz")
        client.storage.upload(file, "fds://cloudml/task-1.0.tar.gz")
        names = ("alone", "attempts", "paused", "resumed")

        def submit(name: str, **fields: object) -> None:
            place = server.bucket(name)
            place.mkdir()
            place.chmod(0o777)  # the tasks have a user of their own
            client.submit_train_job(
                TrainJob(
                    name,
                    "trainer.task",
                    "fds://cloudml/task-1.0.tar.gz",
                    job_args=[f"fds://cloudml/{name}"],
                    framework="python",
                    memory_limit="64M",
                    recipe="cluster",
                    cluster_spec={"worker": {"count": 2}},
                    **fields,
                )
            )

        def await_starts(name: str, attempt: int, restarts: tuple[int, int] = (0, 0)) -> None:
            files = [
                server.bucket(name) / f"start worker-{index} {attempt} {restart}"
                for index, restart in enumerate(restarts)
            ]
            eventually(lambda: all(file.exists() for file in files), f"{name} {attempt} runs")

        def end(name: str, start: str) -> None:
            (server.bucket(name) / f"end {start}").touch()

        submit("alone", task_retries=3)
        for name in names[1:]:
            submit(name, max_retries=2)
        for name in names:
            await_starts(name, 1)
        client.pause_train_job("resumed")
        eventually(lambda: client.describe_train_job("resumed").phase == "Paused", "it is paused")

        leave(server)
        end("alone", "worker-1 1 0")
        await_starts("alone", 1, (0, 1))  # nobody serves
        server.program = RealServer.program
        client = server.start().client()

        end("alone", "worker-0 1 0")
        await_starts("alone", 1, (1, 1))
        end("attempts", "worker-1 1 0")
        client.pause_train_job("paused")
        client.resume_train_job("resumed")
        eventually(lambda: client.describe_train_job("paused").phase == "Paused", "it is paused")
        client.resume_train_job("paused")
        for name in names[1:]:
            await_starts(name, 2)
        for name in names:
            (server.bucket(name) / "go").touch()
        for name, attempt in zip(names, (1, 2, 2, 2), strict=True):
            job = client.get_train_job(name).wait(60)
            assert (job.phase, job.attempt) == ("Succeeded", attempt), job.message
            assert not (server.bucket(name) / "overlap").exists()
        restarts = {task.name: task.restarts for task in client.describe_train_job("alone").tasks}
        assert restarts == {"worker-0": 1, "worker-1": 1}
        for name in names:
            client.get_train_job(name).delete()
        eventually(lambda: not list(client.list_train_jobs()), "all are gone")
        assert invariants.left_behind(server) == []
    finally:
        server.destroy()


@pytest.mark.parametrize("leave", [RealServer.terminate, RealServer.kill])
def test_services_answer_while_the_next_version_takes_over(
    leave: Callable[[RealServer], object], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Gateway and replicas outlive the server that started them: the next one goes on with both."""
    server = RealServer(tmp_path, CLOUDML_GATEWAY_PORTS="18620-18629")
    server.program = installed(WITH_SERVICES, tmp_path_factory.mktemp("old"))
    try:
        server.start()
        save_linear(tmp_path / "linear")
        server.client().storage.upload(
            tmp_path / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        address = deployed(server, LINEAR)
        # The old gateway closes a kept connection although a request may be on its way.
        with calling(address, token_of(server.credentials), keep_alive=False) as load:
            eventually(lambda: load.total > 100, "calls are answered")
            leave(server)
            server.program = RealServer.program
            server.start()
            ask = ServiceApi(server)
            ask.until("/linear/v1", running(1))
            ask("PATCH", "/linear/v1", {"replicas": 2})
            ask.until("/linear/v1", running(2))
            ask("PATCH", "/linear/v1", {"model_args": "--max_batch_size=8"})
            ask.until("/linear/v1", running(2))
            before = load.total
            eventually(lambda: load.total > before + 100, "calls are answered by new replicas")
        assert load.failed == []
        ask("DELETE", "/linear/v1")
        eventually(lambda: ask("GET", "")["items"] == [], "it is gone")
        assert invariants.left_behind(server) == []
    finally:
        server.destroy()


def run(program: Path, server: RealServer, *words: str) -> str:
    done = subprocess.run(
        [str(program), *words], env=server.environment(server.user_home, **server.known),
        capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
