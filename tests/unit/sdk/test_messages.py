"""Documents of requests: what is no JSON becomes it, or is refused in words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.messages import json_request


def test_ranges_and_numbers_of_numpy_are_sent_as_what_they_hold() -> None:
    space = {"lr": np.logspace(-2, 0, 3), "layers": range(1, 4), "width": [np.int64(8)]}
    body = json_request("POST", "/", space).body
    assert isinstance(body, bytes)
    assert json.loads(body) == {"lr": [0.01, 0.1, 1.0], "layers": [1, 2, 3], "width": [8]}


def test_a_value_that_json_cannot_say_is_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_request("POST", "/", {"space": {"optimizer": {"adam"}}})
    assert refused.value.message == "the value {'adam'} is of type set"
