"""TensorFlow Serving's PredictionService: Predict."""

from typing import Any

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.batching import Outcome, Request, Values
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.codecs.layouts import Layouts
from cloud_ml.serving.codecs.predict_answer import PredictAnswer
from cloud_ml.serving.codecs.predict_parts import Parts, PredictParts, TensorType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import parse_message
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.table import ModelTable

MAX_TARGETS = 1024
"""Targets that are kept; when there are more, all are forgotten."""
MAX_PLANS = 4096
"""Plans that are kept: one for each target and the types of its inputs."""
MAX_TARGET_BYTES = 1024
"""Bytes of the fields that name a target, if it is kept."""


class PredictPlan:
    """What a request means, without its values: who runs it, in which sizes, and how the answer
    is written.
    """

    __slots__ = ("answer", "rows", "submit", "tails")

    def __init__(
        self,
        version: LoadedVersion,
        signature: Signature,
        rows: int,
        tails: tuple[Shape, ...],
        answer: PredictAnswer,
    ) -> None:
        self.submit = version.batcher(signature).submit
        self.rows = rows
        self.tails = tails
        self.answer = answer

    def send(self, call: GrpcCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        parts, size = self.answer.parts(outcome, first, rows)
        call.reply(parts, size)


class Target:
    """What a request asks of which model, whatever its inputs are."""

    __slots__ = ("answer", "names", "output_indices", "signature", "version")

    def __init__(
        self, version: LoadedVersion, signature: Signature, output_indices: tuple[int, ...]
    ) -> None:
        self.names = [spec.name for spec in signature.inputs]
        self.version = version
        self.signature = signature
        self.output_indices = output_indices
        self.answer = self._answer(signature)

    def _answer(self, signature: Signature) -> PredictAnswer:
        return PredictAnswer(signature, self.output_indices, spec_of(self.version, signature))

    def plan(self, shapes: list[Shape]) -> PredictPlan:
        """The plan for inputs of these shapes, in the order of the signature, which takes them."""
        signature, rows, tails = self.version.arrange(self.signature, shapes)
        answer = self.answer if signature is self.signature else self._answer(signature)
        return PredictPlan(self.version, signature, rows, tails, answer)

    def plan_of(self, types: tuple[TensorType, ...]) -> PredictPlan | None:
        """The same for inputs of these types; None where the signature does not take them."""
        try:
            for spec, given in zip(self.signature.inputs, types, strict=True):
                self.signature.check_tensor(spec, given.dtype, given.shape)
            return self.plan([given.shape for given in types])
        except BadRequest:
            return None


class Prediction:
    """Answers ``Predict``."""

    def __init__(self, table: ModelTable) -> None:
        self._table = table
        self._layouts: Layouts[PredictPlan] = Layouts()
        self._parts = PredictParts()
        self._targets: dict[bytes, Target] = {}
        self._plans: dict[tuple[Target, tuple[TensorType, ...]], PredictPlan] = {}
        self._generation = -1

    def predict(self, call: GrpcCall, body: Received) -> None:
        """A ``PredictRequest``, from byte 5 on."""
        if self._table.generation != self._generation:
            self._forget()
            self._generation = self._table.generation
        layout = self._layouts.find(body)
        tensors = layout.values(body) if layout is not None else None
        if layout is not None and tensors is not None:
            plan = layout.plan
            plan.submit(Request(call, plan, tensors, plan.rows, call.deadline), plan.tails)
            return
        parts = self._parts.read(body)
        if parts is None or not self._run(call, body, parts):
            self._read(call, body)

    def _run(self, call: GrpcCall, body: Received, parts: Parts) -> bool:
        """Run a request whose parts are known, if they go together."""
        target = self._targets.get(parts.others)
        if target is None or len(parts.inputs) != len(target.names):
            return False
        try:
            inputs = [parts.inputs[name] for name in target.names]
        except KeyError:
            return False
        plan = self._plan(target, tuple([each.type for each in inputs]))
        if plan is None:
            return False
        if self._layouts.has_room(len(body)):
            self._layouts.learn(
                body, [each.span for each in inputs], plan, [each.decode for each in inputs]
            )
        values: list[Values] = [each.values for each in inputs]
        plan.submit(Request(call, plan, values, plan.rows, call.deadline), plan.tails)
        return True

    def _plan(self, target: Target, types: tuple[TensorType, ...]) -> PredictPlan | None:
        plan = self._plans.get((target, types))
        if plan is None:
            plan = target.plan_of(types)
            if plan is not None:
                if len(self._plans) >= MAX_PLANS:
                    self._plans.clear()
                self._plans[target, types] = plan
        return plan

    def _read(self, call: GrpcCall, body: Received) -> None:
        """A request that is like none before."""
        request = parse_message("tensorflow.serving.PredictRequest", body[5:])
        version = find(self._table, request.model_spec)
        signature = version.signature(request.model_spec.signature_name).naming(
            request.output_filter
        )
        target = Target(version, signature, signature.output_indices(request.output_filter))
        arrays = tensor_proto.arrays_of(signature, request.inputs)
        plan = target.plan([array.shape for array in arrays])
        self._parts.learn(body, request.inputs, dict(zip(target.names, arrays, strict=True)))
        parts = self._parts.read(body)
        if (
            parts is not None
            and len(parts.others) <= MAX_TARGET_BYTES
            and parts.others not in self._targets
        ):
            if len(self._targets) >= MAX_TARGETS:
                self._forget()
            self._targets[parts.others] = target
        plan.submit(Request(call, plan, arrays, plan.rows, call.deadline), plan.tails)

    def _forget(self) -> None:
        self._layouts.forget()
        self._parts.forget()
        self._targets.clear()
        self._plans.clear()


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
