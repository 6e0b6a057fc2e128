"""The fields of a study and of its trials, from the wire types."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from typing import Any

from cloud_ml.models.studies.study import NewStudy, StudyExtension, Trial
from cloud_ml_docs.markdown import code, prose, table

_ATTRIBUTE = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |^\w|\Z)", re.MULTILINE | re.DOTALL)


def fields() -> str:
    """The fields of a new study, and those that change when it is extended."""
    return _table(NewStudy) + "\n`extend` takes:\n\n" + _table(StudyExtension)


def trial_fields() -> str:
    """The fields of a trial."""
    return _table(Trial)


def _table(kind: type[Any]) -> str:
    described = dict(_ATTRIBUTE.findall(inspect.cleandoc(kind.__doc__ or "")))
    rows = [
        (
            code(field.name),
            code(str(field.type).removesuffix(" | None")),
            _default(field),
            prose(described[field.name]),
        )
        for field in dataclasses.fields(kind)
    ]
    return table(("Field", "Type", "Default", "Meaning"), rows)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return "" if field.default in (None, "") else code(json.dumps(field.default))
    return "" if field.default_factory is not dataclasses.MISSING else "required"
