"""Lists of numbers that are left out of a document of the Open Inference Protocol belong to the
inputs with them.
"""

from __future__ import annotations

import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs.json_numbers import WORTH
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.oip import requests
from cloud_ml.serving.signatures import Signature, TensorSpec

SIGNATURE = Signature(
    "s", (TensorSpec("x", dtypes.FLOAT, None), TensorSpec("k", dtypes.INT64, None)), ()
)
COUNT = 600


def body(first: str) -> bytes:
    """A request whose input ``x`` has this field, and whose input ``k`` has a list of numbers."""
    numbers = ",".join(map(str, range(COUNT)))
    made = (
        f'{{"inputs":[{{"name":"x","datatype":"FP32","shape":[{COUNT}],{first}}},'
        f'{{"name":"k","datatype":"INT64","shape":[{COUNT}],"data":[{numbers}]}}]}}'
    ).encode()
    assert len(made) > WORTH
    return made


@pytest.mark.parametrize("number", ["0", "-1", "99"])
def test_a_number_is_not_taken_for_a_list_of_another_input(number: str) -> None:
    """The key was not seen with an escape in it: a number gave another input's list, or a 500."""
    with pytest.raises(BadRequest, match="has no list of data"):
        requests.tensors(SIGNATURE, requests.split(body(f'"d\\u0061ta":{number}'), None))


def test_a_digit_behind_a_list_is_not_json() -> None:
    ones = ",".join(["1"] * COUNT)
    for behind in ("0", "7", ".5", "e1"):
        with pytest.raises(BadRequest, match="not valid JSON"):
            requests.split(body(f'"data":[{ones}]{behind}'), None)


def test_what_nobody_reads_is_json_as_well() -> None:
    ones = ",".join(["1"] * COUNT)
    shapes, _ = requests.tensors(
        SIGNATURE, requests.split(body(f'"data":[2,3],"data":[{ones}]'), None)
    )
    assert shapes == ((COUNT,), (COUNT,))
    with pytest.raises(BadRequest):
        requests.tensors(SIGNATURE, requests.split(body(f'"data":[1-1],"data":[{ones}]'), None))
