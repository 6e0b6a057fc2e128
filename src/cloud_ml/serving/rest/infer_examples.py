"""``:classify`` and ``:regress``: features of examples as JSON."""

from typing import Any

import numpy as np
import orjson

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.serving import examples
from cloud_ml.serving.batching import Outcome, Request
from cloud_ml.serving.codecs import json_answers
from cloud_ml.serving.codecs.json_documents import decode_base64, document, is_base64
from cloud_ml.serving.errors import BadRequest, ModelNotFound
from cloud_ml.serving.loaded import rows_and_tails
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import CLASSIFY, Signature
from cloud_ml.serving.table import Choice, ModelTable

_KEYS = (b'"examples"', b'"context"', b'"signature_name"')
_LISTS = {
    bool: "int64_list",
    int: "int64_list",
    float: "float_list",
    str: "bytes_list",
    dict: "bytes_list",
}


class InferExamples:
    """Answers for one model, version or label. ``method`` is ``CLASSIFY`` or ``REGRESS``."""

    def __init__(self, table: ModelTable, choice: Choice, method: str) -> None:
        self._table = table
        self._choice = choice
        self._method = method

    def __call__(self, call: HttpCall, body: bytes) -> None:
        """See ``rest.service.Answer``."""
        fields = document(body, *_KEYS)
        version = self._table.find(*self._choice)
        name = fields.get("signature_name", "")
        if type(name) is not str:
            raise BadRequest("'signature_name' is no string")
        try:
            signature = version.signature(name)
        except ModelNotFound as error:
            raise BadRequest(error.message) from error  # as TensorFlow Serving's REST says it
        examples.check(signature, self._method)
        arrays = examples.tensors(signature, examples.examples_of(_input(fields)))
        rows, tails = rows_and_tails(signature, [array.shape for array in arrays])
        form = _Answer(signature, self._method)
        version.submit(signature, Request(call, form, arrays, rows, call.deadline), tails)


class _Answer:
    """How results are written."""

    def __init__(self, signature: Signature, method: str) -> None:
        self._signature = signature
        self._method = method

    def send(self, call: HttpCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        count = rows if self._signature.batched else len(outcome.arrays[0])
        if self._method == CLASSIFY:
            results = [
                b"[%b]"
                % b",".join(
                    b"[%b,%b]" % (orjson.dumps(label), _number(score)) for label, score in row
                )
                for row in examples.classifications(self._signature, outcome, first, count)
            ]
        else:
            results = [
                _number(value)
                for value in examples.regressions(self._signature, outcome, first, count)
            ]
        call.json(b'{"results":[%b]}' % b",".join(results))


def _number(value: float) -> bytes:
    return json_answers.numbers(np.asarray(value, np.float32))


def _input(fields: dict[str, Any]) -> Any:
    """An ``Input`` message.

    Raises:
        BadRequest: where a feature cannot be meant.
    """
    given = fields.get("examples")
    if type(given) is not list or not given:
        raise BadRequest("'examples' is not a list of one example or more")
    made = message("tensorflow.serving.Input")()
    if "context" in fields:
        _fill(made.example_list_with_context.context, fields["context"], "context")
        into = made.example_list_with_context.examples
    else:
        into = made.example_list.examples
    for place, each in enumerate(given):
        _fill(into.add(), each, f"examples[{place}]")
    return made


def _fill(example: Any, given: Any, where: str) -> None:
    if type(given) is not dict:
        raise BadRequest(f"{where} is not an object of features")
    for name, value in given.items():
        values = value if type(value) is list else [value]
        feature, place = example.features.feature[name], f"{where}.{name}"
        lists = {_LISTS.get(type(each), "") for each in values}
        if "" in lists or any(type(each) is dict and not is_base64(each) for each in values):
            raise BadRequest(
                f"{place} has a value that is not a number, string, truth value or {{'b64': …}}"
            )
        if len(lists) > 1:
            raise BadRequest(f"{place} mixes values of several types: {', '.join(sorted(lists))}")
        for kind in lists:
            try:
                getattr(feature, kind).value.extend([_plain(each, place) for each in values])
            except ValueError as error:
                raise BadRequest(
                    f"{place} has a value that is no {kind.partition('_')[0]}: {error}"
                ) from error


def _plain(value: Any, place: str) -> Any:
    if type(value) is str:
        return value.encode()
    if type(value) is dict:
        return decode_base64(value["b64"], place)
    return int(value) if type(value) is bool else value
