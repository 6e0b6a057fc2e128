from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest

from cloud_ml.cli.jobs.times import moment

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_times_are_given_as_ages_or_dates() -> None:
    assert moment("--since", None) is None
    assert moment("--since", "1d2h", NOW) == datetime(2026, 1, 30, 10, 0, tzinfo=UTC)
    assert moment("--since", "2026-01-31T12:00Z") == NOW
    assert moment("--since", "2026-01-31") == datetime(2026, 1, 31).astimezone()
    with pytest.raises(click.UsageError, match="--since is 'soon'"):
        moment("--since", "soon")
