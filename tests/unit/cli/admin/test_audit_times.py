"""Times of ``cloudml admin audit``: how long ago, or a date."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cloud_ml.sdk.admin.calls import Admin

if TYPE_CHECKING:
    from unit.cli.conftest import Run


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the server is asked for."""
    calls: list[dict[str, Any]] = []

    def audit(_: Admin, **query: Any) -> Iterator[object]:
        calls.append(query)
        return iter(())

    monkeypatch.setattr(Admin, "audit", audit)
    return calls


@pytest.mark.parametrize(("text", "ago"), [("1h", timedelta(hours=1)), ("2d", timedelta(days=2))])
def test_a_time_may_be_how_long_ago(
    run: Run, queries: list[dict[str, Any]], text: str, ago: timedelta
) -> None:
    assert run("admin", "audit", "--since", text).exit_code == 0
    (query,) = queries
    assert abs(datetime.now(UTC) - ago - query["since"]) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31 12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:05", datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)),
    ],
)
def test_a_time_may_be_a_date(
    run: Run, queries: list[dict[str, Any]], text: str, time: datetime
) -> None:
    assert run("admin", "audit", "--until", text).exit_code == 0
    assert queries[0]["until"] == time


def test_other_words_are_refused_in_plain_words(run: Run) -> None:
    result = run("admin", "audit", "--since", "yesterday")
    assert result.exit_code == 2
    assert "--since is 'yesterday'; allowed is how long ago, such as 2h or 1d12h" in result.stderr
    assert "%" not in result.stderr
