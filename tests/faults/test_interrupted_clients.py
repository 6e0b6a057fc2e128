"""The server is killed while clients log to runs, and ask for trials and tell their values: all that
was acknowledged is there once, and trials are those of a server that nobody has killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloud_ml.sdk.ask_tell import TrialHandle
from cloud_ml.sdk.runs import LoggedValue
from faults.scenes import SLICE, Reviver, fragile, insist, order, reached
from support.server import RealServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]
POINTS = ("state.commit.before", "state.commit.after")
BATCHES, VALUES, TRIALS = 2, 200, 3
SPACE = {"x": {"min": 0.0, "max": 1.0}, "c": ["a", "b", "c"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_what_is_logged_is_there_once(point: str, server: RealServer) -> None:
    runs = server.client().runs
    uid = runs.create("logs")
    with Reviver(server) as reviver:
        for batch in range(BATCHES):
            steps = range(batch * VALUES, (batch + 1) * VALUES)
            metrics = [LoggedValue("loss", 1 / (step + 1), step, step) for step in steps]
            params, tags = {f"p{batch}": "1"}, {f"t{batch}": "1"}
            order(server, point)
            insist(lambda m=metrics, p=params, t=tags: runs.log(uid, metrics=m, params=p, tags=t))
        assert reached(server, point) is not None, "nobody passed"
        points = insist(lambda: list(runs.all_points(uid, "loss")))
        run = insist(lambda: runs.describe(uid))
    assert reviver.revived >= 1
    assert [one.step for one in points] == list(range(BATCHES * VALUES))
    assert {f"p{batch}" for batch in range(BATCHES)} <= set(run.params)
    assert {f"t{batch}" for batch in range(BATCHES)} <= set(run.tags)


def _value_of(trial: TrialHandle) -> float:
    x: float = trial.parameters["x"]
    return (x - 0.3) ** 2


def run_trials(server: RealServer, name: str, point: str = "") -> list[dict[str, Any]]:
    """The parameters of the trials of a study; before each request the server is told to die."""
    make = server.client().studies.local
    study = insist(lambda: make(name, SPACE, algorithm="gp", seed=3, max_trials=TRIALS))
    trial = None
    while True:
        if point:
            order(server, point)
        trial = study.ask() if trial is None else study.tell_and_ask(trial, _value_of(trial))
        if trial is None:
            break
        if trial.number % 2 == 0:  # every second end is told by a request of its own
            if point and trial.number == 0:
                order(server, point)
            study.tell(trial, _value_of(trial))
            trial = None
    trials = study.describe().trials
    assert [trial.state for trial in trials] == ["Completed"] * TRIALS
    return [trial.parameters for trial in trials]


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_trials_are_those_of_a_server_that_nobody_kills(point: str, server: RealServer) -> None:
    name = point.replace(".", "-")
    calm = run_trials(server, f"calm-{name}")
    with Reviver(server) as reviver:
        wild = run_trials(server, f"wild-{name}", point)
    assert reviver.revived >= 1
    assert wild == calm
