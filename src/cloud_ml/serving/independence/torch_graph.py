"""Whether the graph of an exported PyTorch program keeps rows apart.

PyTorch knows the shape of every tensor, with a symbol for the number of rows. So what is followed
is only along which axis the rows of a tensor are: its size must be a multiple of the symbol, and
each row has its own places in sequence.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from cloud_ml.serving.independence.tensor_info import Dimension, NotIndependent, names

ELEMENTWISE = names(
    """
    abs add add_ addcmul asin atan bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min cos div div_ elu
    elu_ eq erf exp expm1 floor full_like ge gelu gt hardsigmoid hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_
    isinf isnan le leaky_relu leaky_relu_ log log1p logical_and logical_not logical_or lt masked_fill maximum minimum
    mish mul mul_ ne neg ones_like pow prelu reciprocal relu relu6 relu6_ relu_ remainder round rsqrt rsub selu sigmoid
    sigmoid_ sign silu silu_ sin softplus sqrt square sub sub_ tan tanh tanh_ where zeros_like
    alias clone contiguous detach detach_ lift_fresh_copy to _to_copy type_as
    """
)
_REPEATED = names("linear addmm mm dropout")
"""Operators that look at each entry of the axis of the rows by itself, in whichever order these
are.
"""
_SHAPED = names("view reshape _unsafe_view flatten unflatten")
_ALONG = names("softmax log_softmax _softmax _log_softmax cumsum")
_REDUCTIONS = names("mean sum amax amin max min argmax argmin logsumexp any all prod var std")
_POOLS = {
    "max_pool1d": 3,
    "max_pool2d": 4,
    "max_pool3d": 5,
    "avg_pool1d": 3,
    "avg_pool2d": 4,
    "avg_pool3d": 5,
    "adaptive_avg_pool1d": 3,
    "adaptive_avg_pool2d": 4,
    "adaptive_avg_pool3d": 5,
    "adaptive_max_pool2d": 4,
    "max_pool2d_with_indices": 4,
    "_adaptive_avg_pool2d": 4,
    "pixel_shuffle": 4,
    "upsample_nearest2d": 4,
    "upsample_bilinear2d": 4,
}
_FILLED = names("zeros ones full")
_CONSTANTS = names("arange tril triu ones scalar_tensor")
"""Operators that may be made of constants, and are looked at no further then."""
_SIZES = names(
    "sym_size sym_constrain_range_for_size _assert_scalar sym_constrain_range "
    "_assert_tensor_metadata"
)
_NUMBER_MODULES = ("_operator", "builtins", "math", "torch")
"""Modules of the functions that compute with sizes."""
MOST_NODES = 200_000

Axis = int | None
"""Along which axis the rows of a tensor are; None for what is the same for every request."""


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


def _kind(target: str) -> str:
    """The name of one of PyTorch's own operators, without its variant; empty for anything else."""
    return target.removeprefix("aten.").partition(".")[0] if target.startswith("aten.") else ""


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
        self._axes: dict[str, Axis] = {}
        self._outer: dict[
            str, int
        ] = {}  # how often the rows are repeated along their axis, where that is not once
        self._batch: set[Any] = set()

    def check(self, outputs: Sequence[str]) -> None:
        for node in self._nodes:
            if node.op == "placeholder":
                self._axes[node.name] = self._placeholder(node)
            elif node.op == "get_attr":
                self._axes[node.name] = None
            elif node.op == "call_function":
                self._axes[node.name] = self._follow_node(node)
        by_name = {node.name: node for node in self._nodes}
        for name in outputs:
            alone = self._outer.get(name, 1) == 1
            if (
                not alone
                or self._axes.get(name) != 0
                or self._shape(by_name[name])[0] != Dimension(1, True)
            ):
                raise NotIndependent(f"output {name!r} does not have one entry for each row")

    def _placeholder(self, node: Any) -> Axis:
        if node.name not in self._inputs:
            return None
        first = node.meta["val"].shape[0]
        symbol = getattr(getattr(first, "node", None), "expr", None)
        if symbol is None or not getattr(symbol, "is_Symbol", False):
            raise NotIndependent(f"the number of rows of input {node.name!r} is fixed")
        self._batch.add(symbol)
        return 0

    def _follow_node(self, node: Any) -> Axis:
        told = f"operator {node.target} {node.name!r}"
        try:
            axis = self._axis(node)
            value = node.meta.get("val")
            lost = (
                axis is not None
                and not isinstance(value, list | tuple)
                and not self._shape(node)[axis].of_rows
            )
        except NotIndependent as reason:
            raise NotIndependent(f"{told}: {reason}") from None
        except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise NotIndependent(
                f"{told} cannot be followed: {type(error).__name__}: {error}"
            ) from error
        if lost:
            raise NotIndependent(f"{told}: the rows are lost")
        return axis

    # --- what is known of arguments ---

    def _dim(self, size: Any) -> Dimension:
        expression = getattr(getattr(size, "node", None), "expr", size)
        if isinstance(expression, int):
            return Dimension(expression)
        found = self._batch & expression.free_symbols
        if not found:
            return Dimension(int(expression)) if expression.is_Integer else Dimension(None)
        factor = expression.coeff(next(iter(found)))
        if len(found) > 1 or not factor.is_Integer or expression - factor * next(iter(found)) != 0:
            raise NotIndependent(
                f"a size is {expression}, which is no multiple of the number of rows"
            )
        return Dimension(int(factor), True)

    def _shape(self, node: Any) -> list[Dimension]:
        shape = [self._dim(size) for size in node.meta["val"].shape]
        if sum(size.of_rows for size in shape) > 1:
            raise NotIndependent("two dimensions depend on the number of rows")
        return shape

    def _tensors(self, value: Any) -> list[Any]:
        """The tensors among arguments, in order."""
        if isinstance(value, list | tuple):
            return [each for part in value for each in self._tensors(part)]
        if hasattr(value, "meta") and hasattr(value.meta.get("val"), "shape"):
            return [value]
        return []

    def _counts_rows(self, value: Any) -> bool:
        """Whether an argument is computed from the number of rows."""
        if isinstance(value, list | tuple):
            return any(self._counts_rows(each) for each in value)
        if hasattr(value, "meta") and not hasattr(value.meta.get("val"), "shape"):
            value = value.meta.get("val")
        expression = getattr(getattr(value, "node", None), "expr", None)
        return expression is not None and bool(self._batch & expression.free_symbols)

    def _rows(self, tensors: Sequence[Any]) -> list[Any]:
        return [each for each in tensors if self._axes[each.name] is not None]

    def _end(self, node: Any) -> int:
        """The place of the rows counted from the last dimension."""
        axis = self._axes[node.name]
        assert axis is not None
        return len(node.meta["val"].shape) - axis

    # --- operators ---

    def _axis(self, node: Any) -> Axis:
        target = str(node.target)
        kind = _kind(target)
        arguments = [*node.args, *node.kwargs.values()]
        tensors = self._tensors(arguments)
        if kind in _SIZES or (_is_number(node) and not tensors):
            return None  # a computation with sizes; where one of them is used is what counts
        self._check_keywords(node)
        if target == "<built-in function getitem>":
            return self._axes[node.args[0].name]
        self._check_sizes(kind, node, arguments)
        if kind in _FILLED:
            return next(
                (place for place, size in enumerate(self._shape(node)) if size.of_rows), None
            )
        # Names of operators that write into their first argument end so. A constant would keep what
        # one call wrote for the next one.
        if kind.endswith("_") and kind != "detach_" and self._axes[node.args[0].name] is None:
            raise NotIndependent("it changes a constant")
        handler = self._handler(kind)
        if kind == "expand":
            return self._expand(node)
        rows = self._rows(tensors)
        if handler is None and (rows or kind not in _CONSTANTS):
            raise NotIndependent("it is not known to keep rows apart")
        if handler is None or not rows:
            return None
        outer = {self._outer.get(each.name, 1) for each in rows}
        if len(outer) > 1 or (outer != {1} and kind not in ELEMENTWISE | _SHAPED | _REPEATED):
            raise NotIndependent("rows meet other rows")
        self._outer[node.name] = outer.pop()
        return handler(node)

    def _check_sizes(self, kind: str, node: Any, arguments: Sequence[Any]) -> None:
        """Refuse the number of rows where it is not the size of a tensor."""
        if kind in _SHAPED or kind in _FILLED or kind == "expand":
            arguments = [node.args[1]] if kind == "full" else ()
        if self._counts_rows(arguments):
            raise NotIndependent("it computes with the number of rows")

    def _check_keywords(self, node: Any) -> None:
        """Refuse a keyword that has a position: the handlers read arguments by their positions."""
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        positional = {each.name for each in arguments if not each.kwarg_only}
        if found := positional & node.kwargs.keys():
            raise NotIndependent(f"argument {min(found)!r} is given by its name")

    def _handler(self, kind: str) -> "Callable[[Any], Axis] | None":
        if kind in ELEMENTWISE:
            return self._align_axes
        if kind in _SHAPED:
            return self._reshape
        if kind in _ALONG:
            return self._along
        if kind in _REDUCTIONS:
            return self._reduce
        if kind in _POOLS:
            return self._pool
        return {
            "linear": self._linear,
            "matmul": self._matmul,
            "bmm": self._matmul,
            "mm": self._matmul,
            "addmm": self._addmm,
            "scaled_dot_product_attention": self._attention,
            "dropout": self._dropout,
            "layer_norm": self._layer_norm,
            "group_norm": self._images,
            "batch_norm": self._batch_norm,
            "conv1d": self._convolution,
            "conv2d": self._convolution,
            "conv3d": self._convolution,
            "convolution": self._convolution,
            "embedding": self._embedding,
            "transpose": self._transpose,
            "permute": self._permute,
            "t": self._transpose,
            "unsqueeze": self._unsqueeze,
            "squeeze": self._squeeze,
            "select": self._select,
            "slice": self._slice,
            "index_select": self._chosen,
            "split": self._parts,
            "split_with_sizes": self._parts,
            "chunk": self._parts,
            "cat": self._cat,
            "constant_pad_nd": self._pad,
            "topk": self._top_k,
            "sort": self._top_k,
        }.get(kind)

    def _one(self, node: Any) -> tuple[int, int]:
        """The axis of the rows of the first argument, which alone has rows, and its rank."""
        first = node.args[0]
        axis = self._axes[first.name]
        if axis is None or self._rows(self._tensors([*node.args[1:], *node.kwargs.values()])):
            raise NotIndependent("a parameter of it is made of rows")
        return axis, len(first.meta["val"].shape)

    def _align_axes(self, node: Any) -> Axis:
        tensors = self._tensors([*node.args, *node.kwargs.values()])
        ends = {self._end(each) for each in self._rows(tensors)}
        sizes = {self._shape(each)[-self._end(each)] for each in self._rows(tensors)}
        if len(ends) != 1 or len(sizes) != 1:
            raise NotIndependent("rows meet another dimension than rows")
        end = ends.pop()
        self._check_constants(tensors, end)
        return len(node.meta["val"].shape) - end

    def _check_constants(self, tensors: Sequence[Any], end: int) -> None:
        for each in tensors:
            shape = self._shape(each)
            if self._axes[each.name] is None and len(shape) >= end and shape[-end] != Dimension(1):
                raise NotIndependent("a constant has a value for each place among the rows")

    def _reshape(self, node: Any) -> Axis:
        axis, _ = self._one(node)
        before, after = self._shape(node.args[0]), self._shape(node)
        place = next((place for place, size in enumerate(after) if size.of_rows), None)
        if place is None:
            raise NotIndependent("the rows are lost")
        outer, left = self._outer.get(node.args[0].name, 1), [*before[:axis], *after[:place]]
        if any(each.factor is None for each in left) or after[place].factor is None:
            raise NotIndependent("a size is not known")
        # In memory the whole sequence of rows comes as often as the dimensions before it say. What
        # of that is not in dimensions before the new axis is repeated along that axis.
        outer *= prod(each.factor or 0 for each in before[:axis])
        outside = prod(each.factor or 0 for each in after[:place])
        if not outside or outer % outside or (after[place].factor or 0) % (outer // outside):
            raise NotIndependent("numbers together may belong to different rows")
        self._outer[node.name] = outer // outside
        return place

    def _dims(self, value: Any, rank: int) -> list[int]:
        dims = value if isinstance(value, list | tuple) else [value]
        return [dim % rank for dim in dims]

    def _along(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if axis in self._dims(node.args[1], rank):
            raise NotIndependent("it works along the rows")
        return axis

    def _reduce(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        # ``std(x, unbiased)`` has a truth value in this place, and reduces everything.
        if dims is None or dims == [] or isinstance(dims, bool):
            raise NotIndependent("it reduces over the rows")
        gone = self._dims(dims, rank)
        if axis in gone:
            raise NotIndependent("it reduces over the rows")
        value = node.meta["val"]
        made = value[0] if isinstance(value, list | tuple) else value
        kept = len(made.shape) == rank
        return axis if kept else axis - sum(dim < axis for dim in gone)

    def _pool(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        kind = _kind(str(node.target))
        if axis != 0 or rank != _POOLS[kind]:
            raise NotIndependent("its input has no rows")
        return 0

    def _linear(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if axis == rank - 1:
            raise NotIndependent("it adds over the rows")
        return axis

    def _matmul(self, node: Any) -> Axis:
        one, two = node.args[:2]
        ranks = [len(each.meta["val"].shape) for each in (one, two)]
        rows = self._rows([one, two])
        if min(ranks) < 2:
            raise NotIndependent("a product with a vector")
        if len(rows) == 2:
            if self._end(one) != self._end(two) or self._end(one) < 3:
                raise NotIndependent("it adds over the rows, or pairs them with another dimension")
            return len(node.meta["val"].shape) - self._end(one)
        end = self._end(rows[0])
        if (rows[0] is one and end == 1) or (rows[0] is two and end < 3):
            raise NotIndependent("it adds over the rows")
        if end >= 3:
            self._check_constants([one, two], end)
        elif max(ranks) != ranks[0] or ranks[1] > 2:
            raise NotIndependent("a matrix of rows meets several matrices")
        return len(node.meta["val"].shape) - end

    def _addmm(self, node: Any) -> Axis:
        bias, one, two = node.args[:3]
        if self._rows([bias, two]) or self._axes[one.name] != 0 or len(bias.meta["val"].shape) > 1:
            raise NotIndependent("a parameter of it is made of rows")
        return 0

    def _attention(self, node: Any) -> Axis:
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        tensors = self._tensors([*node.args, *node.kwargs.values()])
        if len(self._rows(node.args[:3])) != 3 or dropout:
            raise NotIndependent("it is random, or a part of it is a constant")
        ends = {self._end(each) for each in self._rows(tensors)}
        # The last two dimensions are those of tokens and features.
        if len(ends) != 1 or min(ends) < 3:
            raise NotIndependent("rows attend to each other")
        end = ends.pop()
        self._check_constants(tensors, end)
        return len(node.meta["val"].shape) - end

    def _dropout(self, node: Any) -> Axis:
        axis, _ = self._one(node)
        if node.args[2] is not False:
            raise NotIndependent("it is in training mode")
        return axis

    def _layer_norm(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if axis >= rank - len(node.args[1]):
            raise NotIndependent("it normalises over the rows")
        return axis

    def _images(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if axis != 0 or rank < 2:
            raise NotIndependent("its input has no rows")
        return 0

    def _batch_norm(self, node: Any) -> Axis:
        if node.args[5] is not False:
            raise NotIndependent("it is in training mode, which normalises over the rows")
        return self._images(node)

    def _convolution(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if axis != 0 or rank != len(node.args[1].meta["val"].shape):
            raise NotIndependent("its input has no rows")
        return 0

    def _embedding(self, node: Any) -> Axis:
        if self._axes[node.args[0].name] is not None:
            raise NotIndependent("it takes some of the rows")
        return self._axes[node.args[1].name]

    def _transpose(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        # ``t`` names no dimensions, and leaves vectors and single numbers as they are.
        one, two = self._dims(node.args[1:3] or [0, 1], rank) if rank > 1 else (0, 0)
        return {one: two, two: one}.get(axis, axis)

    def _permute(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        return self._dims(node.args[1], rank).index(axis)

    def _unsqueeze(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        # The new dimension is counted among those of the result.
        return axis + int(node.args[1] % (rank + 1) <= axis)

    def _squeeze(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        gone = self._dims(node.args[1], rank)
        if axis in gone:
            raise NotIndependent("the dimension of the rows goes where there is one row")
        sizes = self._shape(node.args[0])
        if any(sizes[dim].factor is None for dim in gone):
            raise NotIndependent("whether a dimension goes is not known")
        return axis - sum(dim < axis and sizes[dim] == Dimension(1) for dim in set(gone))

    def _select(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        dim = node.args[1] % rank
        if dim == axis:
            raise NotIndependent("it takes some of the rows")
        return axis - int(dim < axis)

    def _slice(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        bounds: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
        dim, start, end, step = bounds
        # PyTorch writes ``sys.maxsize`` for an open end.
        everything = start in (0, None) and (end is None or end >= (1 << 62)) and step == 1
        if dim % rank == axis and not everything:
            raise NotIndependent("it takes some of the rows")
        return axis

    def _chosen(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        if node.args[1] % rank == axis:
            raise NotIndependent("it takes some of the rows")
        return axis

    def _parts(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        if dim % rank == axis:
            raise NotIndependent("it takes some of the rows")
        return axis

    def _top_k(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        # ``topk(x, k, dim)``, but ``sort(x, dim)``.
        place = 2 if "topk" in str(node.target) else 1
        dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", -1)
        if dim % rank == axis:
            raise NotIndependent("it works along the rows")
        return axis

    def _cat(self, node: Any) -> Axis:
        tensors = node.args[0]
        axes = {self._axes[each.name] for each in tensors}
        rank = len(tensors[0].meta["val"].shape)
        dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % rank
        axis = next(iter(axes))
        if len(axes) != 1 or axis == dim:
            raise NotIndependent(
                "it puts tensors one after the other along the rows, or a constant beside them"
            )
        return axis

    def _pad(self, node: Any) -> Axis:
        axis, rank = self._one(node)
        # Two numbers for each dimension, beginning with the last one.
        if axis >= rank - len(node.args[1]) // 2:
            raise NotIndependent("it puts something before or behind the rows")
        return axis

    def _expand(self, node: Any) -> Axis:
        first, shape = node.args[0], self._shape(node)
        place = next((place for place, size in enumerate(shape) if size.of_rows), None)
        if self._axes[first.name] is not None:
            self._outer[node.name] = self._outer.get(first.name, 1)
            return len(shape) - self._end(first)
        if place is not None:
            self._check_constants([first], len(shape) - place)
        return place
