"""A study whose server, tuner or trials are killed: no trial is lost or run twice, no point is lost
or doubled, and the same parameters are suggested.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud_ml.domain.studies.population import Population
from cloud_ml.domain.studies.samplers import is_sampler
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.spec import Goal, StudySpec, TrialState, TrialStatus
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import Study
from cloud_ml.tuning import algorithms, optuna_samplers, pbt
from cloud_ml.tuning.algorithms import LIGHT
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.numeric import gp
from cloud_ml.tuning.tuner_process import MODULE, OPTUNA_MODULE
from faults.scenes import SLICE, Reviver, fragile, insist, order, reached
from support.event_files import EVENT_WRITER
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints-of-studies")]

STEPS, TRIALS = 5, 8
COLLECTOR = "cloud_ml.collector.main"
SOURCE = f"""{EVENT_WRITER}
import argparse, json, os, time
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
parser.add_argument("--printed", action="store_true")
parser.add_argument("--written", action="store_true")
parser.add_argument("--saves", action="store_true")
parser.add_argument("--endless-from", type=float, default=2)
given = parser.parse_args()
for step in range({STEPS}):
    loss = (given.lr - 0.3) ** 2 + given.layers + 1 / (step + 1)
    if given.printed:
        print(f"step={{step}} loss={{loss!r}}", flush=True)
    elif given.written:
        opened(".").write(scalar("loss", loss, step))
    else:
        job.report(step, loss=loss)
if given.saves:
    found = job.latest()
    begun = json.load(open(found.path)) if found else []
    path = os.path.join(job.checkpoint_dir(), "rates.json")
    json.dump([*begun, given.lr], open(path, "w"))
    job.saved(path, len(begun) + 1)
    print("rates", json.dumps([*begun, given.lr]), flush=True)
while given.lr >= given.endless_from:
    time.sleep(0.01)
"""
SPACE: dict[str, Any] = {
    "lr": {"min": 0.0, "max": 1.0},
    "layers": {"min": 1, "max": 4, "type": "int"},
}
REPORTED = (
    "state.commit.before",
    "state.commit.after",
    "metrics.append.before",
    "metrics.append.after",
    "study.start.before",
    "study.start.after",
    "study.suggest.before",
    "study.suggest.after",
)
PRINTED = ("collector.ask.before", "metrics.file.before", "metrics.file.after")
STOPPED = ("study.stop.before", "study.stop.after")
CHECKPOINTS = ("study.checkpoints.before", "study.checkpoints.after")
INHERITED = ("state.commit.before", "state.commit.after", "study.start.before", "study.start.after")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("studies")) as server:
        yield server


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainer(tmp_path_factory.mktemp("code") / "trainer", SOURCE)


def submit(server: RealServer, code: Path, name: str, *flags: str, **overrides: Any) -> None:
    """A study of one trial at a time, whose suggestions follow from the values before them."""
    patterns = [r"step=(?P<step>\d+) loss=(?P<loss>\S+)"] if "--printed" in flags else None
    job = TrainJob(
        name, "trainer.task", str(code), framework="python", job_args=list(flags),
        metric_patterns=patterns,
    )  # fmt: skip
    usual: dict[str, Any] = {"algorithm": "gp", "max_trials": TRIALS, "parallel": 1, "seed": 7}
    server.client().studies.submit(job, SPACE, **(usual | overrides))


def wait(server: RealServer, name: str) -> Study:
    return insist(lambda: server.client().studies.wait(name, 120))


def suggestions(study: Study, number: int, algorithm: str) -> list[Parameters]:
    """What the algorithm says for a trial: with the values of all before it, and ahead, while the
    last of these ran. Which of both is taken is a matter of time.
    """
    done = [
        Observation(parameters=trial.parameters, outcome=Outcome.DONE, cost=trial.value)
        for trial in study.trials[:number]
    ]
    ahead = [replace(one, outcome=Outcome.RUNNING, cost=None) for one in done[-1:]]
    found = []
    for trials in (done, [*done[:-1], *ahead]):
        problem = Problem(space=parse_space(SPACE), seed=7, number=number, trials=tuple(trials))
        if is_sampler(algorithm):
            suggest = partial(optuna_samplers.suggest, algorithm)
        else:
            suggest = LIGHT.get(algorithms.choose_algorithm(algorithm, problem), gp.suggest)
        found.append(suggest(problem))
    return found


def not_suggested(study: Study, algorithm: str = "gp") -> list[str]:
    """The trials whose parameters the algorithm does not give for their history."""
    return [
        f"{trial.job} has {dict(trial.parameters)}"
        for trial in study.trials
        if trial.parameters not in suggestions(study, trial.number, algorithm)
    ]


def trials_ended(server: RealServer, name: str, count: int) -> bool:
    trials = insist(lambda: server.client().studies.describe(name)).trials
    return sum(trial.state != "Running" for trial in trials) >= count


def wrong(server: RealServer, study: Study) -> list[str]:
    """What is not as it would be if nobody had died."""
    found = []
    if study.phase != "Completed":
        found.append(f"{study.name} is {study.phase}: {study.message}")
    if [trial.number for trial in study.trials] != list(range(len(study.trials))):
        found.append(f"the numbers are {[trial.number for trial in study.trials]}")
    for trial in study.trials:
        job = insist(partial(server.client().get_train_job, trial.job))
        events = [event.reason for event in insist(job.events)]
        if events.count("Submitted") != 1:
            found.append(f"{trial.job} was submitted {events.count('Submitted')} times")
        attempt = insist(partial(server.client().describe_train_job, trial.job)).attempt
        if attempt != 1:
            found.append(f"{trial.job} ran {attempt} times")
        points = insist(lambda job=job: job.points("loss"))  # type: ignore[misc]
        if [point.step for point in points] != list(range(STEPS)):
            found.append(f"{trial.job} has the points {points}")
    return found


@pytest.mark.parametrize("point", (*REPORTED, *PRINTED)[::SLICE])
def test_killed_at(point: str, server: RealServer, code: Path) -> None:
    name = point.replace(".", "-")
    with Reviver(server):
        submit(server, code, name, *(["--printed"] if point in PRINTED else []))
        eventually(lambda: trials_ended(server, name, 3), "some trials have ended", limit_s=60)
        order(server, point)
        study = wait(server, name)
    assert reached(server, point) is not None, "nobody passed"
    assert wrong(server, study) == []
    assert not_suggested(study) == []


@pytest.mark.parametrize("point", STOPPED[::SLICE])
def test_killed_while_a_trial_is_stopped(point: str, server: RealServer, code: Path) -> None:
    name = point.replace(".", "-")
    order(server, point)
    with Reviver(server):
        submit(
            server, code, name, "--endless-from=0.5", algorithm="random", max_trials=2,
            trials=[{"lr": 0.1, "layers": 1}, {"lr": 0.9, "layers": 1}],
            stopper="threshold", stopper_options={"above": 2.3},
        )  # fmt: skip
        study = wait(server, name)
    assert reached(server, point) is not None, "nobody passed"
    assert wrong(server, study) == []
    assert [trial.state for trial in study.trials] == ["Completed", "EarlyStopped"]


@pytest.mark.parametrize("point", INHERITED[::SLICE])
def test_killed_while_members_go_on_from_checkpoints(
    point: str, server: RealServer, code: Path
) -> None:
    name = f"pbt-{point.replace('.', '-')}"
    with Reviver(server):
        options = {"population": 3, "resample_probability": 0.5}
        submit(
            server, code, name, "--saves", algorithm="pbt", algorithm_options=options, max_trials=9,
            keep_checkpoints="best",
        )  # fmt: skip
        eventually(lambda: trials_ended(server, name, 3), "all members have begun", limit_s=60)
        order(server, point)
        study = wait(server, name)
    assert reached(server, point) is not None, "nobody passed"
    assert wrong(server, study) == []
    assert not_inherited(server, study) == []


@pytest.mark.parametrize("point", CHECKPOINTS[::SLICE])
def test_killed_while_checkpoints_of_trials_are_removed(
    point: str, server: RealServer, code: Path
) -> None:
    name = f"keeps-{point.replace('.', '-')}"
    order(server, point)
    with Reviver(server):
        submit(
            server, code, name, "--saves", algorithm="random", max_trials=3, keep_checkpoints="best"
        )
        study = wait(server, name)

        def kept() -> list[str]:
            folders = server.bucket(".checkpoints").glob(f"{name}-hp-*")
            return [folder.name.rpartition("-")[0] for folder in folders]

        def removed() -> list[str]:
            trials = insist(lambda: server.client().studies.describe(name)).trials
            return [trial.checkpoints for trial in trials]

        eventually(lambda: removed().count("Removed") == 2, "two are removed", limit_s=60)
    assert reached(server, point) is not None, "nobody passed"
    assert wrong(server, study) == []
    assert study.best is not None
    assert kept() == [study.best.job]


@pytest.mark.parametrize("point", INHERITED[2::SLICE])
def test_killed_while_the_best_are_repeated(point: str, server: RealServer, code: Path) -> None:
    name = f"repeats-{point.replace('.', '-')}"
    with Reviver(server):
        submit(server, code, name, algorithm="random", max_trials=3, repeats=2, repeat_best=2)
        eventually(lambda: trials_ended(server, name, 3), "the search has ended", limit_s=60)
        order(server, point)
        study = wait(server, name)
    assert reached(server, point) is not None, "nobody passed"
    assert wrong(server, study) == []
    first, second = sorted(study.trials[:3], key=lambda trial: trial.value or 0)[:2]
    assert [trial.repeat_of for trial in study.trials[3:]] == [first.number, second.number] * 2
    assert study.trials[3].parameters == first.parameters


def not_inherited(server: RealServer, study: Study) -> list[str]:
    """The trials that are not what the algorithm gives for those before, or that did not begin from
    the checkpoint of their parent.
    """
    found, rates = list[str](), dict[int, list[float]]()
    spec = StudySpec(
        job=TrainJob(study.name, "trainer.task", "code"), space=parse_space(SPACE), metric="loss",
        goal=Goal.MINIMIZE, algorithm="pbt", max_trials=9, parallel=1, max_failed=3, seed=7,
        population=Population(population=3, resample_probability=0.5),
    )  # fmt: skip
    history = [
        TrialStatus(
            number=trial.number, parameters=trial.parameters, state=TrialState(trial.state),
            value=trial.value, parent=trial.parent, member=trial.member,
        )
        for trial in study.trials
    ]  # fmt: skip
    for trial in history:
        suggestion = pbt.suggest(spec, history[: trial.number], trial.number)
        if (suggestion.parameters, suggestion.parent, suggestion.member) != (
            trial.parameters, trial.parent, trial.member,
        ):  # fmt: skip
            found.append(f"trial {trial.number} is {trial}, suggested was {suggestion}")
        job = study.trials[trial.number].job
        log = insist(lambda job=job: server.cli("jobs", "logs", job).good().out)  # type: ignore[misc]
        (line,) = [one for one in log.splitlines() if one.startswith("rates ")]
        rates[trial.number] = json.loads(line.removeprefix("rates "))
        before = [] if trial.parent is None else rates[trial.parent]
        if rates[trial.number] != [*before, trial.parameters["lr"]]:
            found.append(f"trial {trial.number} has trained with {rates[trial.number]}")
    return found


@pytest.mark.parametrize("algorithm", ["gp", "optuna:CmaEsSampler"])
def test_killed_tuners(algorithm: str, server: RealServer, code: Path) -> None:
    name = f"tuners-{algorithm.partition(':')[0]}"
    submit(server, code, name, algorithm=algorithm)
    eventually(lambda: trials_ended(server, name, 3), "some trials have ended", limit_s=60)
    with killed_children(server, {MODULE, OPTUNA_MODULE}) as killed:
        eventually(lambda: len(killed) >= 1, "a tuner was killed", limit_s=60)
    study = wait(server, name)
    assert wrong(server, study) == []
    assert not_suggested(study, algorithm) == []


@pytest.mark.parametrize("kind", ["patterns", "event files"])
def test_killed_collectors(kind: str, server: RealServer, code: Path) -> None:
    name = f"collectors-{kind.partition(' ')[0]}"
    submit(server, code, name, "--printed" if kind == "patterns" else "--written")
    with killed_children(server, {COLLECTOR}) as killed:
        eventually(lambda: len(killed) >= 5, "collectors were killed", limit_s=120)
    study = wait(server, name)
    assert wrong(server, study) == []
    assert not_suggested(study) == []


@contextlib.contextmanager
def killed_children(server: RealServer, modules: set[str]) -> Iterator[set[int]]:
    """Kills one process of these modules after the other; gives the set of those that were."""
    killed = set[int]()
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            for pid in list(children(server, modules) - killed)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def children(server: RealServer, modules: set[str]) -> set[int]:
    """The processes of the server that run one of these modules."""
    assert server.process is not None
    found = set()
    for child in psutil.Process(server.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if modules & set(child.cmdline()):
                found.add(child.pid)
    return found


def test_killed_trials(server: RealServer, code: Path) -> None:
    submit(server, code, "victims", "--endless-from=0.5", trials=[{"lr": 0.9, "layers": 1}],
           algorithm="random", max_trials=1, max_failed=1)  # fmt: skip
    listed = server.client().list_train_jobs
    eventually(lambda: "victims-hp-0" in [job.name for job in listed()], "the trial has a job")
    job = server.client().get_train_job("victims-hp-0")
    eventually(
        lambda: [one.count for one in job.series()] == [STEPS], "the trial has reported", limit_s=60
    )
    victims = endless_trials()
    assert victims
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    study = wait(server, "victims")
    assert [trial.state for trial in study.trials] == ["Failed"]
    assert [point.step for point in job.points("loss")] == list(range(STEPS))


def endless_trials() -> set[int]:
    """The interpreters of trials that run for ever."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or [""]
        if "--endless-from=0.5" in line and Path(line[0]).name.startswith("python"):
            found.add(process.pid)
    return found
