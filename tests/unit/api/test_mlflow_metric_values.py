"""A batch of values is read as each of them by itself is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.mlflow.metric_values import read_value, read_values
from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME
from cloud_ml.errors import InvalidRequest

_ANYTHING = st.sampled_from(
    [None, True, 1, 1.5, -0.0, 2.0, "3", "", "NaN", "a/../b", [], ["x"], {}, 10**400]
)
_KEYS = st.sampled_from(["loss", "loss", "val/loss", "a b", "../up", "", "é"]) | _ANYTHING
_STEPS = st.sampled_from([0, 1, -1, LARGEST_STEP, LARGEST_STEP + 1, -LARGEST_STEP - 1]) | _ANYTHING
_TIMES = st.sampled_from([0, 1, LARGEST_TIME, LARGEST_TIME + 1, -1]) | _ANYTHING
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | _ANYTHING
_DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {"key": _KEYS, "value": _NUMBERS, "timestamp": _TIMES},
        optional={"step": _STEPS, "more": _ANYTHING},
    ),
    max_size=5,
)


@given(_DOCUMENTS)
def test_a_batch_is_read_as_its_values_are(batch: list[dict[str, Any]]) -> None:
    assert _outcome(lambda: read_values(batch)) == _outcome(
        lambda: [read_value(RequestFields(one)) for one in batch]
    )


def _outcome(read: Any) -> Any:
    """What was read, with NaN as a text and -0.0 apart from 0.0, or the error."""
    try:
        return repr(read())
    except InvalidRequest as error:
        return str(error), error.field
