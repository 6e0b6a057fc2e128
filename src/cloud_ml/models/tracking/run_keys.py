"""Names of metrics and parameters, keys of tags, and steps: the limits of MLflow."""

from __future__ import annotations

import operator
import posixpath
import re
from collections.abc import Mapping

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common

LONGEST_KEY = 250
LARGEST_STEP = 10**18
"""As ``domain.metrics.points`` has it."""
_KEY = re.compile(r"[/\w.\- :]+")


def check_key(field: str, key: object) -> str:
    """The name of a metric or a parameter, or the key of a tag.

    Raises:
        InvalidRequest: It is none.
    """
    allowed = (
        f"1 to {LONGEST_KEY} letters, digits, '_', '-', '.', ':', '/' and blanks, "
        "which form no path that leaves its folder"
    )
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not _KEY.fullmatch(key):
        raise common.refuse(field, _shorten(key), allowed)
    if posixpath.normpath(key) != key or key.startswith(("/", "..")) or key == ".":
        raise common.refuse(field, key, allowed)
    return key


def check_step(step: object) -> int:
    """The step of a value: a whole number, of Python, numpy, or a tensor of one element.

    Raises:
        InvalidRequest: It is none.
    """
    allowed = f"a whole number from {-LARGEST_STEP} to {LARGEST_STEP}"
    if isinstance(step, Mapping):
        raise InvalidRequest(
            "step is a dict; values are named, as in run.log(5, loss=0.2)",
            field="step",
            allowed=allowed,
            hint="To log a dict: run.log(step, **values), or run.log(**values).",
        )
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        raise common.refuse("step", step, allowed) from None
    if isinstance(step, bool) or abs(number) > LARGEST_STEP:
        raise common.refuse("step", step, allowed)
    return number


def _shorten(key: object) -> object:
    return key[:80] if isinstance(key, str) else type(key).__name__
