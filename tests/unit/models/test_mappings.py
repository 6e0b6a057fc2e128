"""Objects of names and values: some values pass without their decoder, and as it would decode them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec


@dataclass(frozen=True, kw_only=True)
class Values:
    """Mappings of each kind of values that is decoded."""

    fractions: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float | str] = field(default_factory=dict)
    gaps: Mapping[str, float | None] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int | None] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    rows: dict[str, list[float]] = field(default_factory=dict)
    nested: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Lists:
    """The same values in lists, where fractions have no short way."""

    fractions: list[float] = field(default_factory=list)
    metrics: list[float | str] = field(default_factory=list)
    gaps: list[float | None] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    counts: list[int | None] = field(default_factory=list)
    flags: list[bool] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    nested: list[dict[str, float]] = field(default_factory=list)


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
    st.sampled_from([10**400, sys.float_info.max, -sys.float_info.max, "NaN", "Infinity", 0, -0.0]),
)  # fmt: skip
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=2), st.dictionaries(st.text(), _SCALARS, max_size=2)
)


def _decoded(kind: type[Any], name: str, value: Any) -> Any:
    try:
        return getattr(codec.decode(kind, {name: value}), name)
    except InvalidRequest as error:
        return error.message.replace(f"{name}.k", f"{name}[0]")


@given(name=st.sampled_from(sorted(Values.__dataclass_fields__)), value=_VALUES)
def test_a_value_of_a_mapping_is_decoded_as_one_of_a_list(name: str, value: Any) -> None:
    fast = _decoded(Values, name, {"k": value})
    slow = _decoded(Lists, name, [value])
    if isinstance(slow, list):
        assert [repr(item) for item in fast.values()] == [repr(item) for item in slow]
    else:
        assert fast == slow


def test_names_that_are_no_texts_become_texts() -> None:
    found = codec.decode(Values, {"metrics": {1: 0.5, "a": "NaN", 2: 3}})
    assert found.metrics == {"1": 0.5, "a": "NaN", "2": 3.0}
    assert type(found.metrics["2"]) is float


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, True, None, "1", [1.0]])
def test_what_is_no_finite_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^fractions\.loss is .*; allowed is a number$"):
        codec.decode(Values, {"fractions": {"loss": value}})
