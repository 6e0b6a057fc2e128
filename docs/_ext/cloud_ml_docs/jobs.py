"""The fields of a train job, from the wire type, the command line and what this server refuses."""

from __future__ import annotations

import dataclasses
import inspect
import re

from cloud_ml.cli.jobs.options import FIELD_OPTIONS
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.jobs.admission import NOT_OFFERED
from cloud_ml_docs.markdown import code, prose, table

_OPTIONS = {option.name: option for option in FIELD_OPTIONS}
_ARGUMENT = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |^\w|\Z)", re.MULTILINE | re.DOTALL)


def fields() -> str:
    """A table of fields: type, option of ``jobs submit``, meaning, and whether it is offered
    today.
    """
    described = dict(_ARGUMENT.findall(inspect.cleandoc(TrainJob.__doc__ or "")))
    rows = [
        (
            code(field.name),
            code(str(field.type).removesuffix(" | None")),
            _options(field.name),
            prose(described.get(field.name) or _help(field.name)),
            _offered(field.name),
        )
        for field in dataclasses.fields(TrainJob)
    ]
    return table(("Field", "Type", "Option", "Meaning", "Today"), rows)


def _options(name: str) -> str:
    option = _OPTIONS.get(name)
    return ", ".join(map(code, option.opts)) if option else ""


def _help(name: str) -> str:
    """The option's help; fields without an option reach the code as a variable."""
    option = _OPTIONS.get(name)
    return str(option.help) if option else ""


def _offered(name: str) -> str:
    return f"refused: {NOT_OFFERED[name]}" if name in NOT_OFFERED else "yes"
