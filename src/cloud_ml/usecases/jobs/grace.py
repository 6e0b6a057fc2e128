"""The grace time that a request names: the time between SIGTERM and SIGKILL."""

from __future__ import annotations

from cloud_ml.models import common


def grace_seconds(field: str, value: object, limit_s: float) -> float | None:
    """The grace time in seconds; ``None`` if none is given.

    Raises:
        InvalidRequest: It is no duration, or longer than ``limit_s``.
    """
    if value is None:
        return None
    seconds = float(common.duration_seconds(common.check_grace(field, value)))
    if seconds > limit_s:
        raise common.refuse(field, value, f"at most {common.duration_text(limit_s)}")
    return seconds
