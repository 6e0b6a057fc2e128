"""Inputs and outputs of an ONNX model that no protocol carries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.onnx import _spec


def test_probabilities_as_dictionaries_are_answered_with_how_to_convert() -> None:
    """skl2onnx makes a list of dictionaries of them by default."""
    node = SimpleNamespace(
        name="output_probability", type="seq(map(int64,tensor(float)))", shape=[]
    )
    with pytest.raises(ModelFailed, match=r"options=\{'zipmap': False\}"):
        _spec(node)
