"""Two servers of one machine on one PostgreSQL and one data folder: the leaders are killed in turns,
and a study of jobs goes on as if nobody had died.
"""

from __future__ import annotations

import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Self

import pytest

from cloud_ml import failpoints
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import Study
from cloud_ml.tuning import algorithms
from cloud_ml.tuning.algorithms import LIGHT
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.numeric import gp
from faults.scenes import SLICE, insist, order, reached
from faults.test_studies import SPACE, STEPS, trials_ended, wrong
from support.event_files import EVENT_WRITER
from support.postgres import Postgres
from support.server import RealServer, eventually, trainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("postgresql"),
]
POINTS = (
    "state.commit.after",
    "metrics.append.before",
    "metrics.append.after",
    "study.start.before",
    "study.start.after",
    "study.suggest.before",
    "study.suggest.after",
)
TRIALS, PARALLEL, DEATHS = 4, 2, 4
"""The trials are so many more after each death."""
SOURCE = f"""
import argparse, time
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
given = parser.parse_args()
for step in range({STEPS}):
    job.report(step, loss=(given.lr - 0.3) ** 2 + given.layers + 1 / (step + 1))
    time.sleep(0.2)
"""
LONG = """
import os, pathlib, time, urllib.request
print("begins", flush=True)
while not (pathlib.Path.home() / "go").exists():
    time.sleep(0.05)
print("ends", flush=True)
"""
MLFLOW = """
request = urllib.request.Request(
    os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/experiments/search?max_results=1",
    headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
)
for _ in range(600):
    try:
        print("MLflow:", urllib.request.urlopen(request, timeout=10).status, flush=True)
        break
    except OSError as error:
        print("again:", error, flush=True)
        time.sleep(0.1)
"""
"""The way of a job to its tracking server: the one that leads listens for jobs."""
MLFLOW_AT_ONCE = f"import os, time, urllib.request{MLFLOW}"

CALLING = """
import os, pathlib, time, urllib.request
home = pathlib.Path.home()
request = urllib.request.Request(
    os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/experiments/search?max_results=1",
    headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
)
while not (home / "go").exists():
    try:
        urllib.request.urlopen(request, timeout=5).read()
        (home / "answered").touch()
    except OSError as error:
        if getattr(error, "code", 500) < 500:
            raise
    time.sleep(0.02)
"""

WRITING = f"""{EVENT_WRITER}
import itertools, pathlib
end = pathlib.Path.home() / "go"
files = [opened("runs/a"), opened("runs/b")]
for step in itertools.count():
    for file in files:
        data = scalar("loss", step / 7, step)
        for half in (data[:9], data[9:]):  # a reader finds half a record, too
            file.write(half)
            time.sleep(0.01)
    if step == 50:  # another file goes on in the folder of the first
        files[0] = opened("runs/a", 2)
    if end.exists():
        break
print("steps:", step + 1, flush=True)
"""


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path
) -> Iterator[tuple[RealServer, RealServer]]:
    """Two servers, of which the first leads. The parameter is the network of jobs."""
    tmp_path.chmod(0o755)
    settings = {
        "CLOUDML_SERVER_DATABASE_URL": postgres.emptied(),
        "CLOUDML_SERVER_SHARED_DATA": "true",
        "CLOUDML_CONTROLLER_LEASE_TTL_S": 6,
        "CLOUDML_ENGINE_NETWORK": getattr(request, "param", "auto"),
        "CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 6,
    }
    for name in ("one", "one-orders", "other"):
        (tmp_path / name).mkdir()
    fragile = {failpoints.FOLDER: tmp_path / "one-orders", failpoints.ALLOWED: failpoints.WORD}
    one = RealServer(tmp_path / "one", **settings, **fragile)
    other = RealServer(tmp_path / "other", **settings)
    other.data = one.data
    try:
        one.start()
        eventually(lambda: leads(one), "the first server leads")
        other.start()
        yield one, other
    finally:
        other.kill()
        one.destroy()
        other.destroy()


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_a_leader_that_dies_in_the_middle_of_a_step(
    point: str, pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    """Nobody starts it again: the other server takes over where it stood."""
    one, other = pair
    code = trainer(tmp_path / "trainer", SOURCE)
    job = TrainJob("step", "trainer.task", str(code), framework="python")
    submitted = {"algorithm": "gp", "max_trials": 6, "parallel": PARALLEL, "seed": 7}
    one.client().studies.submit(job, SPACE, **submitted)  # type: ignore[arg-type]
    eventually(partial(trials_ended, one, "step", 1), "a trial has ended")
    order(one, point)
    eventually(lambda: reached(one, point) is not None, "it has passed")
    study = other.client().studies.wait("step", 120)
    assert wrong(other, study) == []
    assert not_suggested(study) == []
    assert one.process is not None
    assert one.process.wait(10) == -signal.SIGKILL, "the leader passed, and not the other one"


def leads(server: RealServer) -> bool:
    """Whether the server says that it leads; not if it does not answer."""
    try:
        with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=5) as answer:
            return "\ncloudml_controller_leads 1" in answer.read().decode()
    except OSError:
        return False


def leader(servers: Sequence[RealServer]) -> RealServer:
    found: list[RealServer] = eventually(
        lambda: [server for server in servers if leads(server)], "a server leads"
    )
    assert len(found) == 1, "one at a time"
    return found[0]


class Asking(threading.Thread):
    """Asks a server all the time, whoever leads; what it may not say is noted."""

    def __init__(self, server: RealServer, ask: Callable[[RealServer], str]) -> None:
        super().__init__(daemon=True)
        self.answers, self.wrong = 0, set[str]()
        self._server, self._ask, self._over = server, ask, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.05):
            if found := insist(partial(self._ask, self._server)):
                self.wrong.add(found)
            self.answers += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def trials_at(name: str) -> Callable[[RealServer], str]:
    """Says what is wrong with the trials that a server tells of: each number stays with its
    parameters, and a trial that has ended has not begun again.
    """
    seen: dict[int, tuple[Parameters, bool]] = {}

    def ask(server: RealServer) -> str:
        for trial in server.client().studies.describe(name).trials:
            before = seen.get(trial.number)
            over = trial.state != "Running"
            if before is not None and (before[0] != trial.parameters or before[1] > over):
                return f"{trial.job} was {before} and is {trial}"
            seen[trial.number] = (trial.parameters, over)
        return ""

    return ask


def not_suggested(study: Study) -> list[str]:
    """The trials whose parameters the algorithm gives for no history that they may have had: of the
    last ones before a trial, each may have run on still.
    """
    return [
        f"{trial.job} has {dict(trial.parameters)}"
        for trial in study.trials
        if trial.parameters not in suggestions(study, trial.number)
    ]


def suggestions(study: Study, number: int) -> Iterator[Parameters]:
    done = [
        Observation(parameters=trial.parameters, outcome=Outcome.DONE, cost=trial.value)
        for trial in study.trials[:number]
    ]
    last = done[-PARALLEL - 1 :]
    for running in product((False, True), repeat=len(last)):
        latest = [
            replace(one, outcome=Outcome.RUNNING, cost=None) if runs else one
            for one, runs in zip(last, running, strict=True)
        ]
        trials = (*done[: len(done) - len(last)], *latest)
        problem = Problem(space=parse_space(SPACE), seed=7, number=number, trials=trials)
        yield LIGHT.get(algorithms.choose_algorithm("gp", problem), gp.suggest)(problem)


def test_a_study_whose_leaders_are_killed_in_turns(
    pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    name = "turns"
    code = trainer(tmp_path / "trainer", SOURCE)
    _, follower = pair
    job = TrainJob(name, "trainer.task", str(code), framework="python")
    follower.client().studies.submit(
        job, SPACE, algorithm="gp", max_trials=TRIALS, parallel=PARALLEL, seed=7
    )
    asking = [Asking(server, trials_at(name)) for server in pair]
    with asking[0], asking[1]:
        for deaths in range(DEATHS):
            victim = leader(pair)
            survivor = pair[1] if victim is pair[0] else pair[0]
            enough = partial(trials_ended, survivor, name, deaths * TRIALS + 1)
            eventually(enough, "trials have ended while this one led")
            victim.kill()
            eventually(partial(leads, survivor), "the other server leads", limit_s=10)
            insist(partial(survivor.client().studies.extend, name, TRIALS))
            victim.start()
        study = insist(lambda: pair[0].client().studies.wait(name, 120))
    assert [each.wrong for each in asking] == [set(), set()]
    assert all(each.answers for each in asking)
    assert len(study.trials) == (DEATHS + 1) * TRIALS
    for server in pair:
        assert wrong(server, insist(partial(server.client().studies.describe, name))) == []
    assert not_suggested(study) == []


def test_a_job_is_followed_at_the_other_server(
    pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    one, other = pair
    client = other.client()
    job = client.submit_train_job(
        TrainJob("long", "trainer.task", str(trainer(tmp_path / "trainer", LONG + MLFLOW)),
                 framework="python")
    )  # fmt: skip
    chunks: list[bytes] = []
    follower = threading.Thread(target=lambda: chunks.extend(job.logs(follow=True)), daemon=True)
    follower.start()
    eventually(lambda: b"begins\n" in b"".join(chunks), "the job has begun")
    one.kill()
    eventually(lambda: leads(other), "the other server leads", limit_s=10)
    eventually(lambda: client.describe_train_job("long").phase == "Running", "the job runs on")
    (one.ledger.work_folder(job.uid) / "go").touch()
    assert job.wait(60).phase == "Succeeded"
    follower.join(30)
    text = b"".join(chunks)
    assert [text.count(b"begins\n"), text.count(b"ends\n")] == [1, 1]
    assert b"MLflow: 200" in text, text.decode()
    assert client.describe_train_job("long").attempt == 1


def test_a_leader_that_hangs_is_followed_and_changes_nothing_when_it_wakes_up(
    pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    one, other = pair
    client = other.client()
    code = str(trainer(tmp_path / "trainer", LONG))
    job = client.submit_train_job(TrainJob("hung", "trainer.task", code, framework="python"))
    eventually(lambda: client.describe_train_job("hung").phase == "Running", "the job runs")
    assert one.process is not None
    one.process.send_signal(signal.SIGSTOP)
    eventually(lambda: leads(other), "the other server leads")
    (one.ledger.work_folder(job.uid) / "go").touch()
    assert job.wait(60).phase == "Succeeded"
    one.process.send_signal(signal.SIGCONT)
    eventually(lambda: _answers(one) and not leads(one), "it has noticed that it does not lead")
    assert leads(other)
    assert client.describe_train_job("hung").attempt == 1
    other.kill()
    eventually(lambda: leads(one), "it leads again", limit_s=30)
    again = TrainJob("again", "trainer.task", str(trainer(tmp_path / "quick", MLFLOW_AT_ONCE)),
                     framework="python")  # fmt: skip
    job = one.client().submit_train_job(again)
    assert job.wait(60).phase == "Succeeded"
    assert b"MLflow: 200" in b"".join(job.logs())


def test_files_grow_while_leaders_die_and_hang_in_turns(
    pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    one, other = pair
    code = trainer(tmp_path / "trainer", WRITING)
    jobs = [
        other.client().submit_train_job(
            TrainJob(f"writes-{number}", "trainer.task", str(code), framework="python")
        )
        for number in range(2)
    ]

    def counts(server: RealServer) -> list[int]:
        runs = server.client().runs
        return [each.count for job in jobs for each in insist(partial(runs.series, job.uid))]

    def grow(server: RealServer, by: int) -> None:
        before = counts(server)
        least = min(before, default=0) + by
        eventually(
            lambda: len(found := counts(server)) == 4 and min(found) > least,
            "points are read",
            limit_s=60,
        )

    grow(one, 0)
    for deaths in range(4):
        victim = leader(pair)
        survivor = other if victim is one else one
        assert victim.process is not None
        if deaths % 2:
            victim.process.send_signal(signal.SIGSTOP)
        else:
            victim.kill()
        eventually(partial(leads, survivor), "the other server leads", limit_s=20)
        grow(survivor, 10)
        if deaths % 2:  # it was in the middle of something, which it goes on with
            victim.process.send_signal(signal.SIGCONT)
        else:
            victim.start()
        eventually(partial(_answers, victim), "it answers again", limit_s=30)
    for job in jobs:
        (one.ledger.work_folder(job.uid) / "go").touch()
    for job in jobs:
        handle = insist(partial(other.client().get_train_job, job.name))
        assert insist(partial(handle.wait, 60)).phase == "Succeeded"
        steps = int(b"".join(handle.logs()).split(b"steps:")[1])
        for each in insist(partial(other.client().runs.series, job.uid)):
            found = list(other.client().runs.all_points(job.uid, each.name))
            assert [(point.step, round(point.value * 7)) for point in found] == [
                (step, step) for step in range(steps)
            ]


@pytest.mark.parametrize("pair", ["none"], indirect=True)
def test_a_job_without_a_network_calls_whoever_leads(
    pair: tuple[RealServer, RealServer], tmp_path: Path
) -> None:
    one, other = pair
    job = one.client().submit_train_job(
        TrainJob("calls", "trainer.task", str(trainer(tmp_path / "trainer", CALLING)),
                 framework="python")
    )  # fmt: skip
    home = one.ledger.work_folder(job.uid)

    def is_answered() -> None:
        for number in range(2):  # the first may have been under way
            found = home / "answered"
            found.unlink(missing_ok=True)
            eventually(found.exists, f"it is answered, {number}")

    is_answered()
    assert one.process is not None
    one.process.send_signal(signal.SIGSTOP)
    eventually(lambda: leads(other), "the other server leads")
    is_answered()
    one.process.send_signal(signal.SIGCONT)
    eventually(lambda: _answers(one) and not leads(one), "it has noticed that it does not lead")
    is_answered()
    other.kill()
    eventually(lambda: leads(one), "it leads again", limit_s=30)
    is_answered()
    (home / "go").touch()
    done = job.wait(60)
    assert (done.phase, done.attempt) == ("Succeeded", 1)


def _answers(server: RealServer) -> bool:
    try:
        with urllib.request.urlopen(f"{server.endpoint}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
