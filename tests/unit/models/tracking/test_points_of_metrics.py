"""Points of a chart on their way to the client."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from cloud_ml.models.tracking.metrics import points_document, read_points

_SINCE = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800_000
_LAST = 253_402_300_799_000
"""The years 1 to 9999, in milliseconds since 1970."""


@given(st.integers(_FIRST, _LAST))
@example(-1)
@example(59_999)
@example(60_000)
@example(241_194_725_430_231)  # far away, where a float knows no microseconds
def test_a_point_has_the_time_to_the_millisecond_that_was_logged(at: int) -> None:
    document = json.loads(json.dumps(points_document("loss", "master-0", [(1, at, 0.5)])))
    (found,) = read_points(document)
    assert found.at - _SINCE == timedelta(milliseconds=at)


def test_a_time_that_no_calendar_has_is_the_end_of_it() -> None:
    (found,) = read_points(points_document("loss", "master-0", [(1, 10**20, 0.5)]))
    assert found.at == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
