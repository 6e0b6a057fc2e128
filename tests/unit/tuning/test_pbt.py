"""Population based training: whose turn it is, from which checkpoint it goes on, and with which
parameters. All of it follows from the trials.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.studies.decide import ObservedTrials, StartTrial, TrialJob, decide
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.population import Population
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.spec import (
    Goal,
    StudyRecord,
    StudySpec,
    TrialState,
    TrialStatus,
    trial_job,
)
from cloud_ml.domain.studies.values import Suggestion
from cloud_ml.tuning import pbt
from cloud_ml.tuning.algorithms import resolve_name, suggest
from unit.domain.studies.test_decide import NOW, study_record

SPACE = {
    "lr": {"min": 0.001, "max": 1.0, "scale": "log"},
    "layers": {"min": 1, "max": 4, "type": "int"},
    "batch": [16, 32, 64],
    "optimizer": ["adam", "sgd", "lion"],
    "momentum": {"min": 0.0, "max": 1.0, "active_if": {"optimizer": "sgd"}},
    "fixed": {"value": 3},
}


def _spec(space: Any = SPACE, population: int = 4, **options: Any) -> StudySpec:
    members = Population(population=population, **options)
    return study_record(algorithm="pbt", space=parse_space(space), population=members).spec


def _trial(number: int, member: int, value: float | None, **fields: Any) -> TrialStatus:
    state = TrialState.FAILED if value is None else TrialState.COMPLETED
    own = {"lr": 0.1 * (member + 1), "layers": 2, "batch": 32, "optimizer": "adam", "fixed": 3}
    usual = {"parameters": own, "member": member, "value": value, "state": state}
    return TrialStatus(number=number, **{**usual, **fields})


def _suggestion(spec: StudySpec, trials: Sequence[TrialStatus]) -> Suggestion:
    found = suggest(spec, trials, len(trials))
    assert found is not None
    return found


FIRST = [_trial(number, number, value) for number, value in enumerate((0.5, 0.1, 0.9, 0.4))]


def test_each_member_begins_once_with_its_own_parameters() -> None:
    spec, trials = _spec(), list[TrialStatus]()
    for number in range(4):
        suggestion = _suggestion(spec, trials)
        assert (suggestion.member, suggestion.parent) == (number, None)
        trials.append(_trial(number, number, 0.5, parameters=dict(suggestion.parameters)))
    assert len({str(trial.parameters) for trial in trials}) == 4


def test_a_member_goes_on_from_its_own_checkpoint_unless_it_is_among_the_worst() -> None:
    spec = _spec()
    suggestion = _suggestion(spec, FIRST)
    assert (suggestion.member, suggestion.parent) == (0, 0)
    assert suggestion.parameters == FIRST[0].parameters
    third = [*FIRST, _trial(4, 0, 0.5, parent=0), _trial(5, 1, 0.1, parent=1)]
    suggestion = _suggestion(spec, third)
    assert (suggestion.member, suggestion.parent) == (2, 5), (
        "it takes the newest of the best member"
    )
    assert suggestion.parameters != third[5].parameters
    check_trial(spec.space, suggestion.parameters, "trial", ())
    maximized = dataclasses.replace(spec, goal=Goal.MAXIMIZE)
    assert _suggestion(maximized, third).parent == 2, "the largest value is the best one now"


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.INFEASIBLE, TrialState.STOPPED])
def test_a_member_whose_trial_failed_takes_one_of_the_best(state: TrialState) -> None:
    broken = _trial(4, 0, None, parent=0, state=state)
    others = [_trial(5 + n, n + 1, 0.1, parent=n + 1) for n in range(3)]
    suggestion = _suggestion(_spec(), [*FIRST, broken, *others])
    assert (suggestion.member, suggestion.parent) == (0, 5)


def test_members_that_fail_at_once_begin_again_and_the_only_one_goes_on() -> None:
    failed = [_trial(number, number, None) for number in range(4)]
    suggestion = _suggestion(_spec(), failed)
    assert (suggestion.member, suggestion.parent) == (0, None)
    assert suggestion.parameters not in [trial.parameters for trial in failed]
    suggestion = _suggestion(_spec(), [*failed[:3], _trial(3, 3, 0.5)])
    assert (suggestion.member, suggestion.parent) == (0, 3)
    only = [*failed[:3], *[_trial(4 + n, n, None) for n in range(3)]]
    only = [*only[:3], _trial(3, 3, 0.5), *only[3:]]
    assert _suggestion(_spec(), only).parent == 3
    again = [*only, _trial(7, 3, None, parent=3), *[_trial(8 + n, n, None) for n in range(3)]]
    suggestion = _suggestion(_spec(), again)
    assert (suggestion.member, suggestion.parent, suggestion.parameters) == (
        3,
        3,
        only[3].parameters,
    )


def test_members_that_run_are_not_waited_for() -> None:
    trials = [*FIRST[:2], _trial(2, 2, None, state=TrialState.RUNNING), *FIRST[3:]]
    assert [_suggestion(_spec(), trials).member] == [0]
    busy = [dataclasses.replace(one, state=TrialState.RUNNING, value=None) for one in trials]
    free = [*busy[:3], trials[3]]
    assert (_suggestion(_spec(), free).member, _suggestion(_spec(), free).parent) == (3, 3)


def test_without_a_quantile_nobody_takes_from_others() -> None:
    third = [*FIRST, _trial(4, 0, 0.5), _trial(5, 1, 0.1)]
    assert _suggestion(_spec(quantile=0.0), third).parent == 2


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.25, 1.0]), st.floats(0.001, 1.0))
def test_changed_parameters_are_of_the_space(seed: int, resample: float, lr: float) -> None:
    space = {**SPACE, "low": {"min": 0, "max": 9, "type": "int"}, "x": {"min": -1, "max": 1}}
    space["beta"] = {"min": 0.9, "max": 0.999, "scale": "reverse-log"}
    constraints = ("layers * batch <= 128", "low < 9 * layers")
    spec = dataclasses.replace(_spec(space), constraints=constraints)
    options = Population(resample_probability=resample)
    before = {**FIRST[0].parameters, "lr": lr, "low": 3, "x": -0.5, "beta": 0.99}
    luck = random.Random(seed)
    changed = pbt.explore(spec, options, before, luck)
    assert check_trial(spec.space, changed, "trial", constraints) == changed
    if resample == 0.0 and changed != before:
        assert changed["layers"] in (1, 3)
        assert changed["batch"] in (16, 64)
        assert changed["beta"] in (pytest.approx(0.992), pytest.approx(0.988))
        assert changed["x"] in (pytest.approx(-0.4), pytest.approx(-0.6))
        assert changed["optimizer"] in ("adam", "sgd"), "a neighbour in the list, or its end"


def _run(order: int, parallel: int) -> tuple[StudyRecord, list[Suggestion]]:
    """A study whose jobs end in an order by chance, and what was suggested on the way."""
    record = study_record(
        algorithm="pbt", space=parse_space(SPACE), max_trials=24, parallel=parallel,
        population=Population(population=6), max_failed=9,
    )  # fmt: skip
    luck, suggestions = random.Random(order), list[Suggestion]()
    jobs: dict[int, TrialJob] = {}

    def heard(spec: StudySpec, trials: Sequence[TrialStatus], number: int) -> Suggestion | None:
        found = suggest(spec, trials, number)
        assert found == suggest(spec, tuple(trials), number), "a replay suggests the same"
        suggestions[number:] = [] if found is None else [found]
        return found

    while not record.status.phase.over:
        decision = decide(record, ObservedTrials(jobs), NOW, heard)
        assert all(isinstance(action, StartTrial) for action in decision.actions)
        if decision.status is not None:
            record = dataclasses.replace(record, status=decision.status)
            continue
        ended = luck.choice([trial.number for trial in record.status.running])
        value = random.Random(f"{ended}").random()
        jobs[ended] = TrialJob(over=True, succeeded=ended % 7 != 3, message=f"{ended}", value=value)
    return record, suggestions


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("parallel", [1, 3, 6])
def test_in_whatever_order_trials_end_each_goes_on_from_one_that_has_completed(
    order: int, parallel: int
) -> None:
    record, suggestions = _run(order, parallel)
    trials = record.status.trials
    assert len(trials) == 24
    assert _run(order, parallel)[0].status == record.status
    for trial, one in zip(trials, suggestions, strict=False):
        assert (trial.parameters, trial.parent, trial.member) == (
            dict(one.parameters), one.parent, one.member,
        )  # fmt: skip
    for trial in trials:
        if trial.parent is None:
            continue
        parent = trials[trial.parent]
        assert parent.number < trial.number
        assert parent.state is TrialState.COMPLETED
        if parent.member == trial.member:
            assert parent.parameters == trial.parameters
    counts = [sum(trial.member == member for trial in trials) for member in range(6)]
    assert sum(counts) == 24
    assert parallel > 1 or counts == [4] * 6, "members take turns"
    assert any(trial.parent is not None and trials[trial.parent].member != trial.member
               for trial in trials)  # fmt: skip


def test_the_job_of_a_trial_restores_from_its_parents() -> None:
    spec = _spec()
    job = dataclasses.replace(spec.job, restore_from="earlier")
    spec = dataclasses.replace(spec, job=job)
    assert trial_job("linear", spec, FIRST[0]).restore_from == "earlier"
    child = _trial(9, 0, None, parent=3)
    assert trial_job("linear", spec, child).restore_from == "linear-hp-3"


def test_a_population_finds_a_schedule_that_no_constant_is() -> None:
    """The example of the paper in small: what is good changes with time, and checkpoints count."""

    def trained(theta: float, rate: float, step: int) -> float:
        return theta + rate * (1.0 if step < 3 else -rate)  # large rates first, small ones later

    def final(quantile: float) -> float:
        spec = _spec({"rate": {"min": 0.01, "max": 1.0}}, 8, quantile=quantile)
        trials, states = list[TrialStatus](), dict[int, float]()
        for number in range(80):
            suggestion = _suggestion(spec, trials)
            before = 0.0 if suggestion.parent is None else states[suggestion.parent]
            rate = float(suggestion.parameters["rate"])
            states[number] = trained(before, rate, number // 8)
            trials.append(
                _trial(number, suggestion.member or 0, -states[number], parent=suggestion.parent,
                       parameters=dict(suggestion.parameters))
            )  # fmt: skip
        return max(states.values())

    assert final(0.25) > final(0.0) + 0.1


@pytest.mark.parametrize("name", ["PopulationBasedTraining", "pbt", "population_based_training"])
def test_names_of_others(name: str) -> None:
    assert resolve_name(name) == "pbt"
