"""Which ONNX graphs keep their rows apart: proven by looking, and checked by running."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cloud_ml.serving.independence import onnx_graph, probe
from cloud_ml.serving.independence.tensor_info import NotIndependent
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE
from cloud_ml.serving.runtimes.onnx import OnnxModel
from support.measuring import growth
from support.onnx_graphs import APART, MIXES, UNSTABLE, model, node


@pytest.mark.parametrize("name", [*MIXES, *UNSTABLE])
def test_rows_that_may_influence_each_other_are_not_proven(name: str) -> None:
    data = (MIXES | UNSTABLE)[name]().SerializeToString()
    loaded = OnnxModel({DEFAULT_SIGNATURE: data})
    signature = loaded.signatures[DEFAULT_SIGNATURE]
    assert signature.has_rows or "for each place" in name, "the proof must be what refuses it"
    with pytest.raises(NotIndependent):
        onnx_graph.check(data, signature)
    assert not loaded.evidence[DEFAULT_SIGNATURE].independent


@pytest.mark.parametrize("name", APART)
def test_models_in_use_are_proven_and_a_row_is_the_same_alone_and_among_others(name: str) -> None:
    loaded = OnnxModel({DEFAULT_SIGNATURE: APART[name]().SerializeToString()})
    evidence = loaded.evidence[DEFAULT_SIGNATURE]
    assert evidence.independent, evidence.reason
    assert probe.difference(loaded, loaded.signatures[DEFAULT_SIGNATURE]) == ""


def test_what_is_called_mixing_here_does_mix() -> None:
    """Otherwise the table would test nothing. A probe shows most of them; some need other rows
    or only may mix.
    """
    shown = set()
    for name, made in MIXES.items():
        loaded = OnnxModel({DEFAULT_SIGNATURE: made().SerializeToString()})
        if probe.difference(loaded, loaded.signatures[DEFAULT_SIGNATURE]):
            shown.add(name)
    assert len(shown) > 0.75 * len(MIXES), sorted(set(MIXES) - shown)


def test_the_reason_names_the_operator() -> None:
    data = model([node("Softmax", ["x"], ["y"], axis=0, name="over_rows")]).SerializeToString()
    evidence = OnnxModel({DEFAULT_SIGNATURE: data}).evidence[DEFAULT_SIGNATURE]
    assert evidence.reason == "operator Softmax 'over_rows': it works along the rows"


def test_what_no_output_needs_does_not_count() -> None:
    made = model([node("Relu", ["x"], ["y"]), node("Softmax", ["x"], ["unused"], axis=0)])
    assert (
        OnnxModel({DEFAULT_SIGNATURE: made.SerializeToString()})
        .evidence[DEFAULT_SIGNATURE]
        .independent
    )


@pytest.mark.parametrize("opset", [5, 99])
def test_operator_sets_of_another_meaning_are_not_trusted(opset: int) -> None:
    made = model([node("Relu", ["x"], ["y"])], opset=opset)
    signature = OnnxModel(
        {DEFAULT_SIGNATURE: model([node("Relu", ["x"], ["y"])]).SerializeToString()}
    ).signatures
    with pytest.raises(NotIndependent, match=f"version {opset} of the operator set"):
        onnx_graph.check(made.SerializeToString(), signature[DEFAULT_SIGNATURE])


def test_large_weights_are_not_read(tmp_path: Path) -> None:
    weights = np.zeros((4, 1 << 22), np.float32)
    made = model([node("MatMul", ["x", "w"], ["y"])], out=(1 << 22,))
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    file = tmp_path / "model.onnx"
    onnx.save(made, file)
    signature = OnnxModel({DEFAULT_SIGNATURE: file}).signatures[DEFAULT_SIGNATURE]
    del made, weights
    tracemalloc.start()
    try:
        onnx_graph.check(file, signature)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 64 << 20


def test_looking_takes_time_in_proportion_to_the_graph() -> None:
    signature = OnnxModel(
        {DEFAULT_SIGNATURE: model([node("Relu", ["x"], ["y"])]).SerializeToString()}
    ).signatures

    def looking(count: int) -> Callable[[], object]:
        nodes = [node("Relu", [f"t{place}"], [f"t{place + 1}"]) for place in range(count)]
        nodes[0].input[0], nodes[-1].output[0] = "x", "y"
        data = model(nodes).SerializeToString()
        return lambda: onnx_graph.check(data, signature[DEFAULT_SIGNATURE])

    _, power = growth(looking, 2_000)
    assert power < 1.5
