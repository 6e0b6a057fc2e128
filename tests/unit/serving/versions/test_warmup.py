"""The runs before a version answers."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import CLASSIFY, Shape, Signature, TensorSpec
from cloud_ml.serving.versions.warmup import warm_up
from support.serving import predict_request


def signature(
    name: str, dtype: DType, shape: Shape, output: str = "y", method: str = ""
) -> Signature:
    side = (TensorSpec("x", dtype, shape),), (TensorSpec(output, dtypes.FLOAT, (-1,)),)
    return Signature(name, *side, method)


DEFAULT = signature("serving_default", dtypes.FLOAT, (-1,))
EXAMPLES = signature("classify", dtypes.STRING, (-1,), "scores", CLASSIFY)


class Model:
    """Remembers what it was run with; fails where an input has a 13."""

    def __init__(self, *signatures: Signature) -> None:
        self.signatures = {each.name: each for each in signatures}
        self.runs: list[tuple[str, Any]] = []

    def predict(self, signature: Signature, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        self.runs.append((signature.name, inputs[0].tolist()))
        if 13 in inputs[0].ravel().tolist():
            raise ValueError("bad luck")
        return inputs

    def close(self) -> None: ...


def log(**requests: Any) -> bytes:
    made = message("tensorflow.serving.PredictionLog")()
    for kind, request in requests.items():
        getattr(made, kind).request.CopyFrom(request)
    return bytes(made.SerializeToString())


def write(folder: Path, *records: bytes, rest: bytes = b"") -> None:
    file = folder / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir()
    file.write_bytes(
        b"".join(struct.pack("<QI", len(each), 0) + each + bytes(4) for each in records) + rest
    )


def classify_request() -> Any:
    made = message("tensorflow.serving.ClassificationRequest")()
    made.model_spec.signature_name = "classify"
    made.input.example_list.examples.add().features.feature["x"].float_list.value.append(1)
    return made


def test_written_down_requests_are_run(tmp_path: Path) -> None:
    request = classify_request()
    write(tmp_path, log(predict_log=predict_request(x=[1.0, 2.0])), log(classify_log=request))
    model = Model(DEFAULT, EXAMPLES)
    assert warm_up(model, tmp_path) == 2
    example = request.input.example_list.examples[0].SerializeToString()
    assert model.runs == [("serving_default", [1.0, 2.0]), ("classify", [example])]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (
            "warmup.json",
            [{"inputs": {"x": [1]}}, {"signature_name": "serving_default", "inputs": {"x": [2]}}],
        ),
        ("assets.extra/warmup.json", {"inputs": {"x": [1]}}),
    ],
)
def test_json_will_do(tmp_path: Path, name: str, document: Any) -> None:
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / name).write_text(json.dumps(document))
    model = Model(DEFAULT)
    assert warm_up(model, tmp_path) == (len(document) if isinstance(document, list) else 1)
    assert model.runs[0] == ("serving_default", [1.0])


@pytest.mark.parametrize(
    ("dtype", "shape", "seen"),
    [
        (dtypes.FLOAT, (-1,), [[0.0]]),
        (dtypes.INT64, (-1, 2), [[[0, 0]]]),
        (dtypes.FLOAT, (), [0.0]),
        (dtypes.FLOAT, (-1, -1), []),
        (dtypes.STRING, (-1,), []),
    ],
)
def test_without_any_zeros_are_tried_where_the_shape_is_known(
    tmp_path: Path, dtype: DType, shape: Shape, seen: list[Any]
) -> None:
    model = Model(signature("s", dtype, shape))
    assert warm_up(model, tmp_path) == len(seen)
    assert [given for _, given in model.runs] == seen


def test_zeros_may_be_wrong(tmp_path: Path) -> None:
    class Picky(Model):
        def predict(
            self, signature: Signature, inputs: Sequence[np.ndarray]
        ) -> Sequence[np.ndarray]:
            raise ZeroDivisionError

    assert warm_up(Picky(DEFAULT), tmp_path) == 0


@pytest.mark.parametrize(
    ("records", "rest", "words"),
    [
        (
            [log(predict_log=predict_request(x=[1.0])), log(predict_log=predict_request(x=[13.0]))],
            b"",
            "request 2 of",
        ),
        ([log(predict_log=predict_request(z=[1.0]))], b"", "there is no input 'z'"),
        (
            [log(predict_log=predict_request(x=[1.0], signature="other"))],
            b"",
            "there is no signature 'other'",
        ),
        ([b""], b"", "of a kind that is not run here"),
        ([log(predict_log=predict_request(x=[1.0]))], b"abc", "no TFRecord file"),
        ([], struct.pack("<QI", 100, 0) + b"abc", "ends inside a record"),
        ([], struct.pack("<QI", 1 << 60, 0) + b"abc", "no TFRecord file"),
    ],
)
def test_a_request_that_fails_keeps_the_version_from_answering(
    tmp_path: Path, records: list[bytes], rest: bytes, words: str
) -> None:
    write(tmp_path, *records, rest=rest)
    with pytest.raises(ModelFailed) as caught:
        warm_up(Model(DEFAULT), tmp_path)
    assert words in caught.value.message
    assert "tf_serving_warmup_requests" in caught.value.message
