"""Numbers over gRPC are shown as HTTP has them: as the model server writes them, and nothing is
lost.
"""

from __future__ import annotations

import struct
from itertools import product

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.sdk.models import tensors
from cloud_ml.sdk.models.shortest import shortest

SINGLES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False))


def written(values: list[float]) -> list[float]:
    """As the model server's REST has them."""
    text = orjson.dumps(np.array(values, np.float32), option=orjson.OPT_SERIALIZE_NUMPY)
    found: list[float] = orjson.loads(text)
    return found


@given(SINGLES)
def test_it_is_what_the_model_server_writes(values: list[float]) -> None:
    assert shortest(values) == written(values)
    assert np.array_equal(np.array(shortest(values), np.float32), np.array(values, np.float32))


@pytest.mark.parametrize("value", [9399020531220480.0, -9796159488.0, 9.996920534058622e-35])
def test_six_digits_are_enough_although_seven_come_closer(value: float) -> None:
    assert shortest([value]) == written([value])
    assert (
        len(f"{shortest([value])[0]:e}".lstrip("-").partition("e")[0].rstrip("0").replace(".", ""))
        <= 6
    )


def test_it_is_so_around_each_power_of_two_too() -> None:
    patterns = [
        (exponent << 23) + more
        for exponent, more in product(range(255), range(-2, 3))
        if exponent or more > 0
    ]
    values = [struct.unpack("<f", struct.pack("<I", pattern))[0] for pattern in patterns]
    read = np.array(shortest(values), np.float32)
    assert np.array_equal(read, np.array(values, np.float32))
    assert shortest(values) == written(values)


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "-0.0"])
def test_what_has_no_digits_stays(text: str) -> None:
    (found,) = shortest([float(text)])
    assert repr(found) == text


@pytest.mark.parametrize(
    ("number", "content", "exact", "short"),
    [
        (1, struct.pack("<f", 29.955246), 29.955245971679688, 29.955246),
        (2, struct.pack("<d", 29.955245971679688), 29.955245971679688, 29.955245971679688),
        (19, struct.pack("<e", 0.1), 0.0999755859375, 0.099975586),
        (14, struct.pack("<f", 0.1)[2:], 0.099609375, 0.099609375),
    ],
)
def test_outputs_are_shortened_where_it_is_asked_for(
    number: int, content: bytes, exact: float, short: float
) -> None:
    tensor = bytes([0x08, number, 0x12, 0x00, 0x22, len(content)]) + content
    entry = b"\x0a\x01Y\x12" + bytes([len(tensor)]) + tensor
    answer = b"\x0a" + bytes([len(entry)]) + entry
    assert tensors.predict_response(answer) == {"Y": exact}
    assert tensors.predict_response(answer, short=True) == {"Y": short}
