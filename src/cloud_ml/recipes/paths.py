"""``fds://`` in arguments and variables, turned into the paths at which a job sees its buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cloud_ml.engines.base import JobPaths
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import parse_object_uri


def rewrite(text: str, places: JobPaths) -> str:
    """``text`` with its URI as a path, if it is a whole ``fds://`` URI or ``--flag=`` one; else
    as it is.
    """
    uri = uri_in(text)
    return text.removesuffix(uri) + _path(uri, places) if uri else text


def uri_in(text: str) -> str:
    """The ``fds://`` URI that ``text`` is, or that stands behind its ``--flag=``; empty for any
    other text.
    """
    flag, separator, value = text.partition("=")
    if separator and flag.startswith("-") and value.startswith("fds://"):
        return value
    return text if text.startswith("fds://") else ""


def rewrite_all(texts: Iterable[str], places: JobPaths) -> tuple[str, ...]:
    """``rewrite`` for each."""
    return tuple(rewrite(text, places) for text in texts)


def rewrite_values(variables: Mapping[str, str], places: JobPaths) -> dict[str, str]:
    """``rewrite`` for each value."""
    return {name: rewrite(value, places) for name, value in variables.items()}


def _path(uri: str, places: JobPaths) -> str:
    try:
        bucket, key = parse_object_uri("uri", uri)
    except InvalidRequest:  # no path can stand for it: the code gets what the user wrote
        return uri
    return f"{places.storage}/{bucket}/{key}".rstrip("/") if key else f"{places.storage}/{bucket}"
