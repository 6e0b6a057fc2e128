"""Which models of TensorFlow Lite keep their rows apart, by what an interpreter tells of
operators and tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloud_ml.serving.independence import tflite_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent


class Interpreter:
    """Tensors by number: 0 is the input, the last one the output. A tensor that is computed has
    no values yet.
    """

    def __init__(
        self, shapes: list[list[int]], operators: list[tuple[str, list[int], list[int]]]
    ) -> None:
        self._shapes = shapes
        self._operators = operators

    def get_tensor_details(self) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "name": f"t{index}",
                "shape_signature": np.array(shape),
                "dtype": np.float32,
            }
            for index, shape in enumerate(self._shapes)
        ]

    def get_input_details(self) -> list[dict[str, Any]]:
        return self.get_tensor_details()[:1]

    def get_output_details(self) -> list[dict[str, Any]]:
        return self.get_tensor_details()[-1:]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "op_name": kind,
                "inputs": np.array(inputs),
                "outputs": np.array(outputs),
            }
            for index, (kind, inputs, outputs) in enumerate(self._operators)
        ]

    def get_tensor(self, index: int) -> Any:
        computed = index in {each for _, _, outputs in self._operators for each in outputs}
        return np.array([7 if computed else 1])


def test_a_sum_along_constant_axes_is_proven() -> None:
    tflite_graph.check(Interpreter([[-1, 4], [1], [-1]], [("SUM", [0, 1], [2])]))


def test_axes_that_are_computed_are_not_read_before_the_model_ran() -> None:
    made = Interpreter([[-1, 4], [1], [1], [1], [-1]], [("MUL", [1, 2], [3]), ("SUM", [0, 3], [4])])
    with pytest.raises(NotIndependent, match="SUM 1: its axes are computed"):
        tflite_graph.check(made)
