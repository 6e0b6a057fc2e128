"""What keys and values of runs may be: the limits of MLflow."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.models import common
from cloud_ml.models.tracking.run_keys import check_key

LONGEST_PARAM, LONGEST_NAME = 6000, 500
MOST_TAG_BYTES = 256 * 1024


def check_pairs(field: str, pairs: Mapping[str, object], longest: int) -> dict[str, str]:
    """Parameters or tags.

    Raises:
        InvalidRequest: A key or a value is wrong.
    """
    return {
        check_key(f"{field}.key", key): check_value(f"{field}.{key}", value, longest)
        for key, value in pairs.items()
    }


def check_value(field: str, value: object, longest: int) -> str:
    """The value of a parameter or a tag.

    Raises:
        InvalidRequest: It is no text, or too long.
    """
    if not isinstance(value, str) or "\x00" in value or not common.is_unicode(value):
        raise common.refuse(field[:300], _shown(value), "Unicode text without NUL")
    if len(value) > longest:
        raise common.refuse(
            field[:300], f"{len(value)} characters", f"at most {longest} characters"
        )
    return value


def check_run_name(name: object) -> str:
    """The name of a run.

    Raises:
        InvalidRequest: It is no text, or too long.
    """
    return check_value("run_name", name, LONGEST_NAME)


def _shown(value: object) -> object:
    return value[:80] if isinstance(value, str) else type(value).__name__
