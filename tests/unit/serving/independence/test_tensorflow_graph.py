"""Which SavedModels keep their rows apart: proven by looking at their graphs, without TensorFlow."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cloud_ml.serving.independence import tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.facts import Mixes
from cloud_ml.serving.runtimes.tensorflow import described
from support.tensorflow_graphs import APART, MIXES, const, function, node, save, saved


def check(data: bytes, folder: Path) -> None:
    signature = described.signatures(save(folder, data))["serving_default"]
    assert signature.has_rows
    tensorflow_graph.check(tensorflow_file.read(folder / "saved_model.pb"), signature)


@pytest.mark.parametrize("name", MIXES)
def test_rows_that_may_influence_each_other_are_not_proven(name: str, tmp_path: Path) -> None:
    with pytest.raises(Mixes):
        check(MIXES[name], tmp_path)


@pytest.mark.parametrize("name", APART)
def test_models_in_use_are_proven(name: str, tmp_path: Path) -> None:
    check(APART[name], tmp_path)


def test_the_reason_names_the_operation(tmp_path: Path) -> None:
    with pytest.raises(Mixes, match="operation Mean 'm': it reduces over the rows"):
        check(MIXES["nested functions"], tmp_path)


def test_large_weights_are_not_read(tmp_path: Path) -> None:
    weights = np.zeros((4, 1 << 22), np.float32)
    file = save(tmp_path, saved([const("w", weights), node("MatMul", "y", "x", "w")], out=(-1, 1 << 22)))
    signature = described.signatures(file)["serving_default"]
    del weights
    tracemalloc.start()
    try:
        tensorflow_graph.check(tensorflow_file.read(file / "saved_model.pb"), signature)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_functions_that_call_each_other_twice_do_not_double_the_work_without_end(tmp_path: Path) -> None:
    functions = [function("f0", ["a"], [node("Relu", "r", "a")], {"o": "r:activations:0"})]
    for level in range(1, 40):
        calls = [node("PartitionedCall", each, "a", f=f"function:f{level - 1}") for each in "cd"]
        functions.append(function(f"f{level}", ["a"], calls, {"o": "c:output:0"}))
    with pytest.raises(Mixes, match="operations would have to be looked at"):
        check(saved([node("PartitionedCall", "y", "x", f="function:f39")], functions), tmp_path)
