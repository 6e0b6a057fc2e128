"""Repeats of the best trials: which come, and what their means say."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest

from cloud_ml.domain.studies.decide import ObservedTrials, TrialJob, decide
from cloud_ml.domain.studies.ranking import best_of
from cloud_ml.domain.studies.repeats import find_estimates, next_repeat
from cloud_ml.domain.studies.spec import (
    Goal,
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
    trial_job,
)
from cloud_ml.tuning.algorithms import suggest
from cloud_ml.tuning.base import problem_of
from unit.domain.studies.test_decide import NOW, study_record


def _run(values: Sequence[float | None], order: int = 0, **changes: object) -> StudyStatus:
    """The study when it has ended, of trials with these values; they end in an order by chance."""
    record = study_record(max_failed=99, parallel=3, **changes)
    luck = random.Random(order)
    jobs: dict[int, TrialJob] = {}
    while not record.status.phase.over:
        decision = decide(record, ObservedTrials(jobs), NOW, suggest)
        if decision.status is not None:
            record = dataclasses.replace(record, status=decision.status)
            continue
        number = luck.choice([trial.number for trial in record.status.running])
        value = values[number]
        jobs[number] = TrialJob(over=True, succeeded=value is not None, value=value)
    return record.status


def _origins(trials: Sequence[TrialStatus]) -> list[int | None]:
    return [trial.repeat_of for trial in trials]


@pytest.mark.parametrize("order", range(5))
def test_the_best_are_run_again_in_turn_and_the_best_mean_counts(order: int) -> None:
    values = [0.4, 0.1, 0.3, 0.9, 0.5, 0.2, 0.7, 0.25]
    status = _run(values, order, max_trials=4, repeats=2, repeat_best=2)
    assert _origins(status.trials) == [None] * 4 + [1, 2, 1, 2]
    assert status.trials[4].parameters == status.trials[1].parameters
    estimates = find_estimates(status.trials)
    assert {number: one.runs for number, one in estimates.items()} == {1: 3, 2: 3}
    assert estimates[1].mean == pytest.approx((0.1 + 0.5 + 0.7) / 3)
    assert estimates[1].standard_error == pytest.approx(0.17638, abs=1e-4)
    best = best_of(study_record(max_trials=4, repeats=2).spec, status.trials)
    assert best is not None
    assert best.number == 2, "0.1 was luck"
    assert status.message == "the best loss is 0.25 ± 0.029 (mean of 3 runs), of trial 2"


def test_more_can_be_better_and_a_repeat_that_fails_is_not_repeated() -> None:
    values = [0.4, 0.9, None, 0.3, None, 0.8]
    status = _run(values, max_trials=4, repeats=1, goal=Goal.MAXIMIZE, repeat_best=2)
    assert _origins(status.trials) == [None] * 4 + [1, 0]
    assert find_estimates(status.trials)[1].standard_error is None
    assert status.phase == "Completed"
    assert status.message == "the best loss is 0.9, of trial 1"


def test_nothing_is_repeated_while_a_trial_of_the_search_runs_or_without_a_wish() -> None:
    spec = study_record(max_trials=2, repeats=1).spec
    done = TrialStatus(number=0, parameters={}, state=TrialState.COMPLETED, value=1.0)
    runs = TrialStatus(number=1, parameters={})
    assert next_repeat(spec, [done]) is None
    assert next_repeat(spec, [done, runs]) is None
    failed = dataclasses.replace(runs, state=TrialState.FAILED)
    assert next_repeat(spec, [done, failed]) == done
    assert next_repeat(dataclasses.replace(spec, repeats=0), [done, failed]) is None
    assert next_repeat(spec, [failed, dataclasses.replace(failed, number=0)]) is None


def test_a_study_that_goes_on_repeats_only_what_is_new_among_the_best() -> None:
    values = [0.4, 0.1, 0.5, 0.3, 0.05, 0.2]
    status = _run([*values[:4], 0.0], max_trials=2, repeats=1, repeat_best=2)
    assert _origins(status.trials) == [None, None, 1, 0]
    record = study_record(max_trials=3, repeats=1, repeat_best=2, extended=1)
    later = dataclasses.replace(record, status=status)
    decision = decide(later, ObservedTrials(), NOW, suggest)
    assert decision.status is not None
    began = decide(
        dataclasses.replace(later, status=decision.status), ObservedTrials(), NOW, suggest
    ).status
    assert began is not None
    assert began.trials[4].repeat_of is None
    assert problem_of(record.spec, began.trials, 5).named == 2, (
        "repeats are no points of the search"
    )
    ended = dataclasses.replace(began.trials[4], state=TrialState.COMPLETED, value=0.0)
    found = next_repeat(record.spec, [*status.trials, ended])
    assert found is not None
    assert found.number == 4


def test_a_repeat_has_another_seed() -> None:
    def variables(spec: StudySpec, trial: TrialStatus) -> dict[str, str]:
        return dict(trial_job("linear", spec, trial).environment or {})

    spec = study_record().spec
    first = TrialStatus(number=0, parameters={"lr": 0.5})
    again = dataclasses.replace(first, number=4, repeat_of=0)
    assert variables(spec, again) == {}, "each job has a seed of its own"
    job = dataclasses.replace(spec.job, environment={"CLOUDML_SEED": "7"})
    seeded = dataclasses.replace(spec, job=job)
    seeds = [
        variables(seeded, dataclasses.replace(again, number=number))["CLOUDML_SEED"]
        for number in (4, 4, 5)
    ]
    assert variables(seeded, first) == {"CLOUDML_SEED": "7"}
    assert seeds[0] == seeds[1] != seeds[2]
