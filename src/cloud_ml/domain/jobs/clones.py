"""A changed copy of a job: its arguments, variables and fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from cloud_ml.domain.tracking.arguments import FLAG
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec, parameter_file
from cloud_ml.models.jobs.clone import JobClone, labels_of_copy
from cloud_ml.models.jobs.train_job import TrainJob

_BARE = ("true", "false")
_SHOWN = 50


def clone_job(job: TrainJob, clone: JobClone) -> TrainJob:
    """The copy that was asked for.

    Raises:
        InvalidRequest: A field of the copy is wrong, or an argument that it is to leave out is not
            there.
    """
    given = dict(clone.fields)
    arguments = given.pop("job_args", job.job_args)
    variables = {**(job.environment or {}), **clone.environment}
    flags, in_file = _split_changes(clone.arguments, variables.get(parameter_file.VARIABLE))
    if in_file:
        text = variables[parameter_file.VARIABLE]
        variables[parameter_file.VARIABLE] = parameter_file.change_parameters(text, in_file)
    if flags:
        words = codec.decode(TrainJob, _document_of(job, job_args=arguments)).arguments()
        _check_removed(words, flags)
        arguments = with_arguments(words, flags)
    kept = {name: _text(value) for name, value in variables.items() if value is not None}
    document = {
        **_document_of(job),
        "save_mode": False,
        "labels": labels_of_copy(job.job_name, job.labels) or None,
        **given,
        "job_name": clone.job_name,
        "job_args": arguments,
        "environment": kept or None,
    }
    return codec.decode(TrainJob, document)


def _split_changes(
    changes: Mapping[str, Any], text: Any
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The changes of flags, and those of parameters that stand in the job's file of parameters."""
    known = parameter_file.decode_parameters(text) or {} if isinstance(text, str) else {}
    in_file = {
        name.lstrip("-"): value for name, value in changes.items() if name.lstrip("-") in known
    }
    flags = {name: value for name, value in changes.items() if name.lstrip("-") not in in_file}
    return flags, in_file


def _check_removed(words: Sequence[str], changes: Mapping[str, Any]) -> None:
    """Refuse to leave out a flag that is not there: the copy would be the same job again."""
    flags = words[: words.index("--")] if "--" in words else words
    known = dict.fromkeys(filter(None, map(_flag_of, flags)))
    for name, value in changes.items():
        flag = name.lstrip("-")
        if value is None and flag not in known:
            shown = list(known)[:_SHOWN]
            near = get_close_matches(flag, shown, n=1)
            raise InvalidRequest(
                f"there is no argument --{flag} to leave out",
                field=f"arguments.{flag}",
                value=flag,
                allowed=", ".join(f"--{each}" for each in shown) or "none: the job has no flags",
                hint=f"Did you mean --{near[0]}?" if near else None,
            )


def with_arguments(words: Sequence[str], changes: Mapping[str, Any]) -> list[str]:
    """Arguments with other values for some flags, each in the form in which it stands there.

    A flag that stands there several times has its last value changed, which is the one that counts.
    One that is absent is added as ``--name=value``; the value ``None`` removes a flag.
    """
    found = list(words)
    for name, value in changes.items():
        found = _change_flag(found, name.lstrip("-"), None if value is None else _text(value))
    return found


def _change_flag(words: list[str], name: str, value: str | None) -> list[str]:
    flags = words[: words.index("--")] if "--" in words else words
    places = [at for at, word in enumerate(flags) if name in word and _flag_of(word) == name]
    if value is None:
        gone = {at for place in places for at in range(place, _behind(words, place))}
        return [word for at, word in enumerate(words) if at not in gone]
    if not places:
        return _add_flag(words, f"--{name}={value}")
    at = places[-1]
    flag, equals, _ = words[at].partition("=")
    end = _behind(words, at)
    takes_next = end > at + 1
    if not equals and not takes_next and value in _BARE:
        return words if value == "true" else [*words[:at], *words[end:]]
    new = [flag, value] if takes_next and not value.startswith("-") else [f"{flag}={value}"]
    return [*words[:at], *new, *words[end:]]


def _behind(words: Sequence[str], at: int) -> int:
    """The place behind a flag and its value."""
    behind = at + 1
    if "=" in words[at] or behind == len(words):
        return behind
    return behind if words[behind] == "--" or FLAG.fullmatch(words[behind]) else behind + 1


def _flag_of(word: str) -> str:
    match = FLAG.fullmatch(word)
    return match[1] if match else ""


def _add_flag(words: list[str], word: str) -> list[str]:
    """Behind the other flags, and before what ``--`` keeps from being read as one."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], word, *words[end:]]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document_of(job: TrainJob, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = codec.encode(job)
    return {**{each.name: document[each.name] for each in fields(job)}, **changes}
