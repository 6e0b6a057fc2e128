"""What a study is asked for, and what became of it."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from cloud_ml.domain.records import ItemList, Kind, Record
from cloud_ml.domain.studies.optuna_records import OptunaStudy, OptunaTrial
from cloud_ml.domain.studies.population import Population
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.stopping import Stopper
from cloud_ml.domain.workloads.seeds import SEED_VARIABLE, seed_of_repeat
from cloud_ml.models import parameter_file
from cloud_ml.models.common import MOST_LABELS
from cloud_ml.models.jobs.clone import STUDY_LABEL
from cloud_ml.models.jobs.metric_patterns import pattern_of_metric
from cloud_ml.models.jobs.train_job import TrainJob


class Goal(StrEnum):
    """Whether less of the objective is better, or more."""

    MINIMIZE = "min"
    MAXIMIZE = "max"


@dataclass(frozen=True)
class Objective:
    """A metric that counts."""

    metric: str
    goal: Goal

    def __str__(self) -> str:
        return f"{self.metric}:{self.goal}"


class ParametersAs(StrEnum):
    """How a trial gets its parameters: ``--lr=0.1``, a variable ``lr``, or a JSON file whose path
    is in the variable ``CLOUDML_PARAMETERS``.
    """

    ARGUMENTS = "arguments"
    ENVIRONMENT = "environment"
    FILE = "file"


@dataclass(frozen=True, kw_only=True)
class PriorTrial:
    """A trial of an earlier study; less of each of ``costs`` is better."""

    parameters: dict[str, Any]
    costs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study as it was asked for. ``job`` carries the study's name; trials have their own.

    With ``original``, it came by the original interface: a trial always has the argument
    ``--output_path``. Otherwise only code that has such a flag gets it, as for all jobs.
    Without a ``seed`` there is one of the study's uid: see ``seeded``. ``stopped`` is the request that
    it ends, ``paused`` the one that no trial begins, and ``extended`` counts how often it was to go
    on. 0 stands for no limit in ``max_time_s`` and ``same_failures``.
    ``trials`` are run first, ``queued`` were added later and come next. The trials of a ``local``
    study are run by loops of its users, who ask for them; its job says nothing. ``further`` are the
    objectives beside the first one, which ``metric`` and ``goal`` say. ``optuna`` is what
    Optuna keeps of a study that its client made; such a study is ``local``. With ``space_changed``,
    trials that are outside of the space are not learned from. The ``repeat_best`` best trials are
    run again ``repeats`` times each, beside ``max_trials``. ``warm_start`` names earlier studies, and
    ``prior`` are the trials of theirs that are learned from. The algorithm ``pbt`` has a ``population``.
    Of the ``keep_checkpoints`` best trials the checkpoints are kept, of several objectives those of the
    Pareto front; 0 keeps those alone that later trials need, and ``None`` keeps all. A sampler of
    Optuna has ``sampler_options``. ``dropped`` tells of the trials of users that the last change of the
    space has dropped.
    """

    job: TrainJob
    space: tuple[Parameter, ...]
    metric: str
    goal: Goal
    algorithm: str
    max_trials: int
    parallel: int
    max_failed: int
    seed: int | None
    trials: tuple[dict[str, Any], ...] = ()
    original: bool = False
    stopped: bool = False
    paused: bool = False
    extended: int = 0
    stopper: Stopper | None = None
    target: float | None = None
    max_time_s: float = 0.0
    same_failures: int = 0
    queued: tuple[dict[str, Any], ...] = ()
    local: bool = False
    constraints: tuple[str, ...] = ()
    space_changed: bool = False
    parameters_as: ParametersAs = ParametersAs.ARGUMENTS
    further: tuple[Objective, ...] = ()
    optuna: OptunaStudy | None = None
    repeats: int = 0
    repeat_best: int = 3
    warm_start: tuple[str, ...] = ()
    prior: tuple[PriorTrial, ...] = ()
    population: Population | None = None
    keep_checkpoints: int | None = None
    sampler_options: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives, in the order in which they were asked for."""
        return (Objective(self.metric, self.goal), *self.further)


class StudyPhase(StrEnum):
    """Where a study stands."""

    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def over(self) -> bool:
        """Whether nothing can follow any more."""
        return self in (StudyPhase.COMPLETED, StudyPhase.FAILED, StudyPhase.STOPPED)


class TrialState(StrEnum):
    """How a trial stands."""

    WAITING = "Waiting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    METRIC_MISSING = "MetricMissing"
    INFEASIBLE = "Infeasible"
    EARLY_STOPPED = "EarlyStopped"
    STOPPED = "Stopped"
    DELETED = "Deleted"


class TrialCheckpoints(StrEnum):
    """What became of the checkpoints of a trial that its study does not keep. ``InUse``: they stay, as
    somebody refers to them. ``Unknown``: its job was deleted before, and they stay, too.
    """

    REMOVED = "Removed"
    IN_USE = "InUse"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """A value that a loop reported of a trial; ``at`` is in milliseconds since 1970."""

    step: int
    value: float
    at: int


@dataclass(frozen=True, kw_only=True)
class TrialStatus:
    """A trial. ``started`` tells that its job was seen: one that is absent later was deleted.
    ``stopping`` tells why it is to end early, ``queued`` that its parameters were queued by a user.
    Of a local study ``key`` is what it was asked for with, and ``points`` are what was reported.
    ``value`` is that of the first objective. Of a study with several, ``values`` has all of them, or
    none.
    ``optuna`` is what Optuna keeps of a trial that its client made. A repeat has the number of the
    trial whose parameters it has in ``repeat_of``. One of a population has the number of its
    ``member``, and in ``parent`` that of the trial from whose checkpoint it goes on, if there is one.
    ``checkpoints`` is ``None`` as long as they are kept.
    """

    number: int
    parameters: dict[str, Any]
    state: TrialState = TrialState.RUNNING
    started: bool = False
    value: float | None = None
    step: int | None = None
    message: str = ""
    stopping: str = ""
    queued: bool = False
    key: str = ""
    points: tuple[ReportedValue, ...] = ()
    values: tuple[float, ...] = ()
    optuna: OptunaTrial | None = None
    repeat_of: int | None = None
    parent: int | None = None
    member: int | None = None
    checkpoints: TrialCheckpoints | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in (TrialState.WAITING, TrialState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """What became of a study. The numbers of trials are their places in ``trials``. ``extended`` is
    how many wishes to go on it has heard.
    """

    phase: StudyPhase = StudyPhase.RUNNING
    reason: str = "Created"
    message: str = ""
    trials: tuple[TrialStatus, ...] = ()
    extended: int = 0

    @property
    def running(self) -> Sequence[TrialStatus]:
        """The trials that have not ended."""
        return [trial for trial in self.trials if not trial.over]


AFTER_END_TAG = "extended"
"""Of studies with which something may be due after their end: they are to go on, or checkpoints of
their trials are to be removed.
"""


def output_tag(uri: str) -> str:
    """The tag of studies whose trials write below a folder, whatever its length."""
    return f"output={hashlib.sha256(uri.rstrip('/').encode()).hexdigest()[:32]}"


def inside_tag(uri: str) -> str:
    """The tag of studies whose folder is, or lies in, ``<uri>/<number>``: that of a trial of a study
    with this ``output_path``.
    """
    return f"inside-{output_tag(uri)}"


def trial_folders_above(uri: str) -> Iterator[tuple[str, int]]:
    """(``output_path``, number) of the trials of other studies, if there were such studies, whose
    folders are ``uri`` or above it.
    """
    scheme, separator, path = uri.rstrip("/").partition("://")
    parts = path.split("/")
    for depth, part in enumerate(parts):
        if depth and _NUMBER.fullmatch(part):
            yield scheme + separator + "/".join(parts[:depth]), int(part)


_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


def _tags(spec: StudySpec) -> tuple[str, ...]:
    goes_on = spec.extended or spec.keep_checkpoints is not None
    tags = (AFTER_END_TAG,) if goes_on else ()
    if (folder := spec.job.output_path) is None:
        return tags
    inside = (inside_tag(above) for above, _ in trial_folders_above(folder))
    return (*tags, output_tag(folder), *inside)


STUDY = Kind(
    "study",
    StudySpec,
    StudyStatus,
    spec_tags=_tags,
    items=ItemList("trials", TrialStatus, "points", ReportedValue),
)
StudyRecord = Record[StudySpec, StudyStatus]


def seeded(record: StudyRecord) -> StudySpec:
    """The spec with a seed: the one that was asked for, else one that no other study has."""
    if record.spec.seed is not None:
        return record.spec
    digest = hashlib.sha256(record.key.uid.encode()).digest()
    return replace(record.spec, seed=int.from_bytes(digest[:4], "big"))


def trial_name(study: str, number: int) -> str:
    """The name of a trial's job."""
    return f"{study}-hp-{number}"


def trial_number(job: str) -> int:
    """The number of a trial, by the name of its job."""
    return int(job.rpartition("-")[2])


def trial_job(study: str, spec: StudySpec, trial: TrialStatus) -> TrainJob:
    """The train job of a trial: the study's, with the trial's name, arguments and folder. A label
    names the study, so that its runs are found, unless the job has a label of that name.
    """
    job = spec.job
    given = shlex.split(job.job_args) if isinstance(job.job_args, str) else job.job_args or []
    folder = trial_folder(spec, trial.number)
    output = [f"--output_path={folder}"] if folder and spec.original else []
    as_arguments = spec.parameters_as is ParametersAs.ARGUMENTS
    arguments = arguments_of(trial.parameters) if as_arguments else []
    variables = {**_seed_of(spec, trial), **_variables_of(spec, trial.parameters)}
    return replace(
        job,
        job_name=trial_name(study, trial.number),
        job_args=[*given, *output, *arguments],
        environment={**(job.environment or {}), **variables} if variables else job.environment,
        output_path=folder,
        restore_from=_find_restored_job(study, spec, trial),
        labels=_labels_of_trial(study, job.labels or {}),
        metric_patterns=_patterns_of_trial(spec),
    )


def _patterns_of_trial(spec: StudySpec) -> list[str] | None:
    """Where a trial names no patterns, what it prints of the objectives is found."""
    if spec.job.metric_patterns is not None:
        return spec.job.metric_patterns
    return [pattern_of_metric(one.metric) for one in spec.objectives]


def _find_restored_job(study: str, spec: StudySpec, trial: TrialStatus) -> str | None:
    """The job from whose newest checkpoint a trial goes on."""
    return spec.job.restore_from if trial.parent is None else trial_name(study, trial.parent)


def _seed_of(spec: StudySpec, trial: TrialStatus) -> dict[str, str]:
    """The seed of a repeat, where the user has set one for all trials. Without that, each job has a
    seed of its own.
    """
    given = (spec.job.environment or {}).get(SEED_VARIABLE)
    if trial.repeat_of is None or given is None:
        return {}
    return {SEED_VARIABLE: seed_of_repeat(given, trial.number)}


def _variables_of(spec: StudySpec, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a trial as variables of its job."""
    if spec.parameters_as is ParametersAs.ENVIRONMENT:
        return {name: text_of(value) for name, value in parameters.items()}
    if spec.parameters_as is ParametersAs.FILE:
        return {parameter_file.VARIABLE: parameter_file.encode_parameters(parameters)}
    return {}


def _labels_of_trial(study: str, labels: Mapping[str, str]) -> dict[str, str]:
    full = len(labels) >= MOST_LABELS
    return dict(labels) if full else {STUDY_LABEL: study, **labels}


def trial_folder(spec: StudySpec, number: int) -> str | None:
    """The folder of a trial below ``output_path``; ``None`` if the job has none."""
    whole = spec.job.output_path
    return f"{whole.rstrip('/')}/{number}" if whole else None


def arguments_of(parameters: Mapping[str, Any]) -> list[str]:
    """The parameters of a trial as arguments of its job."""
    return [f"--{name}={text_of(value)}" for name, value in parameters.items()]


def text_of(value: Any) -> str:
    """A value as an argument has it: ``true`` and ``false`` as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
