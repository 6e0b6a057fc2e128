"""Times as people give them on a command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from cloud_ml.models import common


def moment(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """A time: how long ago (``90s``, ``2h``, ``1d12h``), or a date with or without a time, of this
    machine's clock.

    Raises:
        UsageError: It is neither.
    """
    if text is None:
        return None
    try:
        if seconds := common.duration_seconds(text):
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"{option} is {text!r}; allowed is how long ago, such as 2h or 1d12h, "
            "or a time such as 2026-01-31 or 2026-01-31T12:00"
        ) from None
