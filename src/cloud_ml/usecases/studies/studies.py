"""Studies: what is asked for is checked, and what became of it is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloud_ml.domain.studies.combinations import count_combinations, grid_size, is_finite
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.optuna_views import space_of
from cloud_ml.domain.studies.population import Population, population_options
from cloud_ml.domain.studies.ranking import best_of
from cloud_ml.domain.studies.repeats import Estimate, find_estimates
from cloud_ml.domain.studies.samplers import is_sampler, parse_sampler_options
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.spec import (
    STUDY,
    StudyPhase,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialStatus,
    seeded,
    trial_folder,
    trial_job,
    trial_name,
)
from cloud_ml.domain.studies.stopping import options_of, parse_stopper
from cloud_ml.domain.tenancy import Operation
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models import codec
from cloud_ml.models.common import duration_text, refuse, split_uri
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import STUDIES, NewStudy, Study, Trial
from cloud_ml.settings.studies import StudySettings
from cloud_ml.state.base import StateStore
from cloud_ml.tuning.algorithms import suggest
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.masking import masked_parameters, masked_space
from cloud_ml.usecases.resources import Resource, Resources
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.studies.algorithms import read_algorithm
from cloud_ml.usecases.studies.changes import (
    check_size,
    enqueued,
    extended,
    max_time_of,
    target_of,
)
from cloud_ml.usecases.studies.checkpoints import (
    read_kept_checkpoints,
    show_kept_checkpoints,
    with_kept_checkpoints,
)
from cloud_ml.usecases.studies.objectives import front_fields, parse_objectives
from cloud_ml.usecases.studies.optuna_studies import NewOptunaStudy, optuna_spec
from cloud_ml.usecases.studies.original_tunings import OriginalStudy, Tuning
from cloud_ml.usecases.studies.outputs import check_output_folder
from cloud_ml.usecases.studies.populations import GENERATIONS, read_population
from cloud_ml.usecases.studies.spaces import read_parameters_as, read_space
from cloud_ml.usecases.studies.warm_starts import check_warm_start, with_prior_trials

StudyResource = Resource[NewStudy, Study, StudySpec, StudyStatus]
StudyResources = Resources[NewStudy, Study, StudySpec, StudyStatus]
CheckJob = Callable[[Identity, TrainJob, Capacity], None]
"""Refuses a job that could not be submitted; raises what a submit would."""
_USUAL_TRIALS = 20
_MOST_REPEATS, _MOST_REPEATED = 20, 20
_NO_ESTIMATES: Mapping[int, Estimate] = {}
_BEHIND_NAME = len(trial_name("", 9999))
_LONGEST_NAME = 63 - _BEHIND_NAME


def study_resource(
    check_job: CheckJob, storage: Storage, settings: StudySettings, store: StateStore
) -> StudyResource:
    """The description of studies.

    Args:
        check_job: Judges the job of the first trial, whose end nobody should have to wait for.
        storage: Where its code is.
        settings: The limits.
        store: Where other studies are: those that a new one learns from, or whose folder it has.
    """

    def find(org: str, name: str) -> StudyRecord | None:
        return store.find(STUDY, org, name)

    def admit(caller: Identity, spec: StudySpec, capacity: Capacity) -> None:
        if spec.local:
            return
        # Any point of the space will do, and no tuner has to be asked for it: it is without earlier
        # studies, and instead of a sampler of Optuna by chance.
        algorithm = "random" if is_sampler(spec.algorithm) else spec.algorithm
        suggestion = suggest(replace(spec, algorithm=algorithm, prior=()), (), 0)
        assert suggestion is not None
        first = TrialStatus(number=0, parameters=dict(suggestion.parameters))
        check_job(caller, trial_job(spec.job.job_name, spec, first), capacity)
        if spec.job.check_uris and not spec.original:
            _check_trainer(storage, caller.org, spec.job.trainer_uri)
        check_output_folder(store, caller.org, spec, settings.trials_per_study)

    def spec_of(new: NewStudy) -> StudySpec:
        return (
            optuna_spec(new, settings)
            if isinstance(new, NewOptunaStudy)
            else study_spec(new, settings)
        )

    return Resource(
        type=STUDIES,
        kind=STUDY,
        operation=Operation.RUN_JOBS,
        spec_of=spec_of,
        first_status=lambda _: StudyStatus(),
        complete=lambda caller, spec: with_prior_trials(spec, caller.org, find),
        admit=admit,
        actions={
            "stop": lambda spec: replace(spec, stopped=True),
            "pause": lambda spec: replace(spec, paused=True),
            "resume": lambda spec: replace(spec, paused=False),
            "enqueue": lambda spec, request: enqueued(spec, request, settings),
            "keep": lambda spec, request: with_kept_checkpoints(spec, request, settings),
        },
        record_actions={"extend": lambda study, request: extended(study, request, settings)},
        fields=_fields,
        in_list=lambda study: replace(
            study, trials=[], best_trials=[], queued=[], dropped=[], space={}, job={}
        ),
        phases=tuple(StudyPhase),
        has_controller=True,
    )


def _check_trainer(storage: Storage, org: str, uri: str) -> None:
    """Refuse code that is not there. A single job waits for it; a study would fail trial by trial.

    Raises:
        InvalidRequest: There is no such object.
    """
    if not uri.startswith("fds://"):
        return
    bucket, key = split_uri(uri)
    try:
        storage.head(org, bucket, key)
    except NotFound:
        raise InvalidRequest(
            f"job.trainer_uri is {uri[:300]}, and there is nothing",
            field="job.trainer_uri",
            value=uri,
            allowed="an object that exists, or a path of this machine",
            hint=f"Upload it: cloudml storage cp FILE {uri[:300]}",
        ) from None


def study_spec(new: NewStudy, settings: StudySettings) -> StudySpec:
    """A study that can be carried out.

    Raises:
        InvalidRequest: Names the field, its value, and what is allowed.
    """
    if len(new.name) > _LONGEST_NAME:
        behind = trial_name("", 0)
        raise refuse("name", new.name, f"at most {_LONGEST_NAME} characters: jobs add {behind}")
    first, *further = parse_objectives(new.objective)
    algorithm = read_algorithm(new.algorithm, len(further) + 1)
    if further:
        _check_several(new)
    if new.repeats:
        _check_repeats(new)
    population = read_population(algorithm, new)
    sampler_options = (
        parse_sampler_options(algorithm, new.algorithm_options) if is_sampler(algorithm) else {}
    )
    space, constraints = read_space(algorithm, new.space, new.constraints)
    trials = tuple(
        dict(check_trial(space, trial, f"trials[{number}]", constraints))
        for number, trial in enumerate(new.trials)
    )
    if not space and not trials:
        raise refuse("space", new.space, "at least one parameter, or trials")
    most = (
        _max_trials(new, algorithm, space, len(trials), settings.trials_per_study)
        if population is None
        else _trials_of(population, new, settings.trials_per_study)
    )
    check_size(space, trials, most)
    job = _job(new, space)
    names = {name: None for trial in trials for name in trial} | {one.name: None for one in space}
    return StudySpec(
        job=job,
        space=space,
        metric=first.metric,
        goal=first.goal,
        further=tuple(further),
        algorithm=algorithm,
        max_trials=most,
        parallel=_parallel(new, settings.parallel_trials),
        max_failed=_within("max_failed", new.max_failed, 0, settings.trials_per_study),
        seed=new.seed,
        trials=trials,
        original=isinstance(new, OriginalStudy),
        stopper=parse_stopper(new.stopper, new.stopper_options),
        target=target_of(new.target),
        max_time_s=max_time_of(new.max_time),
        same_failures=_same_failures(new, settings.trials_per_study),
        local=new.local,
        constraints=constraints,
        parameters_as=read_parameters_as(new.parameters_as, names, job.environment),
        repeats=_within("repeats", new.repeats, 0, _MOST_REPEATS),
        repeat_best=_within("repeat_best", new.repeat_best, 1, _MOST_REPEATED),
        warm_start=check_warm_start(new, algorithm),
        population=population,
        sampler_options=sampler_options,
        keep_checkpoints=read_kept_checkpoints(
            new.keep_checkpoints,
            objectives=len(further) + 1,
            local=new.local,
            settings=settings,
        ),
    )


def _same_failures(new: NewStudy, most: int) -> int:
    """A tuning runs all of its trials, however they fail."""
    return 0 if isinstance(new, Tuning) else _within("same_failures", new.same_failures, 0, most)


def _parallel(new: NewStudy, most: int) -> int:
    """How many trials run at a time. A tuning asks for all of them, and gets as many as there may
    be.
    """
    if isinstance(new, Tuning):
        return min(new.parallel, most)
    return _within("parallel", new.parallel, 1, most)


def _job(new: NewStudy, space: tuple[Parameter, ...]) -> TrainJob:
    if new.local:
        if new.job:
            raise refuse("job", new.job, "nothing, as a loop of yours runs the trials")
        return TrainJob(new.name, "local", "local")
    if not new.job:
        raise refuse(
            "job", {}, "the train job of each trial; or write local: true for a loop of yours"
        )
    if "job_name" in new.job:
        named = f"no name: trials are called {trial_name(new.name, 0)} and so on"
        raise refuse("job.job_name", new.job["job_name"], named)
    job = codec.decode(TrainJob, {**new.job, "job_name": new.name}, path="job")
    if job.save_mode:
        raise refuse("job.save_mode", True, "false: a trial that is only saved would never end")
    if job.array is not None:
        raise refuse("job.array", job.array, "none: trials of a study are jobs of their own")
    if job.checkpoint is not None and job.checkpoint.path:
        own = "nothing: each trial has a folder of its own for checkpoints"
        raise refuse("job.checkpoint.path", job.checkpoint.path, own)
    if job.output_path and any(parameter.name == "output_path" for parameter in space):
        raise refuse("space.output_path", "a parameter", "another name: each trial has a folder")
    return job


def _check_several(new: NewStudy) -> None:
    """Refuse what takes one objective.

    Raises:
        InvalidRequest: The study has it.
    """
    why = "as it takes one objective, and the study has several"
    if new.stopper:
        raise refuse("stopper", new.stopper, f"no stopper, {why}")
    if new.target is not None:
        raise refuse("target", new.target, f"no target, {why}")


def _check_repeats(new: NewStudy) -> None:
    """Refuse what does not go with repeats of the best trials.

    Raises:
        InvalidRequest: The study has it.
    """
    if new.local:
        raise refuse("repeats", new.repeats, "0, as a loop of yours runs the trials")
    if not isinstance(new.objective, str) and len(new.objective) > 1:
        raise refuse("repeats", new.repeats, "0, as the study has several objectives")
    if new.target is not None:
        allowed = "no target, as repeats begin when all trials have ended"
        raise refuse("target", new.target, allowed)


def _max_trials(
    new: NewStudy, algorithm: str, space: tuple[Parameter, ...], named: int, most: int
) -> int:
    """How many trials there are: as asked for, and no more than there are to try."""
    constraints = tuple(new.constraints)
    if not space:
        there = named
    elif algorithm == "grid":
        # Count only far enough to know whether there are too many.
        there = named + grid_size(space, most + 1, constraints)
    else:
        there = most if new.max_trials is not None else max(named, _USUAL_TRIALS)
        if is_finite(space):  # no trial is run twice
            combinations = count_combinations(space, there, constraints)
            there = there if combinations is None else min(there, named + combinations)
    if new.max_trials is not None:
        there = min(there, _within("max_trials", new.max_trials, max(1, named), most))
    elif there > most:
        raise refuse("space", f"a grid of {there} trials", f"at most {most}, or set max_trials")
    return there


def _trials_of(population: Population, new: NewStudy, most: int) -> int:
    """How many trials a population has, which may be alike."""
    usual = min(GENERATIONS * population.population, most)
    count = usual if new.max_trials is None else new.max_trials
    return _within("max_trials", count, 1, most)


def _within(field: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise refuse(field, value, f"{least} to {most}")
    return value


def _fields(record: StudyRecord) -> Mapping[str, Any]:
    spec, status = record.spec, record.status
    best, estimates = best_of(spec, status.trials), find_estimates(status.trials)
    return {
        "objective": ", ".join(map(str, spec.objectives)),
        "objectives": [str(one) for one in spec.objectives],
        **front_fields(record, lambda trial: shown_trial(record, trial)),
        "algorithm": spec.algorithm,
        "algorithm_options": _shown_options(spec),
        "max_trials": spec.max_trials,
        "parallel": spec.parallel,
        "max_failed": spec.max_failed,
        "seed": seeded(record).seed,
        "stopper": "" if spec.stopper is None else spec.stopper.name,
        "stopper_options": {} if spec.stopper is None else options_of(spec.stopper),
        "target": spec.target,
        "max_time": duration_text(spec.max_time_s) if spec.max_time_s else None,
        "same_failures": spec.same_failures,
        "space": masked_space(_shown_space(record)),
        "constraints": list(spec.constraints),
        "parameters_as": str(spec.parameters_as),
        "repeats": spec.repeats,
        "repeat_best": spec.repeat_best,
        "keep_checkpoints": show_kept_checkpoints(spec.keep_checkpoints),
        "warm_start": list(spec.warm_start),
        "prior_trials": len(spec.prior),
        "job": {} if spec.local else _shown_job(spec.job),
        "local": spec.local,
        "reason": status.reason,
        "message": status.message,
        "ended": len(status.trials) - len(status.running),
        "states": Counter(str(trial.state) for trial in status.trials),
        "best": None if best is None else shown_trial(record, best, estimates),
        "trials": [shown_trial(record, trial, estimates) for trial in status.trials],
        "queued": [masked_parameters(each) for each in _queued(spec, status)],
        "dropped": list(spec.dropped),
    }


def _shown_options(spec: StudySpec) -> Mapping[str, Any]:
    """The options of the algorithm: those of a population are all that are in force."""
    if spec.population is None:
        return spec.sampler_options
    return population_options(spec.population)


def _shown_space(record: StudyRecord) -> dict[str, Any]:
    """The space that was asked for; of a study of Optuna's what its trials have had of it."""
    if record.spec.optuna is not None:
        return space_of(record.status)
    return {parameter.name: parameter.document() for parameter in record.spec.space}


def _queued(spec: StudySpec, status: StudyStatus) -> Sequence[dict[str, Any]]:
    """The parameters that users named and that no trial has yet."""
    # The trials that did not come from the queue have used the trials of the spec, in order.
    taken = sum(trial.queued for trial in status.trials)
    return [*spec.trials[len(status.trials) - taken :], *spec.queued[taken:]]


def _shown_job(job: TrainJob) -> Mapping[str, Any]:
    return {
        name: value for name, value in views.submitted_fields(job).items() if name != "job_name"
    }


def shown_trial(
    record: StudyRecord, trial: TrialStatus, estimates: Mapping[int, Estimate] = _NO_ESTIMATES
) -> Trial:
    """A trial as its users see it, with what its repeats say of it."""
    estimate = estimates.get(trial.number)
    value, step = trial.value, trial.step
    if value is None and trial.points:
        step, value = trial.points[-1].step, trial.points[-1].value
    return Trial(
        number=trial.number,
        job="" if record.spec.local else trial_name(record.key.name, trial.number),
        parameters=masked_parameters(trial.parameters),
        state=trial.state,
        value=value,
        step=step,
        message=trial.message,
        output_path=trial_folder(record.spec, trial.number),
        values=list(trial.values),
        repeat_of=trial.repeat_of,
        parent=trial.parent,
        member=trial.member,
        checkpoints=trial.checkpoints or "",
        runs=0 if estimate is None else estimate.runs,
        mean=None if estimate is None else estimate.mean,
        standard_error=None if estimate is None else estimate.standard_error,
    )
