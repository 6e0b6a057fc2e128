"""Operators of TensorFlow Lite that keep rows apart. The interpreter tells operators and shapes,
but no options.

So an operator whose options could mix rows is trusted only where its shapes show that they do not.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from cloud_ml.serving.independence.tensor_info import NotIndependent, names

_ELEMENTWISE = names(
    """
    ABS ADD CAST COS DEQUANTIZE DIV ELU EXP FLOOR GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM MINIMUM MUL NEG POW
    PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 ROUND RSQRT SIN SQRT SQUARE SQUARED_DIFFERENCE SUB TANH
    """
)
_WEIGHTS = {"FULLY_CONNECTED": 2, "CONV_2D": 4, "DEPTHWISE_CONV_2D": 4}
_POOLS = names("MAX_POOL_2D AVERAGE_POOL_2D")
_REDUCTIONS = names("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD")
_SIZES = names("STRIDED_SLICE PACK CONCATENATION GATHER MUL RESHAPE")
_ROWS, _SIZE, _CONSTANT = "rows", "size", "constant"


def check(interpreter: Any) -> None:
    """Look at every operator of an interpreter whose tensors are allocated.

    Raises:
        NotIndependent: with the first operator that is not known to keep rows apart, and why.
    """
    _Reader(interpreter).check()


class _Reader:
    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._tensors = {each["index"]: each for each in interpreter.get_tensor_details()}
        self._operators = [
            each for each in interpreter._get_ops_details() if each["op_name"] != "DELEGATE"
        ]
        self._kinds: dict[int, str] = {}
        self._computed: set[int] = set()

    def check(self) -> None:
        self._computed = {int(index) for each in self._operators for index in each["outputs"]}
        for index in self._tensors:
            if index not in self._computed:
                self._kinds[index] = _CONSTANT
        for each in self._interpreter.get_input_details():
            self._set_rows(each["index"])
        for each in self._operators:
            # -1 stands for an input that was left out.
            inputs = [int(index) for index in each["inputs"] if int(index) >= 0]
            outputs = [int(index) for index in each["outputs"]]
            try:
                self._follow(each["op_name"], inputs, outputs)
            except NotIndependent as reason:
                raise NotIndependent(
                    f"operator {each['op_name']} {each['index']}: {reason}"
                ) from None
        for each in self._interpreter.get_output_details():
            if self._kinds.get(each["index"]) != _ROWS:
                raise NotIndependent(
                    f"output {each['name']!r} does not have one entry for each row"
                )

    def _shape(self, index: int) -> list[int]:
        return [int(size) for size in self._tensors[index]["shape_signature"]]

    def _set_rows(self, index: int) -> None:
        shape = self._shape(index)
        if not shape or shape[0] != -1 or -1 in shape[1:]:
            raise NotIndependent("the rows are not the first dimension, or another one is open")
        self._kinds[index] = _ROWS

    def _follow(self, kind: str, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        states = [self._kinds.get(index) for index in inputs]
        if None in states or len(outputs) != 1:
            raise NotIndependent("it is not known what it is made of")
        if kind == "SHAPE" or (_ROWS not in states and kind in _SIZES):
            self._kinds[outputs[0]] = _SIZE if _SIZE in states or _ROWS in states else _CONSTANT
            return
        if states[0] == _SIZE or (_SIZE in states and kind != "RESHAPE"):
            raise NotIndependent("it computes with the number of rows")
        self._keeps(kind, inputs, states, outputs[0])
        self._set_rows(outputs[0])

    def _keeps(
        self, kind: str, inputs: Sequence[int], states: Sequence[str | None], output: int
    ) -> None:
        """Refuse an operator that may mix the rows of its inputs."""
        rank = len(self._shape(inputs[0]))
        if kind in _ELEMENTWISE:
            self._check_aligned(inputs, states)
        elif kind == "CONCATENATION":
            self._check_concat(inputs, states, output)
        elif states[0] != _ROWS or _ROWS in states[1:]:
            raise NotIndependent("a parameter of it is made of rows")
        elif kind in _WEIGHTS:
            self._check_weights(kind, inputs)
        elif kind in _REDUCTIONS:
            self._check_reduction(inputs)
        elif kind == "RESHAPE":
            if prod(self._shape(inputs[0])[1:]) != prod(self._shape(output)[1:]):
                raise NotIndependent("numbers together may belong to different rows")
        elif kind in ("SOFTMAX", "LOG_SOFTMAX"):
            if rank < 2:
                raise NotIndependent("it works along the rows")
        elif kind not in _POOLS or rank != 4:
            raise NotIndependent("it is not known to keep rows apart")

    def _check_weights(self, kind: str, inputs: Sequence[int]) -> None:
        types = {self._tensors[index]["dtype"] for index in inputs[:2]}
        if len(self._shape(inputs[0])) != _WEIGHTS[kind] or len(types) != 1:
            raise NotIndependent("its input has another rank or type than its weights")
        # It takes its input as a long row of numbers and cuts that into pieces as long as the rows
        # of its weights.
        if kind == "FULLY_CONNECTED" and self._shape(inputs[0])[1] != self._shape(inputs[1])[1]:
            raise NotIndependent("numbers of several rows may be multiplied together")

    def _check_reduction(self, inputs: Sequence[int]) -> None:
        # Before the model has run, ``get_tensor`` gives whatever the memory holds.
        if inputs[1] in self._computed:
            raise NotIndependent("its axes are computed, and have no values yet")
        rank = len(self._shape(inputs[0]))
        axes = self._interpreter.get_tensor(inputs[1]).ravel().tolist()
        if any(axis % rank == 0 for axis in axes):
            raise NotIndependent("it reduces over the rows")

    def _check_aligned(self, inputs: Sequence[int], states: Sequence[str | None]) -> None:
        ranks = {
            len(self._shape(index))
            for index, state in zip(inputs, states, strict=True)
            if state == _ROWS
        }
        if len(ranks) != 1:
            raise NotIndependent("tensors of different ranks are aligned by their last dimension")
        rank = ranks.pop()
        for index, state in zip(inputs, states, strict=True):
            shape = self._shape(index)
            if state == _CONSTANT and (len(shape) > rank or (len(shape) == rank and shape[0] != 1)):
                raise NotIndependent("a constant has a value for each place among the rows")

    def _check_concat(
        self, inputs: Sequence[int], states: Sequence[str | None], output: int
    ) -> None:
        """Along the rows all other sizes would stay."""
        # The axis is an option, and options are not told.
        if set(states) != {_ROWS} or any(
            self._shape(index)[1:] == self._shape(output)[1:] for index in inputs
        ):
            raise NotIndependent("it may put tensors one after the other along the rows")
