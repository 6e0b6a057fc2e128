"""A pair of numbers is no parameter: it could be a range, or two values."""

from __future__ import annotations

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.studies.space import checked_space


@pytest.mark.parametrize("pair", [(1e-5, 1e-1), (1, 8), (0, 1.5)])
def test_a_pair_of_numbers_is_refused_with_what_to_write(pair: tuple[float, float]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_space({"lr": pair})
    assert refused.value.field == "space.lr"
    assert f'"min": {pair[0]!r}, "max": {pair[1]!r}' in refused.value.message
    assert f"[{pair[0]!r}, {pair[1]!r}]" in refused.value.message


@pytest.mark.parametrize(
    "values", [[1, 8], ("a", "b"), (1, 2, 3), (True, False), {"min": 0, "max": 1}]
)
def test_what_is_plain_is_taken(values: object) -> None:
    assert checked_space({"lr": values}) == {"lr": values}
