"""The run that a job is: made with its record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.tracking.arguments import as_parameters, parameters_of
from cloud_ml.domain.tracking.runs import DEFAULT_EXPERIMENT, EXPERIMENT_LABEL, NewRun
from cloud_ml.domain.workloads.spec import Program
from cloud_ml.models import parameter_file
from cloud_ml.models.secrets.arguments import mask_words
from cloud_ml.models.secrets.secret import masked_value
from cloud_ml.usecases.access.identities import Identity

ExperimentOf = Callable[[Identity, str], str]
"""The id of the experiment of a name, which is made if there is none."""


def no_experiments(_caller: Identity, _name: str) -> str:
    """All jobs are in the default experiment."""
    return DEFAULT_EXPERIMENT


def _params_of(program: Program, variables: Collection[str]) -> dict[str, str]:
    """The parameters of those variables, of the file that the job has, and of its arguments, which
    count first.
    """
    given = {name: value for name, value in program.variables.items() if name in variables}
    of_variables = as_parameters({name: masked_value(name, value) for name, value in given.items()})
    text = masked_value(parameter_file.VARIABLE, program.variables.get(parameter_file.VARIABLE, ""))
    of_file = as_parameters(parameter_file.decode_parameters(text) or {})
    return {**of_variables, **of_file, **parameters_of(mask_words(program.arguments))}


def run_of_job(
    caller: Identity,
    spec: JobSpec,
    now: datetime,
    experiment_of: ExperimentOf,
    variables: Collection[str] = (),
) -> NewRun:
    """The row of a job's run: its arguments are the parameters, its labels the tags.

    The label ``experiment`` names the experiment. ``variables`` are names of variables that are
    parameters, too, as a study passes them.
    """
    job = spec.submitted
    labels = job.labels or {}
    named = labels.get(EXPERIMENT_LABEL)
    return NewRun(
        experiment=experiment_of(caller, named) if named else DEFAULT_EXPERIMENT,
        name=job.job_name,
        start=round(now.timestamp() * 1000),
        params=_params_of(spec.workload.program, variables),
        tags=labels,
    )
