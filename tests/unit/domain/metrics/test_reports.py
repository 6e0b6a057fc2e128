"""Reports of tasks, as they lie in their file."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.metrics.reports import LONGEST_LINE, Value, read_reports


def line(**entry: object) -> bytes:
    return json.dumps({"time": 1.5, **entry}).encode() + b"\n"


def test_values_of_whole_lines() -> None:
    data = b"\n" + line(step=3, metrics={"loss": 0.5, "lr": 1}) + b'{"step'
    found = read_reports(data, full=False)
    assert found.values == [Value("loss", 3, 1500, 0.5), Value("lr", 3, 1500, 1.0)]
    assert found.taken == len(data) - len(b'{"step')


def test_what_is_no_number_is_a_value() -> None:
    data = line(metrics={"a": math.nan, "b": -math.inf})
    found = read_reports(data, full=False).values
    assert math.isnan(found[0].value)
    assert found[1].value == -math.inf


def test_a_line_without_end_is_skipped() -> None:
    assert read_reports(b"x" * 1000, full=True).taken == 1000
    assert read_reports(b"x" * 1000, full=False).taken == 0


@pytest.mark.parametrize(
    "entry",
    [
        {"metrics": {"loss": "0.5"}},
        {"metrics": {"loss": True}},
        {"metrics": {"loss": 10**400}},
        {"metrics": {"": 1.0}},
        {"metrics": {"\ud800": 1.0}},
        {"metrics": {"x" * 251: 1.0}},
        {"metrics": {"loss": 1.0}, "step": 1.5},
        {"metrics": {"loss": 1.0}, "step": 10**19},
        {"metrics": {"loss": 1.0}, "time": "now"},
        {"metrics": {"loss": 1.0}, "time": math.nan},
        {"metrics": {"loss": 1.0}, "restart": -1},
        {"metrics": [1.0]},
    ],
)
def test_what_cannot_be_is_left_out(entry: dict[str, object]) -> None:
    assert read_reports(line(**entry), full=False).values == []


def test_a_long_line_is_left_out() -> None:
    data = line(metrics={"a": 1.0}, note="x" * LONGEST_LINE) + line(metrics={"b": 1.0})
    assert [value.name for value in read_reports(data, full=False).values] == ["b"]


@given(st.binary())
def test_any_bytes_are_read(data: bytes) -> None:
    assert 0 <= read_reports(data, full=True).taken <= len(data)


def test_deep_json_is_left_out() -> None:
    data = b'{"metrics": ' + b"[" * 30_000 + b"\n" + line(metrics={"b": 1.0})
    assert [value.name for value in read_reports(data, full=False).values] == ["b"]


def test_a_read_has_few_starts_and_the_next_one_goes_on() -> None:
    data = b"".join(
        line(metrics={"a": 1.0, "b": 2.0}, step=number, restart=number) for number in range(100)
    )
    steps, reads = list[int](), 0
    while data:
        found = read_reports(data, full=False)
        assert found.taken > 0
        assert len({value.restart for value in found.values}) <= 17
        steps += [value.step or 0 for value in found.values if value.name == "a"]
        data, reads = data[found.taken :], reads + 1
    assert steps == list(range(100))
    assert reads > 5


def test_thousands_of_starts_count_as_one() -> None:
    data = b"".join(line(metrics={"a": 1.0}, restart=number) for number in (999, 1000, 5000))
    assert [value.restart for value in read_reports(data, full=False).values] == [999, 1000, 1000]


def test_parameters_have_their_first_value() -> None:
    data = line(params={"lr": "0.1", "a": "\u0000", "b": 1, "": "x", "c": "x" * 6001})
    data += line(params={"lr": "0.2", "d": "\ud800", "e": "y"}) + line(params=["f"])
    data += line(params={"g": "z"}, metrics={"loss": 1})
    found = read_reports(data, full=False)
    assert found.params == {"lr": "0.1", "e": "y", "g": "z"}
    assert [value.name for value in found.values] == ["loss"]
