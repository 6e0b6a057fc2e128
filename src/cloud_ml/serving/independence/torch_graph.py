"""Whether the graph of an exported PyTorch program keeps rows apart."""

from collections.abc import Sequence
from typing import Any

from cloud_ml.serving.independence.tensor_info import Dimension, NotIndependent, names
from cloud_ml.serving.independence.torch_operators import (
    ELEMENTWISE,
    HANDLERS,
    REPEATED,
    SHAPED,
    expand,
    kind_of,
)
from cloud_ml.serving.independence.torch_tensors import Axis, KnownTensors, place_of_rows

_FILLED = names("zeros ones full")
_CONSTANTS = names("arange tril triu ones scalar_tensor")
"""Operators that may be made of constants, and are looked at no further then."""
_SIZES = names(
    "sym_size sym_constrain_range_for_size _assert_scalar sym_constrain_range "
    "_assert_tensor_metadata"
)
_NUMBER_MODULES = ("_operator", "builtins", "math", "torch")
"""Modules of the functions that compute with sizes."""
_TAKES_REPEATED = ELEMENTWISE | SHAPED | REPEATED
"""Operators that keep rows apart also where these are repeated along their axis."""
MOST_NODES = 200_000


def check(program: Any) -> None:
    """Look at every node of an ``ExportedProgram``.

    Raises:
        NotIndependent: with the first node that is not known to keep rows apart, and why.
    """
    signature = program.graph_signature
    if signature.buffers_to_mutate or getattr(signature, "user_inputs_to_mutate", None):
        raise NotIndependent("it changes its own state")
    nodes = list(program.graph.nodes)
    if len(nodes) > MOST_NODES:
        raise NotIndependent(f"the graph has more than {MOST_NODES} nodes")
    _Reader(set(signature.user_inputs), nodes).check(list(signature.user_outputs))


def _is_number(node: Any) -> bool:
    """Whether a function of Python computes a number. Subgraphs and custom operators return
    tuples or tensors.
    """
    module = getattr(node.target, "__module__", None)
    value = node.meta.get("val")
    symbolic = hasattr(value, "node") and not hasattr(value, "shape")
    return module in _NUMBER_MODULES and (symbolic or isinstance(value, int | float))


class _Reader:
    def __init__(self, inputs: set[str], nodes: Sequence[Any]) -> None:
        self._nodes = nodes
        self._inputs = inputs
        self._known = KnownTensors()

    def check(self, outputs: Sequence[str]) -> None:
        for node in self._nodes:
            if node.op == "placeholder":
                self._known.axes[node.name] = self._placeholder(node)
            elif node.op == "get_attr":
                self._known.axes[node.name] = None
            elif node.op == "call_function":
                self._known.axes[node.name] = self._follow_node(node)
        by_name = {node.name: node for node in self._nodes}
        for name in outputs:
            alone = self._known.repeats.get(name, 1) == 1
            if (
                not alone
                or self._known.axes.get(name) != 0
                or self._known.shape(by_name[name])[0] != Dimension(1, True)
            ):
                raise NotIndependent(f"output {name!r} does not have one entry for each row")

    def _placeholder(self, node: Any) -> Axis:
        if node.name not in self._inputs:
            return None
        first = node.meta["val"].shape[0]
        symbol = getattr(getattr(first, "node", None), "expr", None)
        if symbol is None or not getattr(symbol, "is_Symbol", False):
            raise NotIndependent(f"the number of rows of input {node.name!r} is fixed")
        self._known.batch.add(symbol)
        return 0

    def _follow_node(self, node: Any) -> Axis:
        subject = f"operator {node.target} {node.name!r}"
        try:
            axis = self._axis(node)
            value = node.meta.get("val")
            lost = (
                axis is not None
                and not isinstance(value, list | tuple)
                and not self._known.shape(node)[axis].of_rows
            )
        except NotIndependent as reason:
            raise NotIndependent(f"{subject}: {reason}") from None
        except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise NotIndependent(
                f"{subject} cannot be followed: {type(error).__name__}: {error}"
            ) from error
        if lost:
            raise NotIndependent(f"{subject}: the rows are lost")
        return axis

    def _axis(self, node: Any) -> Axis:
        """The axis of the rows of what a node makes."""
        target = str(node.target)
        kind = kind_of(target)
        arguments = [*node.args, *node.kwargs.values()]
        tensors = self._known.among(arguments)
        if kind in _SIZES or (_is_number(node) and not tensors):
            return None  # a computation with sizes; where one of them is used is what counts
        self._check_keywords(node)
        if target == "<built-in function getitem>":
            return self._known.axes[node.args[0].name]
        self._check_sizes(kind, node, arguments)
        if kind in _FILLED:
            return place_of_rows(self._known.shape(node))
        self._check_target(kind, node)
        if kind == "expand":
            return expand(self._known, node)
        return self._handle(kind, node, self._known.with_rows(tensors))

    def _handle(self, kind: str, node: Any, rows: Sequence[Any]) -> Axis:
        """The axis of the rows of what an operator makes of tensors with ``rows``."""
        handler = HANDLERS.get(kind)
        if handler is None and (rows or kind not in _CONSTANTS):
            raise NotIndependent("it is not known to keep rows apart")
        if handler is None or not rows:
            return None
        repeats = {self._known.repeats.get(each.name, 1) for each in rows}
        if len(repeats) > 1 or (repeats != {1} and kind not in _TAKES_REPEATED):
            raise NotIndependent("rows meet other rows")
        self._known.repeats[node.name] = repeats.pop()
        return handler(self._known, node)

    def _check_target(self, kind: str, node: Any) -> None:
        """Refuse to write into a constant, which would keep what one call wrote for the next."""
        # Names of operators that write into their first argument end so.
        writes = kind.endswith("_") and kind != "detach_"
        if writes and self._known.axes[node.args[0].name] is None:
            raise NotIndependent("it changes a constant")

    def _check_sizes(self, kind: str, node: Any, arguments: Sequence[Any]) -> None:
        """Refuse the number of rows where it is not the size of a tensor."""
        if kind in SHAPED or kind in _FILLED or kind == "expand":
            arguments = [node.args[1]] if kind == "full" else ()
        if self._known.counts_rows(arguments):
            raise NotIndependent("it computes with the number of rows")

    def _check_keywords(self, node: Any) -> None:
        """Refuse a keyword that has a position: the handlers read arguments by their positions."""
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        positional = {each.name for each in arguments if not each.kwarg_only}
        if found := positional & node.kwargs.keys():
            raise NotIndependent(f"argument {min(found)!r} is given by its name")
