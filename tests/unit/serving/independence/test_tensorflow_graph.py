"""Which SavedModels keep their rows apart: proven by looking at their graphs, without
TensorFlow.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cloud_ml.serving.independence import tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent
from cloud_ml.serving.runtimes.tensorflow import described
from support.measuring import cost_of
from support.tensorflow_graphs import APART, MIXES, Node, const, function, node, save, saved


def check(data: bytes, folder: Path) -> None:
    signature = described.signatures(save(folder, data))["serving_default"]
    assert signature.has_rows
    tensorflow_graph.check(tensorflow_file.read(folder / "saved_model.pb"), signature)


@pytest.mark.parametrize("name", MIXES)
def test_rows_that_may_influence_each_other_are_not_proven(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotIndependent):
        check(MIXES[name], tmp_path)


@pytest.mark.parametrize("name", APART)
def test_models_in_use_are_proven(name: str, tmp_path: Path) -> None:
    check(APART[name], tmp_path)


def test_the_reason_names_the_operation(tmp_path: Path) -> None:
    with pytest.raises(NotIndependent, match="operation Mean 'm': it reduces over the rows"):
        check(MIXES["nested functions"], tmp_path)


def test_large_weights_are_not_read(tmp_path: Path) -> None:
    weights = np.zeros((4, 1 << 22), np.float32)
    file = save(
        tmp_path, saved([const("w", weights), node("MatMul", "y", "x", "w")], out=(-1, 1 << 22))
    )
    signature = described.signatures(file)["serving_default"]
    del weights
    tracemalloc.start()
    try:
        tensorflow_graph.check(tensorflow_file.read(file / "saved_model.pb"), signature)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_functions_that_call_each_other_twice_do_not_double_the_work_without_end(
    tmp_path: Path,
) -> None:
    functions = [function("f0", ["a"], [node("Relu", "r", "a")], {"o": "r:activations:0"})]
    for level in range(1, 40):
        calls = [node("PartitionedCall", each, "a", f=f"function:f{level - 1}") for each in "cd"]
        functions.append(function(f"f{level}", ["a"], calls, {"o": "c:output:0"}))
    with pytest.raises(NotIndependent, match="would have to be looked at"):
        check(saved([node("PartitionedCall", "y", "x", f="function:f39")], functions), tmp_path)


_AXIS = const("axis", 0)


def _doubled(times: int) -> list[Node]:
    """A vector that is put before itself again and again, and then decides the shape."""
    nodes = [_AXIS, const("c0", [1, 1])]
    nodes += [
        node("ConcatV2", f"c{place + 1}", f"c{place}", f"c{place}", "axis")
        for place in range(times)
    ]
    return [*nodes, node("Reshape", "y", "x", f"c{times}")]


def _many_inputs() -> bytes:
    """Functions that call each other twice, the last of which has a node with many inputs."""
    functions = [
        function("f0", ["a"], [node("IdentityN", "r", *["a"] * 50_000)], {"o": "r:output:0"})
    ]
    for level in range(1, 20):
        calls = [node("PartitionedCall", each, "a", f=f"function:f{level - 1}") for each in "cd"]
        functions.append(function(f"f{level}", ["a"], calls, {"o": "c:output:0"}))
    return saved([node("PartitionedCall", "y", "x", f="function:f19")], functions)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a list that doubles": (lambda: saved(_doubled(100)), "a shape is not known"),
    "outputs without end": (
        lambda: saved([node("Unpack", "y", "x", num=1 << 40, axis=1)]),
        "more than 65536 outputs",
    ),
    "parts without end": (
        lambda: saved(
            [
                const("axis", 1),
                const("c", [[1.0]]),
                node("Split", "y", "axis", "c", num_split=1 << 40),
            ]
        ),
        "more than 65536 outputs",
    ),
    "inputs without end": (_many_inputs, "would have to be looked at"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_made_to_take_memory_or_time_is_refused(name: str, tmp_path: Path) -> None:
    made, reason = HOSTILE[name]
    data = made()

    def look() -> None:
        with pytest.raises(NotIndependent, match=reason):
            check(data, tmp_path)

    cost = cost_of(look)
    assert cost.memory_bytes < 20 * len(data) + (32 << 20)
