"""The SDK's questions to a model server: one shape of answers over both protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.config import Credentials
from cloud_ml.sdk.models.predicting import Predictions
from support.serving import Running, model_server, slides_model

ME = Credentials("AK", "secret")


def test_a_single_output_has_its_name_over_both(linear: Running) -> None:
    predictions, named = Predictions(ME, f"127.0.0.1:{linear.port}", "linear"), {"y": [12.0, 20.0]}
    assert predictions.over_grpc({"x": [1.0, 5.0]}, {}) == named
    assert predictions.over_http({"x": [1.0, 5.0]}) == named
    assert predictions.over_http({"x": [1.0, 5.0]}, signature="serving_default") == named
    assert predictions.over_http([1.0, 5.0]) == [12.0, 20.0]
    with pytest.raises(InvalidRequest, match="has no signature 'other'"):
        predictions.over_http({"x": [1.0]}, signature="other")
    predictions.close()


def test_several_outputs_have_their_names_over_both(tmp_path: Path) -> None:
    slides_model(tmp_path / "1")
    given = {"keys": [[1]], "X": [[10.0]]}
    with model_server("--model_name", "slides", "--model_base_path", str(tmp_path)) as running:
        predictions = Predictions(ME, f"127.0.0.1:{running.port}", "slides")
        answers = [
            predictions.over_http(given),
            predictions.over_grpc(given, {"keys": "int32", "X": "float32"}),
        ]
        predictions.close()
    assert answers == [{"keys_out": [[1]], "predict": [[30.0]]}] * 2


def test_types_over_grpc_are_those_that_the_model_takes(tmp_path: Path) -> None:
    """Without them ``[[1]]`` and ``[[10.0]]`` went as int64 and float64, and were refused."""
    slides_model(tmp_path / "1")
    with model_server("--model_name", "slides", "--model_base_path", str(tmp_path)) as running:
        predictions = Predictions(ME, f"127.0.0.1:{running.port}", "slides")
        named = {"keys_out": [[1]], "predict": [[30.0]]}
        assert predictions.over_grpc({"keys": [[1]], "X": [[10.0]]}) == named
        assert predictions.over_grpc({"inputs": {"keys": [[1]], "X": [[10.0]]}}) == named
        with pytest.raises(InvalidRequest, match="X"):
            predictions.over_grpc({"keys": [[1]], "X": [[10.0]]}, {"X": "int32"})
        predictions.close()


def test_requests_of_other_servers(linear: Running) -> None:
    predictions, named = Predictions(ME, f"127.0.0.1:{linear.port}", "linear"), {"y": [12.0, 20.0]}
    split = {"dataframe_split": {"columns": ["x"], "data": [[1.0], [5.0]]}}
    for call in (predictions.over_http, predictions.over_grpc):
        assert call(split) == named
        assert call({"dataframe_records": [{"x": 1.0}, {"x": 5.0}]}) == named
    assert predictions.over_http({"instances": [1.0, 5.0], "parameters": {}}) == [12.0, 20.0]
    assert predictions.over_grpc({"instances": [1.0, 5.0]}) == named
    predictions.close()
