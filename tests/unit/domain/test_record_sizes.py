"""How much of the database a record takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from cloud_ml.domain.record_sizes import UNIT_BYTES, bytes_of, size_tags, units_of


@dataclass
class _Spec:
    name: str = "ab"
    count: int = 1
    words: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (None, 4),
        (True, 4),
        (1.5, 4),
        ("ab", 6),
        ("\n", 10),
        ("é", 10),
        (["ab", "c"], 11),
        (("ab", None), 10),
        ({"ab": "c"}, 11),
        (MappingProxyType({"ab": ["c"]}), 11),
        (_Spec(), 10),
        (_Spec(words=("ab",), variables={"a": "b"}), 26),
        ([[[["ab"]]]], 6),
        (object(), 4),
    ],
)
def test_everything_in_a_value_counts(value: Any, size: int) -> None:
    assert bytes_of(value) == size


def test_a_value_of_any_depth_is_measured() -> None:
    deep: list[Any] = ["ab"]
    for _ in range(100_000):
        deep = [deep]
    assert bytes_of(deep) == 6


def test_a_large_spec_has_a_tag_with_its_units() -> None:
    assert not size_tags(_Spec())
    large = _Spec(name="a" * 2 * UNIT_BYTES)
    assert units_of(large) == 4
    assert size_tags(large) == ("large:4",)
