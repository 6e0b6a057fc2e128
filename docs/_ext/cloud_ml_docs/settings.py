"""Every setting, from the source of ``cloud_ml.settings``: the texts below the fields are its
documentation.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from typing import Any, cast

from cloud_ml import settings
from cloud_ml_docs.markdown import code, first_paragraph, prose, table


def themes() -> str:
    """A section with a table for each theme."""
    return "\n".join(
        _theme(theme.name, cast("Any", theme.default_factory))
        for theme in _fields(settings.Settings)
    )


def _theme(name: str, kind: type) -> str:
    texts = descriptions(kind)
    rows = [
        (
            code(field.name),
            code(str(field.type)),
            _default(field.default),
            code(f"CLOUDML_{name}_{field.name}".upper()),
            prose(texts[field.name]),
        )
        for field in _fields(kind)
    ]
    head = f"## {name}\n\n{first_paragraph(kind.__doc__)}\n\n"
    return head + table(("Setting", "Type", "Default", "Variable", "Meaning"), rows)


def descriptions(kind: type) -> dict[str, str]:
    """Field → the string that stands below it in the source.

    Raises:
        KeyError: A field has none.
    """
    body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]).body
    found: dict[str, str] = {}
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[cast("ast.Name", field.target).id] = str(below.value.value)
    if missing := [field.name for field in _fields(kind) if field.name not in found]:
        raise KeyError(f"{kind.__name__}.{missing[0]} has no description below it")
    return found


def _fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cast("Any", kind))


def _default(value: object) -> str:
    return (
        "empty"
        if value == ""
        else code(str(value).lower() if isinstance(value, bool) else f"{value}")
    )
