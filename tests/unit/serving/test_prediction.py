"""Predict answers a request as if it were the only one ever, whatever other callers have sent
before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import BatchContext
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.grpc import prediction
from cloud_ml.serving.grpc.prediction import Prediction
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.table import ModelTable


class Model:
    """Gives back what it was given, times ``factor``."""

    def __init__(self, factor: int, **signatures: dict[str, DType]) -> None:
        self._factor = factor
        self.signatures = {
            name: Signature(
                name,
                tuple(TensorSpec(key, dtype, (-1,)) for key, dtype in inputs.items()),
                tuple(TensorSpec(f"{key}_", dtype, (-1,)) for key, dtype in inputs.items()),
            )
            for name, inputs in signatures.items()
        }

    def predict(self, _signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        return [array * np.array(self._factor, array.dtype) for array in inputs]

    def close(self) -> None: ...


class Call:
    """Keeps its answer."""

    protocol = "grpc"
    deadline = 0.0

    def __init__(self) -> None:
        self.answer: Any = None

    def waits(self) -> bool:
        return True

    def reply(self, parts: tuple[bytes, ...], size: int) -> None:
        data = b"".join(parts)
        assert len(data) == size
        self.answer = message("tensorflow.serving.PredictResponse").FromString(data)

    def fail(self, error: ServingError) -> None:
        self.answer = error.message


class AtOnce:
    """Runs at once what would run in a thread."""

    has_waiting_work = False

    def run(self, work: Callable[[], None]) -> None:
        work()


class Server:
    """A table of models and what answers for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.table = ModelTable()
        self.prediction = Prediction(self.table)

    def serve(self, name: str, number: int, model: Model) -> None:
        workshop = BatchContext(self._loop, LoopIteration(self._loop), cast("Any", AtOnce()))
        self.table.put(LoadedVersion(name, number, cast("Any", model), workshop))

    def ask(self, predict_request: Any) -> dict[str, list[float]] | str:
        """The outputs, or what is said instead."""
        data, call = predict_request.SerializeToString(), Call()
        body = b"\0" + len(data).to_bytes(4, "big") + data
        try:
            self.prediction.predict(cast("Any", call), body)
        except ServingError as error:
            return error.message
        while call.answer is None:
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        if isinstance(call.answer, str):
            return call.answer
        return {
            name: tensor_proto.decode(name, proto).tolist()
            for name, proto in call.answer.outputs.items()
        }

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def server() -> Any:
    made = Server()
    yield made
    made.close()


def request(
    model: str, signature: str = "", outputs: Sequence[str] = (), **inputs: tuple[DType, list[int]]
) -> Any:
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name, made.model_spec.signature_name = model, signature
    made.output_filter.extend(outputs)
    for name, (dtype, values) in inputs.items():
        made.inputs[name].ParseFromString(tensor_proto.encode(dtype, np.array(values, dtype.numpy)))
    return made


BOTH = {"keys": dtypes.INT32, "X": dtypes.FLOAT}


def test_models_signatures_versions_and_outputs_are_told_apart(server: Server) -> None:
    server.serve("a", 1, Model(2, serving_default=BOTH, other={"X": dtypes.FLOAT}))
    server.serve("b", 1, Model(3, serving_default=BOTH))
    for factor, model in ((2, "a"), (3, "b"), (2, "a"), (3, "b")):
        for keys in ([1], [300], [-1], [5, 6]):
            predict_request = request(
                model, keys=(dtypes.INT32, keys), X=(dtypes.FLOAT, [7] * len(keys))
            )
            expected = {"keys_": [factor * key for key in keys], "X_": [7.0 * factor] * len(keys)}
            assert server.ask(predict_request) == expected
            predict_request.output_filter.append("X_")
            assert server.ask(predict_request) == {"X_": expected["X_"]}
    assert server.ask(request("a", "other", X=(dtypes.FLOAT, [9]))) == {"X_": [18.0]}


def test_a_known_input_of_a_type_that_another_signature_takes_is_refused(server: Server) -> None:
    server.serve("a", 1, Model(1, serving_default={"x": dtypes.FLOAT}))
    server.serve("b", 1, Model(1, serving_default={"x": dtypes.INT32}))
    floats, whole = (dtypes.FLOAT, [1, 2]), (dtypes.INT32, [1, 2])
    for _ in range(2):
        assert server.ask(request("a", x=floats)) == {"x_": [1.0, 2.0]}
        assert server.ask(request("b", x=whole)) == {"x_": [1, 2]}
        answer = server.ask(request("a", x=whole))
        assert isinstance(answer, str)
        assert "input 'x' is int32, not float32" in answer
        assert "input 'x' is float32, not int32" in str(server.ask(request("b", x=floats)))


def test_known_inputs_that_do_not_go_together_are_refused(server: Server) -> None:
    server.serve("a", 1, Model(1, serving_default=BOTH, other={"X": dtypes.FLOAT}))
    for rows in (1, 2):
        assert (
            server.ask(request("a", keys=(dtypes.INT32, [1] * rows), X=(dtypes.FLOAT, [1] * rows)))
            != ""
        )
    assert "'keys' is missing" in str(server.ask(request("a", X=(dtypes.FLOAT, [1]))))
    both = request("a", "other", keys=(dtypes.INT32, [1]), X=(dtypes.FLOAT, [1]))
    assert "no input 'keys'" in str(server.ask(both))


def test_known_inputs_of_different_numbers_of_rows_get_what_the_model_answers(
    server: Server,
) -> None:
    server.serve("a", 1, Model(1, serving_default=BOTH))
    for rows in (1, 2):
        assert (
            server.ask(request("a", keys=(dtypes.INT32, [1] * rows), X=(dtypes.FLOAT, [1] * rows)))
            != ""
        )
    for _ in range(2):
        answer = server.ask(request("a", keys=(dtypes.INT32, [1]), X=(dtypes.FLOAT, [1, 1])))
        assert answer == {"keys_": [1], "X_": [1, 1]}


def test_another_version_answers_as_soon_as_it_is_there(server: Server) -> None:
    server.serve("a", 1, Model(2, serving_default=BOTH))
    predict_request = request("a", keys=(dtypes.INT32, [1]), X=(dtypes.FLOAT, [1]))
    fixed = request("a", keys=(dtypes.INT32, [1]), X=(dtypes.FLOAT, [1]))
    fixed.model_spec.version.value = 1
    for factor in (2, 5):
        for _ in range(3):
            assert server.ask(predict_request) == {"keys_": [factor], "X_": [float(factor)]}
            assert server.ask(fixed) == {"keys_": [2], "X_": [2.0]}
        server.serve("a", 2, Model(5, serving_default=BOTH))


def test_there_is_a_bound_to_what_is_learnt(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "MAX_TARGETS", 8)
    monkeypatch.setattr(prediction, "MAX_PLANS", 8)
    for number in range(30):
        server.serve(f"m{number}", 1, Model(number, serving_default={"x": dtypes.INT32}))
    for number in range(30):
        for rows in (1, 2, 1, 2):
            values = list(range(rows))
            answer = server.ask(request(f"m{number}", x=(dtypes.INT32, values)))
            assert answer == {"x_": [number * value for value in values]}
            assert len(server.prediction._targets) <= 8
            assert len(server.prediction._plans) <= 8
    long = request("m1", outputs=["x_"], x=(dtypes.INT32, [1]))
    long.output_filter.extend(["no such output"] * prediction.MAX_TARGET_BYTES)
    assert "no such output" in str(server.ask(long))
