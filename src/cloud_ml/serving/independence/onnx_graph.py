"""Whether the graph of an ONNX model keeps rows apart."""

from pathlib import Path

from cloud_ml.serving.independence import onnx_file
from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.onnx_file import Graph, Node
from cloud_ml.serving.independence.onnx_operators import (
    HANDLERS,
    OPERATOR_SETS,
    OPSET,
    SEVERAL_WITH_ROWS,
    TAKES_SIZES,
)
from cloud_ml.serving.independence.tensor_info import NotIndependent, TensorInfo, rows_of
from cloud_ml.serving.signatures import Signature

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def check(source: bytes | Path, signature: Signature, *, inner: bool = True) -> None:
    """Look at every operator between inputs and outputs. ``inner`` as in ``OnnxModel``.

    Raises:
        NotIndependent: with the first operator that is not known to keep rows apart, and why.
    """
    graph = onnx_file.read(source)
    onnx_file.known_operator_sets(graph, OPERATOR_SETS)
    infos: dict[str, TensorInfo | NotIndependent] = dict(graph.constants)
    # After the constants: an initializer with the name of an input is only its default value.
    for spec in signature.inputs:
        infos[spec.inner if inner else spec.name] = rows_of(spec.shape or ())
    for node in graph.nodes:
        made = _outputs(node, infos, graph)
        # A refusal is kept as what is known of the output: it counts only if something that is
        # answered needs that.
        for place, name in enumerate(node.outputs):
            if name:
                infos[name] = made if isinstance(made, NotIndependent) else _at(made, place, node)
    for spec in signature.outputs:
        info = infos.get(
            spec.inner if inner else spec.name,
            NotIndependent(f"nothing computes output {spec.name!r}"),
        )
        if isinstance(info, NotIndependent):
            raise info
        op.check_output(spec.name, info)


def _at(made: list[TensorInfo], place: int, node: Node) -> TensorInfo | NotIndependent:
    return made[place] if place < len(made) else NotIndependent(f"a further output of {node.kind}")


def _outputs(
    node: Node, infos: dict[str, TensorInfo | NotIndependent], graph: Graph
) -> list[TensorInfo] | NotIndependent:
    """What is known of the outputs, or why that is nothing."""
    inputs: list[TensorInfo | None] = []
    for name in node.inputs:
        info = infos.get(name) if name else None
        if isinstance(info, NotIndependent):
            return info
        if name and info is None:
            return NotIndependent(f"nothing computes {name!r}")
        inputs.append(info)
    handler = HANDLERS.get(node.kind) if node.domain in _DOMAINS else None
    subject = f"operator {node.kind}" + (f" {node.name!r}" if node.name else "")
    if handler is None:
        return NotIndependent(f"{subject} is not known to keep rows apart")
    node.attributes[OPSET] = graph.opsets.get("", 13)
    try:
        _check_other_inputs(node, inputs[1:])
        made = handler(node, inputs)
    except NotIndependent as reason:
        return NotIndependent(f"{subject}: {reason}")
    except (
        IndexError,
        ValueError,
        TypeError,
        ZeroDivisionError,
    ) as error:  # a node that does not fit its inputs
        return NotIndependent(f"{subject} cannot be followed: {error}")
    return made if isinstance(made, list) else [made]


def _check_other_inputs(node: Node, infos: list[TensorInfo | None]) -> None:
    for info in infos:
        if info is None:
            continue
        if info.rows and node.kind not in SEVERAL_WITH_ROWS:
            raise NotIndependent("a parameter of it is made of rows")
        if info.counts_rows and node.kind not in TAKES_SIZES:
            raise NotIndependent("a parameter of it is computed from the number of rows")
