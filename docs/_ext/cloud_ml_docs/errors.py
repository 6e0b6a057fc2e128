"""Every code of an error, from the tree in ``cloud_ml.errors``."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml import errors
from cloud_ml.api.errors import STATUS
from cloud_ml.cli.lazy import MissingExtra
from cloud_ml.errors import WaitTimedOut
from cloud_ml_docs.markdown import code, first_paragraph, table

LOCAL: tuple[type[errors.CloudMlError], ...] = (MissingExtra, WaitTimedOut)
"""Errors that only programs on the user's machine raise."""


def codes() -> str:
    """A table of codes: status on the wire, class in Python, meaning."""
    kinds: list[type[errors.CloudMlError]] = [*tree(errors.CloudMlError), MissingExtra]
    rows = [
        (
            code(kind.code),
            status(kind),
            code(kind.__name__),
            "yes" if issubclass(kind, errors.TryAgain) else "",
            first_paragraph(kind.__doc__),
        )
        for kind in kinds
    ]
    return table(("Code", "Status", "Class", "Later?", "Meaning"), rows)


def tree(kind: type[errors.CloudMlError]) -> Iterator[type[errors.CloudMlError]]:
    """``kind`` and everything below it in ``cloud_ml.errors``, in the order of the source."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def status(kind: type[errors.CloudMlError]) -> str:
    """The HTTP status that the server answers with; a dash for errors that never travel."""
    if kind in LOCAL:
        return "–"
    return str(next(STATUS[base] for base in kind.__mro__ if base in STATUS))
