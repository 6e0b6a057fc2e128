"""TensorFlow Serving's PredictionService: Predict."""

from typing import Any

from cloud_ml.serving.batching import Outcome, Request
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.codecs.layouts import Layouts, predict_spans
from cloud_ml.serving.codecs.predict_answer import PredictAnswer
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import parsed
from cloud_ml.serving.http2.stream import Received
from cloud_ml.serving.loaded import LoadedVersion, rows_and_tails
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.table import ModelTable


class PredictPlan:
    """What a request means, without its values: who runs it, in which sizes, and how the answer is written."""

    __slots__ = ("answer", "rows", "submit", "tails")

    def __init__(
        self, version: LoadedVersion, signature: Signature, rows: int, tails: tuple[Shape, ...], answer: PredictAnswer
    ) -> None:
        self.submit = version.batcher(signature).submit
        self.rows = rows
        self.tails = tails
        self.answer = answer

    def send(self, call: GrpcCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        parts, size = self.answer.parts(outcome, first, rows)
        call.reply(parts, size)


class Prediction:
    """Answers ``Predict``."""

    def __init__(self, table: ModelTable) -> None:
        self._table = table
        self._layouts: Layouts[PredictPlan] = Layouts()
        self._generation = -1

    def predict(self, call: GrpcCall, body: Received) -> None:
        """A ``PredictRequest``, from byte 5 on."""
        if self._table.generation != self._generation:
            self._layouts.forget()
            self._generation = self._table.generation
        layout = self._layouts.find(body)
        if layout is None:
            self._read(call, body)
            return
        plan = layout.plan
        tensors = layout.values(body)
        plan.submit(Request(call, plan, tensors, plan.rows, call.deadline), plan.tails)

    def _read(self, call: GrpcCall, body: Received) -> None:
        """A request that looks like none before."""
        asked = parsed("tensorflow.serving.PredictRequest", body[5:])
        version = find(self._table, asked.model_spec)
        signature = version.signature(asked.model_spec.signature_name)
        wanted = signature.wanted(asked.output_filter)
        arrays = tensor_proto.arrays_of(signature, asked.inputs)
        rows, tails = rows_and_tails(signature, [array.shape for array in arrays])
        plan = PredictPlan(
            version, signature, rows, tails, PredictAnswer(signature, wanted, spec_of(version, signature))
        )
        spans = predict_spans(body, 5, signature, asked.inputs)
        if spans is not None:
            self._layouts.learn(body, spans, plan)
        plan.submit(Request(call, plan, arrays, rows, call.deadline), tails)


def find(table: ModelTable, spec: Any) -> LoadedVersion:
    """The version that a ``ModelSpec`` names."""
    choice = spec.WhichOneof("version_choice")
    number = spec.version.value if choice == "version" else None
    return table.find(spec.name, number, spec.version_label if choice == "version_label" else None)


def spec_of(version: LoadedVersion, signature: Signature | None = None) -> bytes:
    """The ``ModelSpec`` of an answer: who really answered."""
    spec = message("tensorflow.serving.ModelSpec")(name=version.name)
    spec.version.value = version.number
    if signature is not None:
        spec.signature_name = signature.name or DEFAULT_SIGNATURE
    return bytes(spec.SerializeToString(deterministic=True))
