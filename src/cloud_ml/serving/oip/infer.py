"""``/v2/models/{m}/infer``."""

from functools import partial

import orjson

from cloud_ml.net.http1.calls import JSON, HttpCall
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome, Request
from cloud_ml.serving.codecs import infer_parameters, json_answers, raw_tensors
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip import requests, templates
from cloud_ml.serving.oip.requests import RequestedOutput
from cloud_ml.serving.oip.templates import Plan, Templates
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape, Signature, TensorSpec
from cloud_ml.serving.table import Choice, ModelTable

MAX_SHAPES = 64
"""Shapes of outputs whose description is kept."""


class InferAnswer:
    """How requests that want the same outputs are answered."""

    __slots__ = ("_described", "_lead", "_requested_outputs", "_signature")

    def __init__(
        self, version: LoadedVersion, signature: Signature, requested_outputs: list[RequestedOutput]
    ) -> None:
        lead = {"model_name": version.name, "model_version": str(version.number)}
        self._lead = orjson.dumps(lead)[:-1]
        self._signature = signature
        self._requested_outputs = requested_outputs
        self._described: dict[tuple[int, Shape], bytes] = {}

    def send(self, call: HttpCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``: for a request without an id."""
        self.write(call, outcome, first, rows, b"")

    def write(
        self, call: HttpCall, outcome: Outcome, first: int, rows: int, id_member: bytes
    ) -> None:
        """The same; ``id_member`` is the member of the document that repeats the id."""
        parts, raw = [], []
        for place, binary in self._requested_outputs:
            array, spec = outcome.arrays[place], self._signature.outputs[place]
            shape = (rows, *array.shape[1:]) if self._signature.batched else array.shape
            if binary:
                raw.append(raw_tensors.write(self._rows(array, first, rows), spec))
                values = b'"parameters":{"binary_data_size":%d}' % len(raw[-1])
            elif self._signature.batched and spec.dtype is not dtypes.STRING:
                values = b'"data":[%b]' % _flat(outcome, place, spec, first, rows)
            else:
                values = b'"data":' + json_answers.text(
                    self._rows(array, first, rows).reshape(-1), spec
                )
            parts.append(
                (self._described.get((place, shape)) or self._describe(place, shape)) + values
            )
        text = b'%b%b,"outputs":[%b}]}' % (self._lead, id_member, b"},".join(parts))
        if raw:
            fields = (
                b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
                % len(text)
            )
            call.reply(200, fields, b"".join((text, *raw)))
        else:
            call.reply(200, JSON, text)

    def _rows(self, array: Array, first: int, rows: int) -> Array:
        return array[first : first + rows] if self._signature.batched else array

    def _describe(self, place: int, shape: Shape) -> bytes:
        """All of an output that comes before its values."""
        spec = self._signature.outputs[place]
        if len(self._described) >= MAX_SHAPES:
            self._described.clear()
        lead = {"name": spec.name, "datatype": spec.dtype.oip, "shape": shape}
        made = self._described[place, shape] = orjson.dumps(lead)[:-1] + b","
        return made


class _Named:
    """The same for a request that has an id, which its answer repeats."""

    __slots__ = ("_answer", "_id")

    def __init__(self, answer: InferAnswer, request_id: str) -> None:
        self._answer = answer
        self._id = b',"id":' + orjson.dumps(request_id)

    def send(self, call: HttpCall, outcome: Outcome, first: int, rows: int) -> None:
        self._answer.write(call, outcome, first, rows, self._id)


def _form(answer: InferAnswer, request_id: str) -> InferAnswer | _Named:
    return _Named(answer, request_id) if request_id else answer


def _flat(outcome: Outcome, place: int, spec: TensorSpec, first: int, rows: int) -> bytes:
    """The numbers of some rows, one after the other: those of a batch are written when the first
    of them is wanted.
    """
    texts = outcome.texts.get(place)
    if texts is None:
        texts = outcome.texts[place] = json_answers.rows(outcome.arrays[place], spec)
    text = texts[first] if rows == 1 else b",".join(texts[first : first + rows])
    return text.translate(None, b"[]") if text[:1] == b"[" else text


class Infer:
    """Answers requests to one model or version."""

    def __init__(
        self, table: ModelTable, choice: Choice, length: str | None, known: Templates
    ) -> None:
        self._table = table
        self._templates = known
        self._choice = choice
        self._length = length

    def __call__(self, call: HttpCall, body: bytes) -> None:
        """See ``rest.service.Answer``."""
        known = (
            templates.split_document(body)
            if self._length is None and len(body) < templates.LARGEST
            else None
        )
        if known is not None:
            template = self._templates.find(self._table.generation, self._choice, known.around)
            if template is not None and template.run(call, known):
                return
        version = self._table.find(*self._choice)
        infer_body = requests.split(body, self._length)
        request_id, parameters = (
            infer_body.document.get("id", ""),
            requests.parameters_of(infer_body.document),
        )
        if type(request_id) is not str:
            raise BadRequest("'id' is no string")
        infer_parameters.check_parameters("the request", parameters)
        call_s = infer_parameters.timeout_of(parameters)
        signature = version.signature(infer_parameters.signature_name_of(parameters))
        signature, requested_outputs = requests.outputs(signature, infer_body)
        shapes, tensors = requests.tensors(signature, infer_body)
        signature, rows, tails = version.arrange(signature, shapes)
        if call_s:
            call.within(call_s)
        answer = InferAnswer(version, signature, requested_outputs)
        if known is not None:
            plan = Plan(
                version.batcher(signature).submit, partial(_form, answer), rows, tails, call_s
            )
            self._templates.learn(self._choice, known, signature, shapes, plan)
        version.submit(
            signature, Request(call, _form(answer, request_id), tensors, rows, call.deadline), tails
        )
