"""Studies that Optuna's client makes: their names, and their specs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from cloud_ml.domain.studies.optuna_records import OptunaStudy
from cloud_ml.domain.studies.spec import Goal, Objective, StudySpec
from cloud_ml.models.study import NewStudy
from cloud_ml.models.train_job import TrainJob
from cloud_ml.settings.studies import StudySettings

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
        optuna=OptunaStudy(name=new.title, directions=new.directions),
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
