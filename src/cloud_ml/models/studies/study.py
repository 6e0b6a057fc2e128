"""Studies as their users see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.models.fields import LIMIT_ALIASES, names_near
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.resource import ResourceType, ResourceView

if TYPE_CHECKING:
    from cloud_ml.models.studies.readouts import TrialCurve

STUDY_ALIASES = {
    **{one.name: f"job.{one.name}" for one in fields(TrainJob)},
    **{word: f"job.{name}" for word, name in LIMIT_ALIASES.items()},
    "parallelTrialCount": "parallel", "parallel_trial_count": "parallel", "n_jobs": "parallel",
    "max_concurrent_trials": "parallel", "max_concurrent": "parallel",
    "maxTrialCount": "max_trials", "max_trial_count": "max_trials", "n_trials": "max_trials",
    "num_samples": "max_trials", "maxFailedTrialCount": "max_failed",
    "max_failed_trial_count": "max_failed", "parameters": "space", "params": "space",
    "param_space": "space", "search_space": "space", "parameter_configs": "space",
    "directions": "objective", "metrics": "objective", "objectives": "objective",
    "direction": "objective", "metric": "objective", "mode": "objective", "goal": "objective",
    "sampler": "algorithm", "search_alg": "algorithm", "pruner": "stopper", "stop": "stopper",
    "earlyStopping": "stopper", "early_stopping": "stopper", "scheduler": "stopper",
    "timeout": "max_time", "time_budget_s": "max_time", "trialTemplate": "job",
    "method": "algorithm", "run_cap": "max_trials", "early_terminate": "stopper", "program": "job",
    "trial_template": "job", "points_to_evaluate": "trials", "enqueue": "trials",
    "repeat": "repeats", "num_repeats": "repeats", "n_repeats": "repeats",
    "prior_studies": "warm_start", "warm_start_from": "warm_start", "warmStart": "warm_start",
    "algorithmSettings": "algorithm_options", "algorithm_settings": "algorithm_options",
    "num_to_keep": "keep_checkpoints", "checkpoint_config": "keep_checkpoints",
    "checkpoints": "keep_checkpoints", "checkpoint_policy": "keep_checkpoints",
    "pass": "parameters_as", "constraint": "constraints", "constraints_func": "constraints",
}  # fmt: skip
"""Fields of the job of a study; words of Optuna, Katib, Ray Tune and Weights & Biases, and ours."""

ALGORITHMS = (
    "auto", "cma-es", "ehvi", "gp", "grid", "nsga2", "pbt", "qmc", "random", "tpe",
    "optuna:TPESampler", "optuna:RandomSampler", "optuna:QMCSampler", "optuna:NSGAIISampler",
    "optuna:NSGAIIISampler", "optuna:CmaEsSampler",
)  # fmt: skip
"""The names of the algorithms that there are."""


@names_near(STUDY_ALIASES)
@dataclass(frozen=True, kw_only=True)
class NewStudy:
    """A search for the arguments with which a train job does best.

    Attributes:
        name: Its trials are the jobs ``<name>-hp-0``, ``<name>-hp-1`` and so on.
        job: The train job, without a name. Each trial has its own arguments behind ``job_args``.
        space: The parameters by their names: a list of values, ``{"value": 3}`` of a constant, or
            a range such as ``{"min": 0.0001, "max": 0.1, "scale": "log"}`` with ``type``
            (``double``, ``int``), ``scale`` (``linear``, ``log``, ``reverse-log``) and ``step``.
            One with ``"active_if": {"optimizer": "sgd"}`` is a parameter of those trials only.
        constraints: What holds between parameters of each trial, such as ``"a < b"`` or
            ``"layers * width <= 4096"``.
        parameters_as: ``arguments`` (``--lr=0.1``), ``environment`` (a variable ``lr``) or ``file``
            (a JSON file, whose path is in the variable ``CLOUDML_PARAMETERS``, and in arguments in the
            place of ``{parameters_file}``).
        objective: The metric that counts, and whether less of it or more is better:
            ``loss:min``, ``accuracy:max``. Trials report it by ``cloud_ml.job.report``. A list of
            two to four is searched for its Pareto front: ``["error:min", "latency:min"]``.
        algorithm: ``auto``, ``gp``, ``tpe``, ``cma-es``, ``nsga2``, ``ehvi``, ``qmc``,
            ``random``, ``grid``, ``pbt``, or a sampler of Optuna such as ``optuna:TPESampler``.
        algorithm_options: Options of ``pbt``: ``population``, ``quantile``, ``resample_probability``
            and ``factors``; or of a sampler of Optuna, such as ``{"n_startup_trials": 5}``. The other
            ones have none.
        max_trials: How many trials there are in all. By default all of a grid, ten of each member of a
            population, else 20.
        parallel: How many run at a time.
        max_failed: The study fails when more trials than this fail; 3 by default.
        same_failures: The study fails when so many trials in a row fail alike; 3 by default, 0
            for never.
        stopper: Ends trials early that do badly: ``median``, ``percentile``, ``asha``,
            ``hyperband``, ``threshold`` or ``plateau``; none by default.
        stopper_options: Its options, such as ``{"min_steps": 1, "factor": 4}`` of ``asha``.
        target: The study ends when a trial completes with this value or a better one.
        max_time: The study ends when it is so old: ``90m``, ``2h``. A bare number means seconds.
        repeats: How often each of the best trials is run again with the same parameters, when all
            trials have ended, for objectives with noise. The best has the best mean; 0 by default.
        repeat_best: How many of the best trials are repeated; 3 by default.
        keep_checkpoints: Of which trials the checkpoints are kept: ``all`` (the default), ``best``, the
            number of the best trials, or ``none``. Those of the others are removed when they have ended, unless
            somebody refers to them. With several objectives ``best`` is the Pareto front.
        seed: The same seed gives the same trials. By default each study has its own.
        trials: Trials that are run first, each with its parameters.
        warm_start: Earlier studies, which have ended: their completed trials are learned from, too, as
            far as they fit the space. They have the same objective.
        local: Its trials are run by a loop of yours, which asks for them and tells how they ended.
            It has no job.
    """

    name: str
    job: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    constraints: list[str] = field(default_factory=list)
    parameters_as: str = "arguments"
    objective: str | list[str] = "loss:min"
    algorithm: str = "auto"
    algorithm_options: dict[str, Any] = field(default_factory=dict)
    max_trials: int | None = None
    parallel: int = 2
    max_failed: int = 3
    same_failures: int = 3
    stopper: str = ""
    stopper_options: dict[str, Any] = field(default_factory=dict)
    target: float | None = None
    max_time: str | int | None = None
    repeats: int = 0
    repeat_best: int = 3
    keep_checkpoints: str | int = "all"
    seed: int | None = None
    trials: list[dict[str, Any]] = field(default_factory=list)
    warm_start: list[str] = field(default_factory=list)
    local: bool = False


@dataclass(frozen=True, kw_only=True)
class StudyExtension:
    """More trials for a study, also for one that has completed or was stopped.

    Attributes:
        trials: How many more.
        target: The study ends when a trial has this value or a better one. An earlier target
            holds no more.
        max_time: The study ends when it is so old. An earlier limit holds no more.
        space: Parameters that change, by their names, as for a new study; ``None`` takes one away.
            Trials outside of the changed space stay, and are not learned from. Named ones that have
            not begun are dropped.
        constraints: Those that hold from now on; by default the ones of before.
    """

    trials: int
    target: float | None = None
    max_time: str | int | None = None
    space: dict[str, Any] = field(default_factory=dict)
    constraints: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class QueuedTrials:
    """Trials that come next, each with its parameters. They are run beside all others."""

    trials: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class KeptCheckpoints:
    """Of which trials a study keeps the checkpoints from now on.

    Attributes:
        keep_checkpoints: ``all``, ``best``, the number of the best trials, or ``none``.
    """

    keep_checkpoints: str | int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial of a study.

    Attributes:
        number: From 0.
        job: The name of its train job; empty in a local study, whose trials are no jobs.
        parameters: Its arguments, by their names.
        state: ``Running``, ``Completed``, ``Failed``, ``MetricMissing``, ``Infeasible`` (the metric
            is no number), ``EarlyStopped``, ``Stopped`` or ``Deleted``.
        value: The last value of the objective, of several of the first one; ``None`` while there is
            none.
        values: The values of several objectives, in the order of the study; else empty.
        step: The step of that value.
        message: Why it has not completed.
        output_path: The folder of its own, if the study's job has one.
        repeat_of: The number of the trial whose parameters are run again; ``None`` for other trials.
        runs: Of a trial that is repeated, how many runs have completed, its own included; else 0.
        mean: The mean of the values of these runs.
        standard_error: The standard error of that mean; ``None`` of fewer than two runs.
        parent: The number of the trial from whose checkpoint it goes on; only with ``pbt``.
        member: The member of the population that it is a generation of; only with ``pbt``.
        checkpoints: ``Removed`` if its study keeps those of other trials only, ``InUse`` if they stay all
            the same, as somebody refers to them, and ``Unknown`` if its job was deleted before; else empty.
    """

    number: int
    job: str
    parameters: dict[str, Any]
    state: str
    value: float | None = None
    step: int | None = None
    message: str = ""
    output_path: str | None = None
    values: list[float] = field(default_factory=list)
    repeat_of: int | None = None
    runs: int = 0
    mean: float | None = None
    standard_error: float | None = None
    parent: int | None = None
    member: int | None = None
    checkpoints: str = ""


@dataclass(frozen=True, kw_only=True)
class Study(ResourceView):
    """A study and its trials, in the order of their numbers. ``best`` is the completed one with the
    best value, or of those that are repeated the one with the best mean. ``job`` is what all of them
    run, with masks where it may hold secrets.

    With several objectives, ``best`` is ``None``, and ``best_trials`` has the Pareto front: completed
    trials that no other one betters in an objective without being worse in another. ``front`` counts
    them. ``hypervolume`` is how much of the space of objectives they dominate, up to ``reference``,
    the worst value of each objective among completed trials.

    ``prior_trials`` counts the trials of earlier studies (``warm_start``) that it learns from.

    ``ended`` counts the trials that have ended, ``states`` all trials by their state. ``queued`` are the
    parameters of trials that a user named and that have not begun. ``dropped`` names those that the
    space of the last ``extend`` has excluded, each with the parameter and value that does not fit.
    Lists leave ``trials``, ``best_trials``, ``queued``, ``dropped``, ``space`` and ``job`` empty.
    """

    objective: str
    algorithm: str
    max_trials: int
    parallel: int
    max_failed: int = 0
    same_failures: int = 0
    stopper: str = ""
    stopper_options: dict[str, Any] = field(default_factory=dict)
    target: float | None = None
    max_time: str | None = None
    seed: int | None = None
    space: dict[str, Any] = field(default_factory=dict)
    constraints: list[str] = field(default_factory=list)
    parameters_as: str = "arguments"
    repeats: int = 0
    repeat_best: int = 3
    keep_checkpoints: str | int = "all"
    algorithm_options: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    ended: int = 0
    states: dict[str, int] = field(default_factory=dict)
    best: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    queued: list[dict[str, Any]] = field(default_factory=list)
    local: bool = False
    objectives: list[str] = field(default_factory=list)
    best_trials: list[Trial] = field(default_factory=list)
    front: int = 0
    hypervolume: float | None = None
    reference: list[float] = field(default_factory=list)
    warm_start: list[str] = field(default_factory=list)
    prior_trials: int = 0
    dropped: list[str] = field(default_factory=list)


_BOUNDS = ("min", "max", "values", "value")


def objectives_of(study: Study) -> list[tuple[str, bool]]:
    """The metrics of a study, and whether more of each is better."""
    found = []
    for text in study.objectives or [study.objective]:
        metric, _, goal = text.rpartition(":")
        found.append((metric, goal == "max"))
    return found


def why_other(new: NewStudy, study: Study) -> str:
    """Why a study that is there is not the one that is asked for; empty if it may be. Fields that
    the server fills in are not compared, nor an objective that is the default one.
    """
    if new.space and new.space.keys() != study.space.keys():
        return f"its parameters are {', '.join(study.space)}"
    for name, definition in new.space.items():
        found = study.space[name]
        if not _may_be_same(definition, found):
            return f"its space has {name}: {found}"
    objectives = [new.objective] if isinstance(new.objective, str) else new.objective
    goals = [(metric, goal[:3]) for metric, _, goal in (one.rpartition(":") for one in objectives)]
    found_goals = [(metric, "max" if more else "min") for metric, more in objectives_of(study)]
    if goals not in ([("loss", "min")], found_goals):
        return f"its objective is {study.objective}"
    return ""


def _may_be_same(definition: Any, found: Any) -> bool:
    if isinstance(definition, Mapping) and isinstance(found, Mapping):
        return all(
            found.get(key, value) == value for key, value in definition.items() if key in _BOUNDS
        )
    values = definition.get("values", definition) if isinstance(definition, Mapping) else definition
    if isinstance(values, (list, tuple)) and isinstance(found, list):
        return list(values) == found
    return isinstance(definition, Mapping) or isinstance(found, Mapping)


def trial_label(trial: Trial | TrialCurve) -> str:
    """What a trial is called: by its job, or by its number where a loop of users runs it."""
    return trial.job or f"trial {trial.number}"


def values_of(trial: Trial) -> list[float | None]:
    """The values of a trial, one for each objective."""
    return list(trial.values) or [trial.value]


def registered_trial(study: Study, number: int | None) -> Trial:
    """The trial whose outputs are to be registered; without a number the best one.

    Raises:
        InvalidRequest: There is none, or it is of a local study, whose trials are no jobs.
    """
    if study.local:
        raise InvalidRequest(
            f"trials of {study.name} keep no outputs, as a loop of your own runs them",
            field="name",
            value=study.name,
            allowed="a study whose trials are jobs",
            hint="Register what your loop has stored: model_registry.create_version(MODEL, URI).",
        )
    known = {trial.number: trial for trial in study.trials}
    if number is not None:
        if number not in known:
            raise refuse("number", number, f"a trial of {study.name}: 0 to {len(known) - 1}")
        found = known[number]
    elif study.best is not None:
        found = study.best
    else:
        front = ", ".join(str(trial.number) for trial in study.best_trials)
        raise refuse("number", None, f"one of {front}" if front else "a completed trial")
    if found.state not in ("Completed", "EarlyStopped"):
        raise refuse("number", found.number, f"a trial that has completed; it is {found.state}")
    return found


def source_of(trial: Trial, job: Mapping[str, Any]) -> str:
    """The folder with the results of a trial: its own, else the stored outputs of its job.

    Args:
        trial: The trial.
        job: The description of its job.

    Raises:
        InvalidRequest: There is none.
    """
    stored = job.get("outputs") or {}
    if source := trial.output_path or stored.get("uri"):
        return str(source)
    raise InvalidRequest(
        f"the trial {trial.number} ({trial.job}) has left no outputs",
        field="number",
        value=trial.number,
        allowed="a trial that has left outputs",
        hint="Have the code write its model into the working folder, or give the job of the study "
        "an output_path: cloudml hp submit … --output-path fds://BUCKET/PATH",
    )


def shown_parameters(parameters: Mapping[str, Any]) -> str:
    """The parameters of a trial in a table: ``lr=0.288 optimizer=adam cache=true``. Numbers are
    rounded; ``-o json`` has all of their digits.
    """
    return " ".join(f"{name}={_shown_value(value)}" for name, value in parameters.items())


def shown_value(trial: Trial) -> str:
    """The value of a trial in a table; of one that is repeated the mean, and its standard error."""
    value = trial.value if trial.mean is None else trial.mean
    error = "" if trial.standard_error is None else f" ± {trial.standard_error:.2g}"
    return "" if value is None else f"{value:g}{error}"


def _shown_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as the job gets it
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def planned_trials(study: Study) -> int:
    """How many trials a study has in all, with the repeats of the best."""
    return study.max_trials + study.repeats * study.repeat_best


def _ended(study: Study) -> str:
    return f"{study.ended}/{planned_trials(study)}"


def _best(study: Study) -> str:
    if study.front:
        return f"front of {study.front}"
    return "" if study.best is None else f"{shown_value(study.best)} ({trial_label(study.best)})"


_GOES_ON = frozenset({"Completed", "Stopped"})
STUDIES: ResourceType[NewStudy, Study] = ResourceType(
    name="study",
    plural="studies",
    help="Studies: searches for the arguments with which a job does best.",
    new=NewStudy,
    view=Study,
    columns={"TRIALS": _ended, "OBJECTIVE": lambda study: study.objective, "BEST": _best},
    actions={
        "stop": "Stop studies and the trials that run. What they found stays.",
        "pause": "Pause studies: trials that run go on, and no other begins.",
        "resume": "Resume studies that were paused.",
        "extend": "Run more trials of a study, also of one that has completed or was stopped.",
        "enqueue": "Run trials of your own next, beside all others.",
        "keep": "Choose the trials whose checkpoints a study keeps, also after its end.",
    },
    bodies={"extend": StudyExtension, "enqueue": QueuedTrials, "keep": KeptCheckpoints},
    at_end={"extend": _GOES_ON, "enqueue": _GOES_ON, "keep": _GOES_ON | {"Failed"}},
    succeeded=frozenset({"Completed"}),
    failed=frozenset({"Failed", "Stopped"}),
    deletes="Delete studies with the jobs of their trials, also those that run.",
    goes_along="with the jobs of all trials",
)
