"""``:predict``: rows (``instances``) or columns (``inputs``) of tensors as JSON."""

from array import array
from collections.abc import Sequence
from typing import Any

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome, Request, Values
from cloud_ml.serving.codecs import json_answers, json_documents
from cloud_ml.serving.codecs.json_numbers import WORTH, Numbers
from cloud_ml.serving.errors import BadRequest, ModelNotFound
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.table import Choice, ModelTable

ROWS, COLUMNS = "instances", "inputs"
_KEYS = (b'"instances"', b'"inputs"', b'"signature_name"')
SIZES = 1024
"""Shapes that a plan remembers."""

_numbers = Numbers()


class RestPlan:
    """Requests to one signature in one format: how they are judged, and how their answers are
    written.

    ``single`` is the input, where there is one, of numbers. ``cells`` are the names of all inputs,
    the codes of their arrays and the types of their numbers, where all inputs are numbers.
    """

    __slots__ = (
        "_columns",
        "_head",
        "_known",
        "_only",
        "_row",
        "_submit",
        "_tail",
        "_version",
        "cells",
        "rows",
        "signature",
        "single",
    )

    def __init__(self, version: LoadedVersion, signature: Signature, *, rows: bool) -> None:
        self.signature = signature
        self.rows = rows
        self._version = version
        self._submit = version.batcher(signature).submit
        inputs = signature.inputs
        self.single = (
            inputs[0] if len(inputs) == 1 and inputs[0].dtype is not dtypes.STRING else None
        )
        codes = [json_documents.native_code(spec.dtype) for spec in inputs]
        self.cells = (
            None
            if None in codes
            else [(s.name, *code) for s, code in zip(inputs, codes, strict=True) if code]
        )
        self._only = signature.outputs[0] if len(signature.outputs) == 1 else None
        self._row, self._columns = _forms(signature)
        self._head = (
            b'{"predictions":[' if rows else b'{"outputs":[' if self._only else b'{"outputs":{'
        )
        self._tail = b"]}" if rows else b"}}"
        self._known: dict[tuple[Shape, ...], tuple[RestPlan, int, tuple[Shape, ...]]] = {}

    def single_row(self, value: Any) -> "Tensors | None":
        """The tensors of one row of numbers, as most requests have it; None where it has to be
        looked at closer.
        """
        assert self.cells is not None
        row = value[0] if self.rows and type(value) is list and len(value) == 1 else value
        if type(row) is not dict or len(row) != len(self.cells):
            return None
        shapes: list[Shape] = []
        tensors: list[Values] = []
        for name, code, allowed in self.cells:
            cell = row.get(name)
            if not self.rows:
                if type(cell) is not list or len(cell) != 1:
                    return None
                cell = cell[0]
            if type(cell) is list:
                shapes.append((1, len(cell)))
            else:
                shapes.append((1,))
                cell = (cell,)
            if not allowed.issuperset(map(type, cell)):
                return None
            try:
                tensors.append(array(code, cell).tobytes())
            except OverflowError:
                return None
        return tuple(shapes), tensors

    def submit(self, call: HttpCall, shapes: tuple[Shape, ...], tensors: list[Values]) -> None:
        """Run it.

        Raises:
            BadRequest: for shapes that the signature does not take.
        """
        known = self._known.get(shapes)
        if known is None:
            known = self._judge(shapes)
        plan, rows, tails = known
        plan._submit(Request(call, plan, tensors, rows, call.deadline), tails)

    def _judge(self, shapes: tuple[Shape, ...]) -> tuple["RestPlan", int, tuple[Shape, ...]]:
        for spec, shape in zip(self.signature.inputs, shapes, strict=True):
            self.signature.check_tensor(spec, spec.dtype, shape)
        if len(self._known) >= SIZES:
            self._known.clear()
        signature, rows, tails = self._version.arrange(self.signature, shapes)
        plan = (
            self
            if signature is self.signature
            else RestPlan(self._version, signature, rows=self.rows)
        )
        known = self._known[shapes] = plan, rows, tails
        return known

    def send(self, call: HttpCall, outcome: Outcome, first: int, rows: int) -> None:
        """See ``batching.Form``."""
        arrays = outcome.arrays
        if self.signature.batched and (self._only is None or len(arrays[0]) != rows):
            if self._only is None:
                call.json(self._several(outcome, first, rows))
            else:
                texts = outcome.texts.get(0) or self._texts(outcome, 0)
                call.json(
                    self._head
                    + (texts[first] if rows == 1 else b",".join(texts[first : first + rows]))
                    + b"]}"
                )
            return
        if self._only is not None:
            head = b'{"predictions":' if self.rows else b'{"outputs":'
            if self.rows and not arrays[0].ndim:
                raise BadRequest(f"output {self._only.name!r} has no rows; ask by 'inputs'")
            call.json(head + json_answers.text(arrays[0], self._only) + b"}")
        elif self.rows:
            call.json(self._by_rows(arrays))
        else:
            named = [
                b'"%b":%b' % (_key(spec.name), json_answers.text(array, spec))
                for spec, array in zip(self.signature.outputs, arrays, strict=True)
            ]
            call.json(b'{"outputs":{%b}}' % b",".join(named))

    def _texts(self, outcome: Outcome, place: int) -> list[bytes]:
        """Each row of an output: all of them are written when the first of them is wanted."""
        texts = outcome.texts.get(place)
        if texts is None:
            texts = outcome.texts[place] = json_answers.rows(
                outcome.arrays[place], self.signature.outputs[place]
            )
        return texts

    def _several(self, outcome: Outcome, first: int, rows: int) -> bytes:
        """Some rows of all outputs."""
        texts = [self._texts(outcome, place) for place in range(len(self.signature.outputs))]
        if rows == 1:
            form = self._row if self.rows else self._columns
            return self._head + form % tuple([each[first] for each in texts]) + self._tail
        cells = [each[first : first + rows] for each in texts]
        if self.rows:
            made = b",".join([self._row % each for each in zip(*cells, strict=True)])
        else:
            made = self._columns % tuple([b",".join(each) for each in cells])
        return self._head + made + self._tail

    def _by_rows(self, arrays: Sequence[Array]) -> bytes:
        """The same where rows do not go together with those of others: each output may have its
        own number.
        """
        outputs = list(zip(self.signature.outputs, arrays, strict=True))
        sizes = {array.shape[0] if array.ndim else -1 for array in arrays}
        if len(sizes) != 1 or -1 in sizes:
            shapes = ", ".join(f"{spec.name!r} {list(array.shape)}" for spec, array in outputs)
            raise BadRequest(f"outputs differ in their number of rows: {shapes}; ask by 'inputs'")
        texts = [json_answers.rows(array, spec) for spec, array in outputs]
        return b'{"predictions":[%b]}' % b",".join(
            [self._row % each for each in zip(*texts, strict=True)]
        )


def _forms(signature: Signature) -> tuple[bytes, bytes]:
    """How a row of several outputs is written, and how their columns are. ``%b`` is the text of
    an output.
    """
    # Each form is filled in by `%`, so a sign of percent in a name has to be doubled.
    keys = [b'"%b":' % _key(spec.name).replace(b"%", b"%%") for spec in signature.outputs]
    return b"{%b}" % b",".join(key + b"%b" for key in keys), b",".join(
        key + b"[%b]" for key in keys
    )


class Predict:
    """Answers predictions of one model, version or label."""

    def __init__(self, table: ModelTable, choice: Choice) -> None:
        self._table = table
        self._choice = choice
        self._generation = -1
        self._plans: dict[tuple[str, str], RestPlan] = {}

    def __call__(self, call: HttpCall, body: bytes) -> None:
        """See ``rest.service.Answer``."""
        if self._table.generation != self._generation:
            self._version = self._table.find(*self._choice)
            self._plans = {}
            self._generation = self._table.generation
        if len(body) >= WORTH and self._submit_numbers(call, body):
            return
        name, form, value, once = _read_body(body)
        plan = self._plans.get((name, form)) or self._plan(name, form)
        if plan.single is not None and type(value) is list and value and type(value[0]) is not dict:
            shape, tensor = json_documents.tensor(value, plan.single, plan.signature, form)
            plan.submit(call, (shape,), [tensor])
            return
        given = plan.single_row(value) if once and plan.cells is not None else None
        if given is None:
            given = (by_rows if form == ROWS else by_columns)(
                plan.signature, value, body, once=once
            )
        plan.submit(call, *given)

    def _submit_numbers(self, call: HttpCall, body: bytes) -> bool:
        """Submit a long body that is numbers of one tensor and nothing else; false if it is not."""
        plan = self._plans.get(("", ROWS)) or self._plan("", ROWS)
        inputs = plan.signature.inputs
        if len(inputs) != 1 or inputs[0].shape is None:
            return False
        read = _numbers.read(body, inputs[0].dtype, len(inputs[0].shape))
        if read is None:
            return False
        form, shape, flat = read
        if form != ROWS:
            plan = self._plans.get(("", form)) or self._plan("", form)
        plan.submit(call, (shape,), [flat.reshape(shape)])  # type: ignore[union-attr]
        return True

    def _plan(self, name: str, form: str) -> RestPlan:
        try:
            signature = self._version.signature(name)
        except ModelNotFound as error:
            raise BadRequest(error.message) from error  # as TensorFlow Serving's REST says it
        plan = self._plans[name, form] = RestPlan(self._version, signature, rows=form == ROWS)
        return plan


Tensors = tuple[tuple[Shape, ...], list[Values]]


def _read_body(body: bytes) -> tuple[str, str, Any, bool]:
    """The signature, whether by rows or by columns, the values, and whether it is certain that no
    name is there twice.
    """
    fields = json_documents.parse_object(body)
    quotes = body.count(b'"')
    # As many strings as there are names: none of them can be there twice.
    once = quotes == 2 * len(fields) or quotes == 2 * _names(fields)
    if not once:
        json_documents.check_once(body, *_KEYS)
    form = ROWS if ROWS in fields else COLUMNS
    if form not in fields or (form == ROWS and COLUMNS in fields):
        raise BadRequest(
            "the body has neither or both of 'instances' and 'inputs'; it takes one of them"
        )
    name = fields.get("signature_name", "")
    if type(name) is not str:
        raise BadRequest("'signature_name' is no string")
    return name, form, fields[form], once


def _names(fields: dict[str, Any]) -> int:
    """The names in a body whose rows are alike. If it has no more strings, no name is there
    twice.
    """
    value = fields.get(ROWS) or fields.get(COLUMNS)
    names = len(fields) + ("signature_name" in fields)
    if type(value) is dict:
        return names + len(value)
    if type(value) is list and value and type(value[0]) is dict:
        return names + len(value) * len(value[0])
    return names


def by_rows(signature: Signature, value: Any, body: bytes, *, once: bool = False) -> Tensors:
    """Tensors of ``instances``: a value for each row, or an object of values where there are
    several inputs.

    ``once`` tells that no name is twice in the body, if all rows have the inputs and nothing else.
    """
    if type(value) is not list or not value:
        raise BadRequest(f"'instances' is not a list of one row or more: {signature}")
    inputs = signature.inputs
    first = value[0]
    if type(first) is not dict or json_documents.is_base64(first):
        if len(inputs) != 1:
            raise BadRequest(
                f"'instances' is a plain list, and there are several inputs to name: {signature}"
            )
        return _together(signature, [(value, "instances")])
    _check_rows(signature, value)
    if not once:
        _check_no_name_twice(signature, len(value), body)
    return _together(
        signature,
        [([row[spec.name] for row in value], f"instances.{spec.name}") for spec in inputs],
    )


def _check_rows(signature: Signature, rows: list[Any]) -> None:
    """Refuse rows that are not objects of all inputs."""
    inputs = signature.inputs
    for place, row in enumerate(rows):
        if type(row) is not dict:
            raise BadRequest(
                f"instances[{place}] is not an object, instances[0] is one: {signature}"
            )
        if len(row) != len(inputs) or any(spec.name not in row for spec in inputs):
            try:
                signature.check_names(row)
            except BadRequest as error:
                raise BadRequest(f"instances[{place}]: {error.message}") from error


def _check_no_name_twice(signature: Signature, rows: int, body: bytes) -> None:
    """Refuse a row with an input that is there twice: the document has the last of them only."""
    for spec in signature.inputs:
        key = f'"{spec.name}"'.encode()
        if body.count(key) > rows:
            json_documents.document(body, key)


def by_columns(signature: Signature, value: Any, body: bytes, *, once: bool = False) -> Tensors:
    """Tensors of ``inputs``: a tensor, or an object of tensors where there are several inputs;
    see ``by_rows``.
    """
    inputs = signature.inputs
    if type(value) is not dict or json_documents.is_base64(value):
        if len(inputs) != 1:
            raise BadRequest(
                f"'inputs' is a plain value, and there are several inputs to name: {signature}"
            )
        return _together(signature, [(value, "inputs")])
    signature.check_names(value)
    if not once:
        json_documents.document(body, *[f'"{key}"'.encode() for key in value])
    return _together(signature, [(value.get(spec.name), f"inputs.{spec.name}") for spec in inputs])


def _together(signature: Signature, given: list[tuple[Any, str]]) -> Tensors:
    shapes: list[Shape] = []
    tensors: list[Values] = []
    for spec, (value, where) in zip(signature.inputs, given, strict=True):
        shape, made = json_documents.tensor(value, spec, signature, where)
        shapes.append(shape)
        tensors.append(json_documents.shape_values(shape, made, spec.dtype))
    return tuple(shapes), tensors


def _key(name: str) -> bytes:
    return name.replace("\\", "\\\\").replace('"', '\\"').encode()
