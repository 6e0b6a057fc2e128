"""Studies that Optuna's client makes: their names, and their specs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from cloud_ml.domain.studies.optuna_records import STUDY_LABEL_OF_JOBS, OptunaStudy
from cloud_ml.domain.studies.spec import Goal, Objective, StudySpec
from cloud_ml.errors import Forbidden
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.settings.studies import StudySettings
from cloud_ml.usecases.access.identities import Identity

TRIALS_OF_A_STUDY = 1 << 16
"""A trial is known by the number of its study times this, and its own. So numbers of trials grow
within a study, as the client's cache wants, and stay below 2^53, which JavaScript can count.
"""
_LONGEST_SLUG = 32
_PLAIN = re.compile(r"[a-z](?:[a-z0-9-]{0,48}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class NewOptunaStudy(NewStudy):
    """A study that Optuna's client makes: see ``OptunaStudy``."""

    title: str
    directions: tuple[str, ...]
    made_by_job: str = ""


def optuna_spec(new: NewOptunaStudy, settings: StudySettings) -> StudySpec:
    """The spec of a study of Optuna's: its space is what its trials bring, and no trial that fails
    ends it.
    """
    most = settings.trials_per_study
    count = len(new.directions)
    names = ["value"] if count == 1 else [f"value_{number}" for number in range(count)]
    first, *further = (
        Objective(name, Goal(each)) for name, each in zip(names, new.directions, strict=True)
    )
    return StudySpec(
        job=TrainJob(new.name, "local", "local"),
        space=(),
        metric=first.metric,
        goal=first.goal,
        further=tuple(further),
        algorithm="optuna",
        max_trials=min(most, TRIALS_OF_A_STUDY),
        parallel=settings.parallel_trials,
        max_failed=most,
        seed=0,
        local=True,
        optuna=OptunaStudy(name=new.title, directions=new.directions, job=new.made_by_job),
    )


def is_open_to(caller: Identity, name: str, made: OptunaStudy | None) -> bool:
    """Whether a caller may use a study of the organisation, by the name of its record.

    A job uses what its own attempts have made, and the study that its label names. Whoever calls
    with a key or a token of their own uses all of them.
    """
    job = caller.job
    if job is None:
        return True
    if made is None:
        return False
    return made.job == job.uid or (bool(job.study) and job.study in (name, made.name))


def check_open_to(caller: Identity, name: str, made: OptunaStudy | None) -> None:
    """Raise ``Forbidden`` for a study that a caller may not use."""
    if is_open_to(caller, name, made):
        return
    raise Forbidden(
        f"This job may not use the study {name}: a job uses studies that it has made, and the one "
        f"that its label {STUDY_LABEL_OF_JOBS} names.",
        field="study",
        value=name,
        allowed="a study of this job",
        hint=f"Submit the job with --label {STUDY_LABEL_OF_JOBS}={name}"
        if made is not None
        else "A study of `cloudml hp submit` runs its own trials; a job makes another one.",
    )


def record_name(title: str) -> str:
    """The name of the record of a study: its own name if that is one of ours, else one made of it."""
    if _PLAIN.fullmatch(title):
        return title
    digest = hashlib.sha256(title.encode()).hexdigest()[:8]
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    return (
        f"{words}-{digest}" if words[:1].isalpha() else f"study-{words}-{digest}".replace("--", "-")
    )
