"""Of which trials a study keeps the checkpoints. Pure, and a function of the trials alone.

A trial whose checkpoints may go never comes to need them again: another trial may do better, but
none does worse later. So it does no harm if this is decided once more, or by a stale leader, as long as
the user asks for the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.studies.ranking import front_trials, sign_of
from cloud_ml.domain.studies.repeats import find_estimates
from cloud_ml.domain.studies.spec import (
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
)


def find_superfluous(spec: StudySpec, status: StudyStatus) -> list[int]:
    """The numbers of the trials whose checkpoints are to be removed, and were not yet."""
    if spec.keep_checkpoints is None or spec.local:
        return []
    kept = find_kept(spec, status, spec.keep_checkpoints)
    return [
        trial.number
        for trial in status.trials
        if trial.over and _had_job(trial) and not trial.checkpoints and trial.number not in kept
    ]


def find_kept(spec: StudySpec, status: StudyStatus, count: int) -> set[int]:
    """The numbers of the trials that keep their checkpoints: those that run, the ``count`` best ones, and
    those that later trials go on from. After the end of a study that keeps none there are no such.
    """
    trials, over = status.trials, status.phase.over
    if not count:
        best = set[int]()
    elif spec.further:
        best = {trial.number for trial in front_trials(spec, trials)}
    else:
        best = _find_best(spec, trials, count, over=over)
    states = set[int]() if over and not count else _find_states_of_members(trials)
    running = {trial.number for trial in status.running}
    parents = {one.parent for one in status.running if one.parent is not None}
    return best | running | parents | states


def _find_best(
    spec: StudySpec, trials: Sequence[TrialStatus], count: int, *, over: bool
) -> set[int]:
    """The best completed trials. As long as some of them may be repeated, so many are kept that the
    one with the best mean is among them.
    """
    sign = sign_of(spec.goal)
    means = {number: sign * estimate.mean for number, estimate in find_estimates(trials).items()}
    values = {
        trial.number: sign * trial.value
        for trial in trials
        if trial.state is TrialState.COMPLETED
        and trial.value is not None
        and trial.repeat_of is None
    }
    by_value = sorted(values, key=lambda number: (values[number], number))
    if spec.repeats and not over:
        return {*by_value[: max(count, spec.repeat_best)], *means}
    ranked = sorted(
        values,
        key=lambda number: (number not in means, means.get(number, values[number]), number),
    )
    return set(ranked[:count])


def _find_states_of_members(trials: Sequence[TrialStatus]) -> set[int]:
    """The last completed trial of each member of a population: the next trials go on from these, also
    when the study is extended after its end.
    """
    states = {
        trial.member: trial.number
        for trial in trials
        if trial.member is not None and trial.state is TrialState.COMPLETED
    }
    return set(states.values())


def _had_job(trial: TrialStatus) -> bool:
    """Whether there was a job, which nobody has deleted while it ran."""
    return trial.started and trial.state is not TrialState.DELETED
