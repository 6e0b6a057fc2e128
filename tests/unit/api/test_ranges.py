from __future__ import annotations

import pytest

from cloud_ml.api.ranges import Span, Unsatisfiable, parse


@pytest.mark.parametrize(
    ("header", "span"),
    [
        (None, None),
        ("bytes=0-0", Span(0, 0)),
        ("bytes=2-5", Span(2, 5)),
        ("bytes=2-", Span(2, 9)),
        ("bytes=2-99", Span(2, 9)),
        ("bytes=-3", Span(7, 9)),
        ("bytes=-99", Span(0, 9)),
        (" bytes=0-9 ", Span(0, 9)),
        ("bytes=5-2", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("", None),
    ],
)
def test_one_range_is_understood_and_anything_else_ignored(
    header: str | None, span: Span | None
) -> None:
    assert parse(header, 10) == span


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-1", 0)]
)
def test_a_range_outside_is_unsatisfiable(header: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        parse(header, size)


def test_a_span_knows_its_length() -> None:
    assert Span(2, 5).length == 4
