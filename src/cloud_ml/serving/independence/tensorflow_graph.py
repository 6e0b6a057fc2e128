"""Whether the graph of a SavedModel keeps rows apart, through all functions that a signature
calls.
"""

from collections.abc import Sequence

from cloud_ml.serving.independence import operators as op
from cloud_ml.serving.independence.tensor_info import NotIndependent, TensorInfo, rows_of
from cloud_ml.serving.independence.tensorflow_file import FunctionName, Graph, Node
from cloud_ml.serving.independence.tensorflow_operators import (
    HANDLERS,
    OUTPUTS,
    SEVERAL_WITH_ROWS,
    TAKES_SIZES,
)
from cloud_ml.serving.signatures import Signature

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
MOST_VISITS = 500_000
"""Nodes and inputs of nodes that are looked at, however often a function is called."""
DEEPEST = 50
"""Functions that call each other."""

Known = dict[str, "list[TensorInfo] | NotIndependent"]


def check(graph: Graph, signature: Signature) -> None:
    """Look at every operation between inputs and outputs, and at whatever else runs with them.

    Raises:
        NotIndependent: with the first operation that is not known to keep rows apart, and why.
    """
    _Reader(graph).check(signature)


class _Reader:
    """Follows the rows through a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._visits = 0

    def check(self, signature: Signature) -> None:
        known: Known = {}
        for spec in signature.inputs:
            if spec.inner.partition(":")[2] not in ("", "0") or _node_of(spec.inner) in known:
                raise NotIndependent(
                    f"input {spec.name!r} is not the first output of a node of its own"
                )
            known[_node_of(spec.inner)] = [rows_of(spec.shape or ())]
        outputs = [_node_of(spec.inner) for spec in signature.outputs]
        for node in _order_nodes(self._graph.nodes, outputs, known):
            known[node.name] = self._outputs(node, known, {}, 0)
        for spec in signature.outputs:
            op.check_output(spec.name, _find_input(spec.inner, known, {}))

    def _call(self, name: str, arguments: Sequence[TensorInfo], depth: int) -> list[TensorInfo]:
        function = self._graph.functions.get(name)
        if function is None or len(function.arguments) != len(arguments):
            raise NotIndependent(f"function {name!r} is not there, or takes something else")
        if depth > DEEPEST:
            raise NotIndependent("functions call each other deeper than is looked at")
        known: Known = {
            argument: [info] for argument, info in zip(function.arguments, arguments, strict=True)
        }
        kinds = {node.name: node.kind for node in function.nodes}
        # All of its nodes: a function also runs those that change a state and that no result needs.
        for node in _order_nodes(function.nodes, list(kinds), known):
            known[node.name] = self._outputs(node, known, kinds, depth)
        return [_find_input(result, known, kinds) for result in function.results]

    def _outputs(
        self, node: Node, known: Known, kinds: dict[str, str], depth: int
    ) -> "list[TensorInfo] | NotIndependent":
        """What is known of the outputs of a node, or why its values mix rows. ``kinds`` are those
        of a function.

        Raises:
            NotIndependent: at once for what is not known, which may have effects that nobody reads.
        """
        self._visits += 1 + len(node.inputs)
        if self._visits > MOST_VISITS:
            raise NotIndependent(
                f"more than {MOST_VISITS} operations and inputs would have to be looked at"
            )
        subject = f"operation {node.kind} {node.name!r}"
        if node.kind not in HANDLERS and node.kind not in _CALLS:
            raise NotIndependent(f"{subject} is not known to keep rows apart")
        try:
            # An input with a ``^`` is an order only: it has no value.
            infos = [_find_input(name, known, kinds) for name in node.inputs if name[:1] != "^"]
        except NotIndependent as reason:
            if node.kind in _CALLS:
                raise  # what it does with that cannot be looked at, and may have effects
            return reason
        if node.kind in _CALLS:
            called = node.attributes.get("f")
            if not isinstance(called, FunctionName):
                raise NotIndependent(f"{subject} does not name its function")
            return self._call(called.name, infos, depth + 1)
        return _apply_operator(node, infos, subject)


def _apply_operator(
    node: Node, infos: Sequence[TensorInfo], subject: str
) -> "list[TensorInfo] | NotIndependent":
    try:
        _check_other_inputs(node, infos[1:])
        made = HANDLERS[node.kind](node, infos)
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


def _check_other_inputs(node: Node, infos: Sequence[TensorInfo]) -> None:
    for info in infos:
        if info.rows and node.kind not in SEVERAL_WITH_ROWS:
            raise NotIndependent("a parameter of it is made of rows")
        if info.counts_rows and node.kind not in TAKES_SIZES:
            raise NotIndependent("a parameter of it is computed from the number of rows")


def _node_of(name: str) -> str:
    """The node of an input: ``node``, ``node:1``, ``node:output:0`` or ``^node``."""
    return name.removeprefix("^").partition(":")[0]


def _find_input(name: str, known: Known, kinds: dict[str, str]) -> TensorInfo:
    """What is known of an input of a node. Outputs have numbers, and names before them inside of
    functions.
    """
    node, _, rest = name.partition(":")
    outputs = known.get(node)
    if outputs is None:
        raise NotIndependent(f"nothing computes {name!r}")
    if isinstance(outputs, NotIndependent):
        raise outputs
    label, _, number = rest.rpartition(":")
    place = int(number) if number.isascii() and number.isdigit() else 0
    several = OUTPUTS.get(kinds.get(node, ""))
    if several is not None and label:
        if label not in several:
            raise NotIndependent(f"output {label!r} of {node!r} is not looked at")
        place = several.index(label)
    if place >= len(outputs):
        raise NotIndependent(f"output {name!r} is not looked at")
    return outputs[place]


def _order_nodes(nodes: Sequence[Node], outputs: Sequence[str], known: Known) -> list[Node]:
    """The nodes that ``outputs`` need, each behind what it needs, without recursion.

    Raises:
        NotIndependent: where they need each other in a circle.
    """
    by_name = {node.name: node for node in nodes if node.name not in known}
    done: set[str] = set()
    entered: set[str] = set()
    made: list[Node] = []
    stack = [name for name in reversed(outputs) if name in by_name]
    while stack:
        name = stack[-1]
        if name in done:
            stack.pop()
            continue
        needed = [
            each
            for each in map(_node_of, by_name[name].inputs)
            if each in by_name and each not in done
        ]
        if name in entered:
            if needed:
                raise NotIndependent("operations need each other in a circle")
            stack.pop()
            done.add(name)
            made.append(by_name[name])
            continue
        entered.add(name)
        for each in needed:
            if each in entered:
                raise NotIndependent("operations need each other in a circle")
            stack.append(each)
    return made
