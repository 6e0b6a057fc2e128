"""The Open Inference Protocol's ModelInfer."""

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving.batching import Form, Outcome, Request
from cloud_ml.serving.codecs.infer_answer import InferAnswer
from cloud_ml.serving.codecs.infer_parameters import (
    check_parameters,
    earlier,
    signature_name_of,
    timeout_of,
    values_of,
)
from cloud_ml.serving.codecs.infer_request import arrays_of, infer_spans
from cloud_ml.serving.codecs.layouts import Layouts
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.grpc.calls import MessageCall
from cloud_ml.serving.grpc.messages import parse_message
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.table import ModelTable


class InferPlan:
    """What a request means, without its values and its id."""

    __slots__ = ("answer", "rows", "submit", "tails", "timeout_s")

    def __init__(
        self,
        version: LoadedVersion,
        signature: Signature,
        rows: int,
        tails: tuple[Shape, ...],
        answer: InferAnswer,
        *,
        timeout_s: float,
    ) -> None:
        self.submit = version.batcher(signature).submit
        self.rows = rows
        self.tails = tails
        self.answer = answer
        self.timeout_s = timeout_s

    def send(self, call: MessageCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        parts, size = self.answer.parts(outcome, first, rows, b"")
        call.reply(parts, size)


class _Named:
    """The same for a request that has an id, which its answer repeats."""

    __slots__ = ("_answer", "_id")

    def __init__(self, plan: InferPlan, id_: bytes) -> None:
        self._answer = plan.answer
        self._id = id_

    def send(self, call: MessageCall, outcome: Outcome, first: int, rows: int) -> None:
        parts, size = self._answer.parts(outcome, first, rows, self._id)
        call.reply(parts, size)


class Infer:
    """Answers ``ModelInfer``."""

    def __init__(self, table: ModelTable) -> None:
        self._table = table
        self._layouts: Layouts[InferPlan] = Layouts()
        self._generation = -1

    def infer(self, call: MessageCall, body: Received) -> None:
        """A ``ModelInferRequest``, from byte 5 on."""
        if self._table.generation != self._generation:
            self._layouts.forget()
            self._generation = self._table.generation
        layout = self._layouts.find(body)
        tensors = layout.values(body) if layout is not None else None
        if layout is None or tensors is None:
            self._read(call, body)
            return
        plan = layout.plan
        form: Form = plan
        if len(tensors) > len(plan.tails):
            id_bytes = bytes(tensors.pop())
            if not id_bytes.isascii():  # whether it is text is for the library to say
                self._read(call, body)
                return
            form = _Named(plan, id_bytes)
        deadline = earlier(call.deadline, plan.timeout_s) if plan.timeout_s else call.deadline
        plan.submit(Request(call, form, tensors, plan.rows, deadline), plan.tails)

    def _read(self, call: MessageCall, body: Received) -> None:
        """A request that looks like none before."""
        request = parse_message("inference.ModelInferRequest", body[5:])
        version = find(self._table, request.model_name, request.model_version)
        parameters = values_of(request.parameters)
        check_parameters("the request", parameters)
        timeout_s = timeout_of(parameters)
        for output in request.outputs:
            check_parameters(f"output {output.name!r}", values_of(output.parameters))
        signature = version.signature(signature_name_of(parameters))
        outputs = [output.name for output in request.outputs]
        signature = signature.naming(outputs)
        output_indices = signature.output_indices(outputs)
        arrays = arrays_of(signature, request)
        signature, rows, tails = version.arrange(signature, [array.shape for array in arrays])
        answer = InferAnswer(
            signature,
            output_indices,
            version.name,
            version.number,
            raw=bool(request.raw_input_contents),
        )
        plan = InferPlan(version, signature, rows, tails, answer, timeout_s=timeout_s)
        spans = infer_spans(body, 5, signature, request)
        if spans is not None:
            self._layouts.learn(body, spans, plan)
        form: Form = _Named(plan, request.id.encode()) if request.id else plan
        deadline = earlier(call.deadline, timeout_s) if timeout_s else call.deadline
        plan.submit(Request(call, form, arrays, rows, deadline), tails)


def find(table: ModelTable, name: str, version: str) -> LoadedVersion:
    """The version that a request names; an empty one is the newest."""
    return table.find(name, number_of(version))


def number_of(version: str) -> int | None:
    """The number of a version as this protocol writes it.

    Raises:
        BadRequest: for what is no number.
    """
    if not version:
        return None
    if not (version.isascii() and version.isdigit() and len(version) <= 19):
        raise BadRequest(
            f"model_version is {version!r}; a number, or nothing for the newest, can be asked for"
        )
    return int(version)
