"""``/v2/models/{m}/infer``."""

from typing import Any

import orjson

from cloud_ml.serving.batching import Outcome, Request
from cloud_ml.serving.codecs import json_answers, raw_tensors
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.http1.calls import JSON, HttpCall
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip import requests
from cloud_ml.serving.oip.requests import Wanted
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.table import Choice, ModelTable


class InferAnswer:
    """How one request is answered."""

    __slots__ = ("_id", "_signature", "_version", "_wanted")

    def __init__(self, version: LoadedVersion, signature: Signature, wanted: list[Wanted], asked_id: str) -> None:
        self._version = version
        self._signature = signature
        self._wanted = wanted
        self._id = asked_id

    def send(self, call: HttpCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        told, raw = [], []
        for place, binary in self._wanted:
            array, spec = outcome.arrays[place], self._signature.outputs[place]
            if self._signature.batched:
                array = array[first : first + rows]
            if binary:
                raw.append(raw_tensors.write(array, spec))
                told.append(_described(spec, array, b'"parameters":{"binary_data_size":%d}' % len(raw[-1])))
            else:
                told.append(_described(spec, array, b'"data":' + json_answers.text(array.reshape(-1), spec)))
        lead: dict[str, Any] = {"model_name": self._version.name, "model_version": str(self._version.number)}
        if self._id:
            lead["id"] = self._id
        text = b'%b,"outputs":[%b]}' % (orjson.dumps(lead)[:-1], b",".join(told))
        if raw:
            fields = b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n" % len(text)
            call.reply(200, fields, b"".join((text, *raw)))
        else:
            call.reply(200, JSON, text)


def _described(spec: TensorSpec, array: Array, values: bytes) -> bytes:
    lead = {"name": spec.name, "datatype": spec.dtype.oip, "shape": array.shape}
    return orjson.dumps(lead)[:-1] + b"," + values + b"}"


class Infer:
    """Answers requests to one model or version."""

    def __init__(self, table: ModelTable, choice: Choice, length: str | None) -> None:
        self._table = table
        self._choice = choice
        self._length = length

    def __call__(self, call: HttpCall, body: bytes) -> None:
        """See ``rest.service.Answer``."""
        version = self._table.find(*self._choice)
        asked = requests.split(body, self._length)
        asked_id, told = asked.document.get("id", ""), requests.parameters_of(asked.document)
        if type(asked_id) is not str:
            raise BadRequest("'id' is no string")
        if told:
            requests.check_parameters("the request", told)
        signature = version.signature(str(told.get("signature_name", "")))
        signature, wanted = requests.outputs(signature, asked)
        shapes, tensors = requests.tensors(signature, asked)
        signature, rows, tails = version.arrange(signature, shapes)
        patience = told.get("timeout")
        if type(patience) is int and patience > 0:
            call.within(patience / 1e6)
        answer = InferAnswer(version, signature, wanted, asked_id)
        version.submit(signature, Request(call, answer, tensors, rows, call.deadline), tails)
