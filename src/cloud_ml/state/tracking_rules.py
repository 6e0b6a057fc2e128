"""What every store of runs decides alike, and the words of its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloud_ml.domain.tracking.runs import (
    ATTEMPT_TAG,
    DEFAULT_EXPERIMENT,
    DEFAULT_NAME,
    LONGEST_TAG,
    MODEL_HISTORY_TAG,
    Experiment,
    LastValue,
    LogBatch,
    RunChange,
    RunRow,
    TrackingLimits,
)
from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, QuotaExceeded

_MOST_INPUT_CHARACTERS, _MOST_INPUTS = 1_000_000, 1000


def changed(run: RunRow, change: RunChange) -> RunRow:
    """A run after a change. State and end of a job are its own.

    Raises:
        InvalidRequest: It would have too many inputs.
    """
    state, end = (None, None) if run.is_job else (change.state, change.end)
    return replace(
        run,
        name=run.name if change.name is None else change.name,
        state=run.state if state is None else state,
        end=run.end if end is None else end,
        deleted=run.deleted if change.deleted is None else change.deleted,
        inputs=_with_inputs(run, change),
        experiment=run.experiment if change.experiment is None else change.experiment,
    )


def is_news(before: RunRow, after: RunRow) -> bool:
    """Whether those who wait for a run are told of a change.

    They are told of its name, state, end and deletion. Inputs are logged, as metrics are, and
    would wake everybody for each call of a logger. The record of a job is changed by its controller
    alone.
    """
    return not before.is_job and _watched(before) != _watched(after)


def may_be_news(change: RunChange) -> bool:
    """Whether a change sets anything that is watched: followers are woken after its commit."""
    return any(
        value is not None for value in (change.name, change.state, change.end, change.deleted)
    )


def _watched(run: RunRow) -> tuple[object, ...]:
    return run.name, run.state, run.end, run.deleted


def with_revision(before: Experiment, after: Experiment, advance: Callable[[], int]) -> Experiment:
    """How a changed experiment is stored: with a new revision, if those who watch it are told.

    They are told of its name, tags and deletion. Who sets a tag to the value that it has wakes
    nobody.
    """
    is_news = (before.name, before.tags, before.deleted) != (after.name, after.tags, after.deleted)
    return replace(after, revision=advance() if is_news else before.revision)


def sort_by_name(values: Mapping[str, LastValue]) -> Sequence[LastValue]:
    """Metrics in the order of their names, whatever order they were found in."""
    return [values[name] for name in sorted(values)]


def begins(tags: Mapping[str, str], attempt: int) -> bool:
    """Whether an attempt of a job begins the run of the job now: it has not done so before."""
    return tags.get(ATTEMPT_TAG) != str(attempt)


def _with_inputs(run: RunRow, change: RunChange) -> str:
    there = run.inputs if change.inputs is None else change.inputs
    if not change.more_inputs:
        return there
    known: list[Any] = json.loads(there)
    together = [*known, *(one for one in change.more_inputs if one not in known)]
    text = json.dumps(together)
    if len(together) > _MOST_INPUTS or len(text) > _MOST_INPUT_CHARACTERS:
        allowed = f"at most {_MOST_INPUTS} data sets of {_MOST_INPUT_CHARACTERS} bytes together"
        shown = f"{len(together)} of {len(text)} bytes"
        raise InvalidRequest(
            f"datasets is {shown!r}; allowed is {allowed}",
            field="datasets", value=shown, allowed=allowed,
        )  # fmt: skip
    return text


def new_tags(there: Mapping[str, str], batch: LogBatch) -> dict[str, str]:
    """The tags of a batch, with its models behind those that a run has already.

    Raises:
        InvalidRequest: The run's tag of models is no list, or becomes too long.
    """
    if not batch.models:
        return dict(batch.tags)
    try:
        known = json.loads(there.get(MODEL_HISTORY_TAG, "[]"))
    except (ValueError, RecursionError):
        known = None
    if not isinstance(known, list):
        raise InvalidRequest(
            f"the tag {MODEL_HISTORY_TAG} of the run is not a list of models",
            field="model_json", value=there[MODEL_HISTORY_TAG][:80],
            allowed="a model of a run whose tag is a list", hint="Remove the tag.",
        )  # fmt: skip
    text = json.dumps([*known, *batch.models])
    if len(text) > LONGEST_TAG:
        raise InvalidRequest(
            f"the models of the run would have {len(text)} characters",
            field="model_json", value=len(text), allowed=f"at most {LONGEST_TAG} together",
        )  # fmt: skip
    return {**batch.tags, MODEL_HISTORY_TAG: text}


def new_params(there: Mapping[str, str], batch: LogBatch, limits: TrackingLimits) -> dict[str, str]:
    """The parameters of a batch that are new.

    Raises:
        InvalidRequest: One has another value already, or there are too many.
    """
    for key, value in batch.params.items():
        if there.get(key, value) != value:
            raise InvalidRequest(
                f"parameter {key[:80]!r} is {there[key][:80]!r} already, and cannot become "
                f"{value[:80]!r}: a parameter never changes",
                field="params", value=key, allowed="a parameter that is new, or its value",
            )  # fmt: skip
    new = {key: value for key, value in batch.params.items() if key not in there}
    check_number("params", len(there) + len(new), limits.params)
    check_characters("params", {**there, **new}, limits.characters)
    return new


def check_characters(what: str, pairs: Mapping[str, str], most: int) -> None:
    """Refuse parameters or tags of one run that are too long together.

    Raises:
        InvalidRequest: They are.
    """
    size = sum(len(key) + len(value) for key, value in pairs.items())
    if size > most:
        raise InvalidRequest(
            f"the {what} of the run would have {size} characters",
            field=what, value=size, allowed=f"at most {most} characters in all",
        )  # fmt: skip


def check_number(what: str, number: int, most: int) -> None:
    """Refuse too many parameters or tags of one run.

    Raises:
        InvalidRequest: There are.
    """
    if number > most:
        raise InvalidRequest(
            f"the run would have {number} {what}",
            field=what, value=number,
            allowed=f"at most {most} (the operator's setting tracking.{what}_per_run)",
        )  # fmt: skip


def search_too_long(seconds: float) -> InvalidRequest:
    """A search takes more time than one may take."""
    return InvalidRequest(
        f"the search took longer than {seconds:g} s, and was ended",
        field="filter", value="a filter that takes long",
        allowed=f"a search of at most {seconds:g} s (the operator's setting tracking.search_s)",
        hint="Compare with = or IN, name an experiment, or use shorter patterns.",
    )  # fmt: skip


def experiment_taken(experiment: Experiment) -> AlreadyExists:
    """Another experiment has the name."""
    return AlreadyExists(
        f"there is an experiment {experiment.name[:200]!r} already",
        field="name", value=experiment.name[:200], allowed="a name that is not in use",
    )  # fmt: skip


MOST_EXPERIMENT_CHARACTERS = 8_000_000
"""Of the tags of all experiments of an organisation: lists read them together."""


def check_experiment_tags(org: str, characters: int) -> None:
    """Refuse tags of experiments that are too long together.

    Raises:
        QuotaExceeded: They are.
    """
    if characters > MOST_EXPERIMENT_CHARACTERS:
        raise QuotaExceeded(
            f"the tags of all experiments of {org} would have {characters} characters",
            field="tags",
            allowed=f"at most {MOST_EXPERIMENT_CHARACTERS} characters together",
            hint="Remove tags, or make them shorter.",
        )


def tag_characters(experiment: Experiment) -> int:
    """How long the tags of an experiment are."""
    return sum(len(key) + len(value) for key, value in experiment.tags.items())


def too_many_experiments(org: str, most: int) -> QuotaExceeded:
    """The organisation has as many as it may have."""
    return QuotaExceeded(
        f"{org} has {most} experiments, deleted ones among them; one more is refused",
        allowed=f"at most {most} (the operator's setting tracking.experiments_per_org)",
    )


def no_experiment(id_: str) -> NotFound:
    """There is no such experiment."""
    shown = id_[:64]
    return NotFound(f"there is no experiment {shown}", field="experiment_id", value=shown)


def existing_experiment(stored: Experiment | None, org: str, id_: str) -> Experiment:
    """The experiment that is stored, or the default one, which need not be.

    Raises:
        NotFound: There is none.
    """
    if stored is None and id_ == DEFAULT_EXPERIMENT:
        return Experiment(DEFAULT_EXPERIMENT, org, DEFAULT_NAME)
    if stored is None:
        raise no_experiment(id_)
    return stored


def no_run(uid: str) -> NotFound:
    """There is no such run."""
    shown = uid[:64]
    return NotFound(f"there is no run {shown}", field="run_id", value=shown)
