"""Whether the graph of an ONNX model keeps rows apart."""

from pathlib import Path

from cloud_ml.serving.independence import onnx_file
from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.facts import Fact, Mixes, rows_of
from cloud_ml.serving.independence.onnx_file import Graph, Node
from cloud_ml.serving.independence.onnx_operators import (
    HANDLERS,
    OPERATOR_SETS,
    OPSET,
    SEVERAL_WITH_ROWS,
    TAKES_SIZES,
)
from cloud_ml.serving.signatures import Signature

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def check(source: bytes | Path, signature: Signature, *, inner: bool = True) -> None:
    """Look at every operator between inputs and outputs. ``inner`` as in ``OnnxModel``.

    Raises:
        Mixes: with the first operator that is not known to keep rows apart, and why.
    """
    graph = onnx_file.read(source)
    onnx_file.known_operator_sets(graph, OPERATOR_SETS)
    facts: dict[str, Fact | Mixes] = dict(graph.constants)
    for spec in signature.inputs:
        facts[spec.inner if inner else spec.name] = rows_of(spec.shape or ())
    for node in graph.nodes:
        made = _outputs(node, facts, graph)
        for place, name in enumerate(node.outputs):
            if name:
                facts[name] = made if isinstance(made, Mixes) else _at(made, place, node)
    for spec in signature.outputs:
        fact = facts.get(spec.inner if inner else spec.name, Mixes(f"nothing computes output {spec.name!r}"))
        if isinstance(fact, Mixes):
            raise fact
        op.check_output(spec.name, fact)


def _at(made: list[Fact], place: int, node: Node) -> Fact | Mixes:
    return made[place] if place < len(made) else Mixes(f"a further output of {node.kind}")


def _outputs(node: Node, facts: dict[str, Fact | Mixes], graph: Graph) -> list[Fact] | Mixes:
    """What is known of the outputs, or why that is nothing."""
    inputs: list[Fact | None] = []
    for name in node.inputs:
        fact = facts.get(name) if name else None
        if isinstance(fact, Mixes):
            return fact
        if name and fact is None:
            return Mixes(f"nothing computes {name!r}")
        inputs.append(fact)
    handler = HANDLERS.get(node.kind) if node.domain in _DOMAINS else None
    told = f"operator {node.kind}" + (f" {node.name!r}" if node.name else "")
    if handler is None:
        return Mixes(f"{told} is not known to keep rows apart")
    node.attributes[OPSET] = graph.opsets.get("", 13)
    try:
        _check_other_inputs(node, inputs[1:])
        made = handler(node, inputs)
    except Mixes as reason:
        return Mixes(f"{told}: {reason}")
    except (IndexError, ValueError, TypeError, ZeroDivisionError) as error:  # a node that does not fit its inputs
        return Mixes(f"{told} cannot be followed: {error}")
    return made if isinstance(made, list) else [made]


def _check_other_inputs(node: Node, facts: list[Fact | None]) -> None:
    for fact in facts:
        if fact is None:
            continue
        if fact.rows and node.kind not in SEVERAL_WITH_ROWS:
            raise Mixes("a parameter of it is made of rows")
        if fact.counts_rows and node.kind not in TAKES_SIZES:
            raise Mixes("a parameter of it is computed from the number of rows")
