"""Of which trials a study keeps the checkpoints."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from cloud_ml.domain.studies.decide import ObservedTrials, RemoveCheckpoints, TrialJob, decide
from cloud_ml.domain.studies.kept_checkpoints import find_superfluous
from cloud_ml.domain.studies.population import Population
from cloud_ml.domain.studies.ranking import best_of
from cloud_ml.domain.studies.spec import (
    Goal,
    Objective,
    StudyPhase,
    StudySpec,
    StudyStatus,
    TrialCheckpoints,
    TrialState,
    TrialStatus,
)
from cloud_ml.tuning.algorithms import suggest
from unit.domain.studies.test_decide import NOW, study_record


def _spec(count: int | None = 1, **changes: object) -> StudySpec:
    return dataclasses.replace(study_record(**changes).spec, keep_checkpoints=count)


def _trial(number: int, value: float | None = None, **fields: object) -> TrialStatus:
    usual: dict[str, object] = {
        "state": TrialState.RUNNING if value is None else TrialState.COMPLETED,
        "started": True,
    }
    return TrialStatus(number=number, parameters={}, value=value, **(usual | fields))  # type: ignore[arg-type]


def _status(*trials: TrialStatus, over: bool = False) -> StudyStatus:
    phase = StudyPhase.COMPLETED if over else StudyPhase.RUNNING
    return StudyStatus(phase=phase, trials=trials)


def test_all_are_kept_unless_asked() -> None:
    assert find_superfluous(_spec(None), _status(_trial(0, 1.0), _trial(1, 2.0), over=True)) == []


@pytest.mark.parametrize(
    ("count", "goal", "superfluous"),
    [(1, Goal.MINIMIZE, [0, 2]), (1, Goal.MAXIMIZE, [1, 2]), (2, Goal.MINIMIZE, [0])],
)
def test_those_of_the_best_and_of_trials_that_run_are_kept(
    count: int, goal: Goal, superfluous: list[int]
) -> None:
    status = _status(_trial(0, 0.9), _trial(1, 0.1), _trial(2, 0.5), _trial(3))
    assert find_superfluous(_spec(count, goal=goal), status) == superfluous


def test_of_equals_the_earliest_is_kept() -> None:
    assert find_superfluous(_spec(), _status(_trial(0, 0.5), _trial(1, 0.5))) == [1]


@pytest.mark.parametrize(
    "state",
    [
        TrialState.FAILED,
        TrialState.STOPPED,
        TrialState.EARLY_STOPPED,
        TrialState.METRIC_MISSING,
        TrialState.INFEASIBLE,
    ],
)
def test_trials_without_success_are_others(state: TrialState) -> None:
    status = _status(_trial(0, 0.0, state=state), _trial(1))
    assert find_superfluous(_spec(3), status) == [0]


def test_trials_without_a_job_have_nothing_to_remove() -> None:
    status = _status(
        _trial(0, state=TrialState.FAILED, started=False),
        _trial(1, state=TrialState.DELETED),
        _trial(2, state=TrialState.FAILED, checkpoints=TrialCheckpoints.IN_USE),
    )
    assert find_superfluous(_spec(), status) == []


def test_the_pareto_front_is_kept() -> None:
    spec = _spec(further=(Objective("latency", Goal.MINIMIZE),))
    values = [(0.1, 9.0), (0.5, 5.0), (0.6, 6.0), (0.9, 1.0)]
    status = _status(*(_trial(n, pair[0], values=pair) for n, pair in enumerate(values)), over=True)
    assert find_superfluous(spec, status) == [2]


def test_parents_of_trials_that_run_and_states_of_members_are_kept() -> None:
    """The last one that has completed is the state of a member, also after the end of the study."""
    spec = _spec(population=Population(population=2))
    trials = [
        _trial(0, 0.5, member=0),
        _trial(1, 0.7, member=1),
        _trial(2, 0.6, member=0, parent=0),
        _trial(3, 0.8, member=1, parent=1),
        _trial(4, member=0, parent=2),
        _trial(5, state=TrialState.FAILED, member=1, parent=3),
    ]
    assert find_superfluous(spec, _status(*trials)) == [1, 5]
    trials[4] = _trial(4, 0.9, member=0, parent=2)
    assert find_superfluous(spec, _status(*trials, over=True)) == [1, 2, 5]


def test_with_none_only_those_stay_that_later_trials_need() -> None:
    spec = _spec(0, population=Population(population=2))
    trials = [
        _trial(0, 0.1, member=0),
        _trial(1, 0.7, member=1),
        _trial(2, 0.6, member=0, parent=0),
    ]
    assert find_superfluous(spec, _status(*trials, _trial(3, member=1, parent=1))) == [0]
    assert find_superfluous(spec, _status(*trials, over=True)) == [0, 1, 2]


def test_a_trial_that_may_be_the_best_after_its_repeats_is_kept() -> None:
    spec = _spec(repeats=1, repeat_best=2)
    search = [_trial(0, 0.1), _trial(1, 0.2), _trial(2, 0.3)]
    assert find_superfluous(spec, _status(*search)) == [2]
    repeats = [_trial(3, 0.9, repeat_of=0), _trial(4, 0.2, repeat_of=1)]
    assert find_superfluous(spec, _status(*search, *repeats)) == [2, 3, 4]
    ended = _status(*search, *repeats, over=True)
    assert find_superfluous(spec, ended) == [0, 2, 3, 4]
    best = best_of(spec, ended.trials)
    assert best is not None
    assert best.number == 1


@pytest.mark.parametrize("order", range(20))
def test_what_may_go_is_never_among_the_kept_later(order: int) -> None:
    """A leader that decides on an older status removes nothing that a newer one keeps."""
    luck = random.Random(order)
    members = luck.choice([0, 3])
    options = {"population": Population(population=members)} if members else {}
    record = study_record(
        algorithm="pbt" if members else "random", max_trials=15, parallel=3, max_failed=99,
        same_failures=0, repeats=0 if members else luck.choice([0, 2]), **options,
    )  # fmt: skip
    record = dataclasses.replace(
        record, spec=dataclasses.replace(record.spec, keep_checkpoints=luck.choice([1, 2]))
    )
    jobs: dict[int, TrialJob] = {}
    removed: set[int] = set()
    while not record.status.phase.over:
        parents = {t.parent for t in record.status.running if t.parent is not None}
        assert not removed & (parents | {t.number for t in record.status.running})
        removed |= set(find_superfluous(record.spec, record.status))
        decision = decide(record, ObservedTrials(jobs), NOW, suggest)
        if decision.status is not None:
            record = dataclasses.replace(record, status=decision.status)
            continue
        jobs |= {t.number: TrialJob() for t in record.status.running if t.number not in jobs}
        number = luck.choice([t.number for t in record.status.running])
        value = luck.choice([None, luck.random(), luck.random()])
        jobs[number] = TrialJob(over=True, succeeded=value is not None, value=value)
    best = best_of(record.spec, record.status.trials)
    assert best is None or best.number not in removed | set(
        find_superfluous(record.spec, record.status)
    )


def _numbers(actions: Sequence[object]) -> list[int]:
    return [n for one in actions if isinstance(one, RemoveCheckpoints) for n in one.numbers]


def test_what_became_of_them_is_noted_and_the_rest_tried_again_also_after_the_end() -> None:
    record = study_record()
    record = dataclasses.replace(
        record,
        spec=dataclasses.replace(record.spec, keep_checkpoints=1),
        status=_status(_trial(0, 0.3), _trial(1, 0.1), _trial(2, 0.2), over=True),
    )
    decision = decide(record, ObservedTrials(), NOW, suggest)
    assert _numbers(decision.actions) == [0, 2]
    assert decision.status is None
    assert decision.requeue_at == NOW + timedelta(seconds=30)
    seen = ObservedTrials(checkpoints={0: TrialCheckpoints.REMOVED})
    noted = decide(record, seen, NOW, suggest)
    assert noted.status is not None
    assert not noted.actions
    assert [t.checkpoints for t in noted.status.trials] == [TrialCheckpoints.REMOVED, None, None]
    record = dataclasses.replace(record, status=noted.status)
    assert _numbers(decide(record, ObservedTrials(), NOW, suggest).actions) == [2]
    seen = ObservedTrials(checkpoints={2: TrialCheckpoints.IN_USE})
    last = decide(record, seen, NOW, suggest).status
    assert last is not None
    done = decide(dataclasses.replace(record, status=last), ObservedTrials(), NOW, suggest)
    assert (done.status, list(done.actions), done.requeue_at) == (None, [], None)
