"""What can be read out of the trials of a study: importance of its parameters, and curves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.envelopes import reduce
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.studies.named_trials import fits
from cloud_ml.domain.studies.optuna_views import space_of
from cloud_ml.domain.studies.space import Parameter, parse_space
from cloud_ml.domain.studies.spec import (
    StudyRecord,
    StudySpec,
    TrialState,
    TrialStatus,
    seeded,
    trial_name,
)
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.readouts import (
    ParameterImportance,
    StudyCurves,
    StudyImportance,
    TrialCurve,
)
from cloud_ml.models.tracking.metrics import to_wire
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.tuning.algorithms import has_numeric
from cloud_ml.tuning.base import problem_of
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.studies.reported_values import Objectives
from cloud_ml.usecases.studies.studies import StudyResources

LEAST_TRIALS = 5
_MOST_KEPT = 64
_LEAST_POINTS, _MOST_POINTS, _MOST_OF_ALL = 2, 1000, 100_000


class StudyReadouts:
    """Reads studies. Belongs to one event loop.

    Args:
        store: Keeps the metrics.
        studies: Finds the studies.
        objectives: What trials reported.
        tuner: Computes with numpy.
        offload: Runs the calls of the store.
    """

    def __init__(
        self,
        store: StateStore,
        studies: StudyResources,
        objectives: Objectives,
        tuner: Tuner,
        offload: Offload,
    ) -> None:
        self._store = store
        self._studies = studies
        self._objectives = objectives
        self._tuner = tuner
        self._offload = offload
        self._kept: OrderedDict[tuple[str, int, str], StudyImportance] = OrderedDict()
        """Answers that took seconds, until their study changes."""

    async def importance(
        self, caller: Identity, name: str, objective: str | None
    ) -> StudyImportance:
        """How much each parameter matters for an objective; the first by default.

        Raises:
            NotFound: There is no such study.
            InvalidRequest: It has no such objective.
            Conflict: Too few trials have completed, or the server lacks numpy.
            Unavailable: The tuner fails.
        """
        record = await self._offload(self._studies.find, caller.org, name)
        metric = _metric_of(record.spec, objective)
        key = (record.key.uid, record.revision, metric)
        if (kept := self._kept.get(key)) is not None:
            return kept
        trials = _completed_trials(record)
        if len(trials) < LEAST_TRIALS:
            within = " in its space of now" if record.spec.space_changed else ""
            message = f"{len(trials)} trials of {record.key.name} have completed{within}"
            raise Conflict(f"{message}; importance takes {LEAST_TRIALS}", field="trials")
        if not has_numeric():
            raise Conflict(
                "this server lacks numpy and scipy, with which importance is computed",
                hint="Install them beside the server: pip install 'cloud-ml[tuning]'",
            )
        space = _space_of(record, trials)
        if not space:
            raise Conflict(f"all parameters of {record.key.name} are constant", field="space")
        spec = _narrow_spec(seeded(record), space, metric)
        trials = [_narrow_to(record.spec, metric, trial) for trial in trials]
        problem = problem_of(spec, trials, len(trials))
        found = await self._tuner.importance(problem, org=caller.org)
        answer = _importance_of(record.key.name, metric, spec.space, found)
        self._kept[key] = answer
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer

    async def curves(
        self, caller: Identity, name: str, objective: str | None, points: int
    ) -> StudyCurves:
        """What trials reported of an objective while they ran; the first by default.

        Args:
            caller: Who asks.
            name: The study.
            objective: The metric.
            points: At most so many of each trial; of many trials fewer.

        Raises:
            NotFound: There is no such study.
            InvalidRequest: It has no such objective, or too many points are wanted.
        """
        if not _LEAST_POINTS <= points <= _MOST_POINTS:
            raise refuse("points", points, f"{_LEAST_POINTS} to {_MOST_POINTS}")
        record = await self._offload(self._studies.find, caller.org, name)
        metric = _metric_of(record.spec, objective)
        trials = record.status.trials
        most = max(_LEAST_POINTS, min(points, _MOST_OF_ALL // max(len(trials), 1)))
        curves = await self._offload.long(caller.org, self._curves, record, metric, most)
        return StudyCurves(study=record.key.name, objective=metric, curves=curves)

    def _curves(self, record: StudyRecord, metric: str, most: int) -> list[TrialCurve]:
        curves = (self._curve(record, trial, metric, most) for trial in record.status.trials)
        return [curve for curve in curves if curve.steps]

    def _curve(self, record: StudyRecord, trial: TrialStatus, metric: str, most: int) -> TrialCurve:
        points = self._points(record, trial, metric, most)
        return TrialCurve(
            number=trial.number,
            job="" if record.spec.local else trial_name(record.key.name, trial.number),
            state=trial.state,
            steps=[point.step for point in points],
            values=[to_wire(point.value) for point in points],
        )

    def _points(
        self, record: StudyRecord, trial: TrialStatus, metric: str, most: int
    ) -> Sequence[Point]:
        """The points of a trial: those that its loop or its job reported."""
        if record.spec.local:
            return reduce([Point(one.step, one.at, one.value) for one in trial.points], most)
        name = trial_name(record.key.name, trial.number)
        job = self._store.find(TRAIN_JOB, record.key.org, name)
        if job is None or job.parent is None or job.parent.uid != record.key.uid:
            return ()
        series = self._objectives.series(job, metric)
        if series is None:
            return ()
        return self._store.metrics.points(series.number, PointRange(most=most))


def _metric_of(spec: StudySpec, objective: str | None) -> str:
    metrics = [one.metric for one in spec.objectives]
    if objective in (None, *metrics):
        return objective or spec.metric
    raise refuse("objective", objective, ", ".join(metrics))


def _completed_trials(record: StudyRecord) -> list[TrialStatus]:
    """The trials that have completed. Once the space has changed, only those that are of it."""
    spec = record.spec
    trials = [one for one in record.status.trials if one.state is TrialState.COMPLETED]
    if not spec.space_changed:
        return trials
    return [one for one in trials if fits(spec.space, spec.constraints, one.parameters)]


def _narrow_spec(spec: StudySpec, space: tuple[Parameter, ...], metric: str) -> StudySpec:
    """A study of the parameters that may change and of one objective. Trials are chosen before, by
    the whole space: to this one, a trial with a constant would be none of its own.
    """
    at = [one.metric for one in spec.objectives].index(metric)
    prior = tuple(
        replace(one, costs=one.costs[at : at + 1])
        for one in spec.prior
        if not spec.space_changed or fits(spec.space, spec.constraints, one.parameters)
    )
    goal = spec.objectives[at].goal
    return replace(
        spec,
        space=space,
        metric=metric,
        goal=goal,
        further=(),
        prior=prior,
        space_changed=False,
    )


def _narrow_to(spec: StudySpec, metric: str, trial: TrialStatus) -> TrialStatus:
    """A trial of a study with several objectives, as if it had this one alone."""
    if not spec.further or len(trial.values) != len(spec.objectives):
        return trial
    at = [one.metric for one in spec.objectives].index(metric)
    return replace(trial, value=trial.values[at], values=())


def _space_of(record: StudyRecord, trials: Sequence[TrialStatus]) -> tuple[Parameter, ...]:
    """The parameters that may change. Where a study has no space, it is the one that Optuna's client
    told of them, else the values that trials have.
    """
    if record.spec.space:
        return tuple(one for one in record.spec.space if not one.constant)
    optuna_space = space_of(record.status) if record.spec.optuna is not None else {}
    values = [pair for trial in trials for pair in trial.parameters.items()]
    names = dict.fromkeys(name for name, value in values if value is not None)
    found = [
        _read_parameter(name, optuna_space.get(name)) or _infer_parameter(name, trials)
        for name in names
    ]
    return tuple(one for one in found if not one.constant)


def _read_parameter(name: str, document: Any) -> Parameter | None:
    """A parameter of another tool; ``None`` if ours have no such one."""
    try:
        return parse_space({name: document})[0]
    except InvalidRequest:
        return None


def _infer_parameter(name: str, trials: Sequence[TrialStatus]) -> Parameter:
    """A parameter with the values that trials have; numbers in their order."""
    found = {
        (type(value), value): None
        for trial in trials
        if (value := trial.parameters.get(name)) is not None
    }
    values = [value for _, value in found]
    if not any(isinstance(value, (str, bool)) for value in values):
        values.sort()
    return Parameter(name=name, values=tuple(values))


def _importance_of(
    study: str, metric: str, space: Sequence[Parameter], found: Mapping[str, Any]
) -> StudyImportance:
    parameters = [
        ParameterImportance(
            name=parameter.name,
            fanova=alone[0],
            fanova_low=alone[1],
            fanova_high=alone[2],
            permutation=shuffled[0],
            permutation_low=shuffled[1],
            permutation_high=shuffled[2],
        )
        for parameter, alone, shuffled in zip(
            space, found["fanova"], found["permutation"], strict=True
        )
    ]
    alone = sum(one.fanova for one in parameters)
    return StudyImportance(
        study=study,
        objective=metric,
        trials=found["trials"],
        explained=found["explained"],
        interactions=max(0.0, 1.0 - alone) if alone else 0.0,
        parameters=sorted(parameters, key=lambda one: (-one.fanova, one.name)),
    )
