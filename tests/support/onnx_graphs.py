"""Small ONNX models: some mix their rows in one way or another, some keep them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Made = tuple[list[onnx.NodeProto], dict[str, Any]]
Graphs = dict[str, Callable[[], onnx.ModelProto]]

node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any] | None = None,
    *,
    shape: tuple[int, ...] = (4,),
    out: tuple[int | str, ...] | None = None,
    dtype: int = FLOAT,
    out_dtype: int | None = None,
    opset: int = 17,
    inputs: tuple[str, ...] = ("x",),
    ml: bool = False,
) -> onnx.ModelProto:
    """A model whose inputs ``x`` … have rows of ``shape`` and whose output ``y`` has rows of
    ``out``.
    """
    given = [helper.make_tensor_value_info(name, dtype, ["rows", *shape]) for name in inputs]
    back = helper.make_tensor_value_info(
        "y", out_dtype or dtype, ["rows", *(shape if out is None else out)]
    )
    arrays = {
        key: np.asarray(value) if isinstance(value, np.ndarray) else np.array(value)
        for key, value in (constants or {}).items()
    }
    weights = [
        numpy_helper.from_array(each.astype(np.float32) if each.dtype == np.float64 else each, key)
        for key, each in arrays.items()
    ]
    graph = helper.make_graph(nodes, "g", given, [back], weights)
    sets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


def _inner(kind: str, given: str, made: str, **options: Any) -> onnx.GraphProto:
    """A graph of one node, for control flow."""
    body = node(kind, [given], [made], **options)
    return helper.make_graph([body], "b", [], [helper.make_tensor_value_info(made, FLOAT, None)])


def _scan() -> onnx.ModelProto:
    """A running sum over the rows."""
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["s2"]), node("Identity", ["s2"], ["o"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("s", "e")],
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("s2", "o")],
    )
    return model(
        [node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1)],
        {"zero": np.zeros(4)},
    )


def _loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("Identity", ["c"], ["c2"]),
            node("ReduceMean", ["v"], ["m"], axes=[0], keepdims=1),
            node("Add", ["v", "m"], ["v2"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v2", FLOAT, None),
        ],
    )
    return model(
        [node("Loop", ["n", "t", "x"], ["y"], body=body)], {"n": np.int64(2), "t": np.bool_(True)}
    )


def _function() -> onnx.ModelProto:
    """A function of the model, called by another one."""
    made = model([node("Outer", ["x"], ["y"], domain="own")])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    outer = helper.make_function(
        "own", "Outer", ["a"], ["b"], [node("Centre", ["a"], ["b"], domain="own")], sets
    )
    centre = helper.make_function(
        "own",
        "Centre",
        ["a"],
        ["b"],
        [node("ReduceMean", ["a"], ["m"], axes=[0], keepdims=1), node("Sub", ["a", "m"], ["b"])],
        sets,
    )
    made.functions.extend([centre, outer])
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def _shadowed() -> onnx.ModelProto:
    """A function of the model that has the name of an operator of ONNX."""
    made = model([node("Relu", ["x"], ["y"])])
    sets = [helper.make_opsetid("", 17)]
    nodes = [node("ReduceMean", ["a"], ["m"], axes=[0], keepdims=1), node("Sub", ["a", "m"], ["b"])]
    made.functions.append(helper.make_function("", "Relu", ["a"], ["b"], nodes, sets))
    return made


def _attention_across() -> onnx.ModelProto:
    """Every row attends to all others."""
    return model(
        [
            node("Transpose", ["x"], ["k"], perm=[1, 0]),
            node("MatMul", ["x", "k"], ["s"]),
            node("Softmax", ["s"], ["a"], axis=-1),
            node("MatMul", ["a", "x"], ["y"]),
        ]
    )


def _count(then: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Something made of the number of rows."""
    start = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0)]
    return model([*start, *then], {"zero": np.int64(0), "one": np.int64(1), "axes": np.array([0])})


def _as_float() -> list[onnx.NodeProto]:
    return [node("Cast", ["n"], ["f"], to=FLOAT), node("Mul", ["x", "f"], ["y"])]


def _classifier(transform: str) -> onnx.ModelProto:
    return model(
        [
            node(
                "LinearClassifier",
                ["x"],
                ["label", "y"],
                domain="ai.onnx.ml",
                coefficients=[0.1, 0.2, 0.3, 0.4],
                intercepts=[0.5],
                classlabels_ints=[0, 1],
                post_transform=transform,
            )
        ],
        out=(2,),
        ml=True,
    )


def _looked_up(nodes: list[onnx.NodeProto], constants: dict[str, Any]) -> onnx.ModelProto:
    """A softmax of entries of ``t2``, which the nodes make of the table ``t``: by an axis
    counted from the end.
    """
    then = [node("Gather", ["t2", "x"], ["g"]), node("Softmax", ["g"], ["y"], axis=-2)]
    table = np.random.default_rng(0).standard_normal((5, 4))
    return model(
        [*nodes, *then], {"t": table, **constants}, dtype=INT64, out_dtype=FLOAT, shape=(), out=(4,)
    )


def _summed(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], **options: Any
) -> onnx.ModelProto:
    """A cumulative sum along an axis ``a`` that the nodes compute, which is 0."""
    return model([*nodes, node("CumSum", ["x", "a"], ["y"])], constants, **options)


def _bool_of_two() -> onnx.ModelProto:
    made = _summed(
        [node("Cast", ["b"], ["c"], to=INT64), node("Sub", ["c", "one"], ["a"])],
        {"one": np.int64(1)},
    )
    made.graph.initializer.append(
        onnx.TensorProto(name="b", data_type=TensorProto.BOOL, raw_data=b"\x02")
    )
    return made


MIXES: Graphs = {
    "places of an unknown rank": lambda: model(
        [
            node("Tile", ["places", "once"], ["i"]),
            node("Gather", ["x", "i"], ["g"], axis=1),
            node("ReduceMax", ["x"], ["h"], axes=[1], keepdims=0),
            node("Add", ["g", "h"], ["s"]),
            node("ReduceMax", ["s"], ["y"], axes=[1], keepdims=0),
        ],
        {"places": np.array([0]), "once": np.array([1])},
        shape=(4, 3),
        out=(3,),
    ),
    "a pooling whose size is another one": lambda: _summed(
        [
            node("MaxPool", ["x"], ["p"], auto_pad="SAME_UPPER", dilations=[2], kernel_shape=[4]),
            node("Shape", ["p"], ["s"]),
            node("Gather", ["s", "two"], ["d"]),
            node("Sub", ["d", "five"], ["e"]),
            node("Div", ["e", "three"], ["a"]),
        ],
        {"two": np.int64(2), "five": np.int64(5), "three": np.int64(3)},
        shape=(3, 8),
        opset=18,
    ),
    "numbers taken backwards": lambda: _summed(
        [
            node("Slice", ["c", "from", "to", "zero", "step"], ["q"]),
            node("Shape", ["q"], ["n"]),
            node("Sub", ["one", "n"], ["a"]),
        ],
        {
            "c": np.array([7, 8]),
            "from": np.array([-5]),
            "to": np.array([-(1 << 62)]),
            "zero": np.array([0]),
            "step": np.array([-1]),
            "one": np.array([1]),
        },
    ),
    "as many features as an attribute says": lambda: _summed(
        [
            node("FeatureVectorizer", ["x"], ["c"], domain="ai.onnx.ml", inputdimensions=[3]),
            node("Shape", ["c"], ["s"]),
            node("Gather", ["s", "one"], ["d"]),
            node("Sub", ["d", "three"], ["a"]),
        ],
        {"one": np.int64(1), "three": np.int64(3)},
        ml=True,
    ),
    "a product over no axes": lambda: _summed(
        [
            node("ReduceProd", ["s"], ["p"], noop_with_empty_axes=1),
            node("Gather", ["p", "zero"], ["q"]),
            node("Sub", ["q", "one"], ["a"]),
        ],
        {"s": np.array([1, 2]), "zero": np.int64(0), "one": np.int64(1)},
        opset=18,
    ),
    "a number cut to 32 bits": lambda: _summed(
        [
            node("Cast", ["c"], ["d"], to=TensorProto.INT32),
            node("Cast", ["d"], ["e"], to=INT64),
            node("Div", ["e", "c"], ["a"]),
        ],
        {"c": np.int64(1 << 32)},
    ),
    "a product beyond 64 bits": lambda: _summed(
        [
            node("Mul", ["c", "c"], ["d"]),
            node("Div", ["d", "c"], ["e"]),
            node("Div", ["e", "c"], ["a"]),
        ],
        {"c": np.int64(1 << 32)},
    ),
    "a sum beyond 32 bits": lambda: _summed(
        [
            node("Mul", ["c", "four"], ["d"]),
            node("Div", ["d", "c"], ["e"]),
            node("Div", ["e", "four"], ["a"]),
        ],
        {"c": np.int32(1 << 30), "four": np.int32(4)},
    ),
    "a truth value of two": _bool_of_two,
    "a table cast like a tensor of a higher rank": lambda: _looked_up(
        [node("CastLike", ["t", "k"], ["t2"])], {"k": np.zeros((1, 1, 1))}
    ),
    "a table normalised with a scale of a higher rank": lambda: _looked_up(
        [node("LayerNormalization", ["t", "k"], ["t2"])], {"k": np.ones((1, 1, 4))}
    ),
    "a limit of a higher rank than what it limits": lambda: model(
        [
            node("Clip", ["place", "low"], ["p"]),
            node("Gather", ["x", "p"], ["g"], axis=1),
            node("Softmax", ["g"], ["y"], axis=-2),
        ],
        {"place": np.int64(0), "low": np.array([0])},
        shape=(4, 3),
        out=(3,),
    ),
    "softmax over the rows": lambda: model([node("Softmax", ["x"], ["y"], axis=0)]),
    "softmax over the rows, counted from the end": lambda: model(
        [node("Softmax", ["x"], ["y"], axis=-2)]
    ),
    "log softmax over the rows": lambda: model([node("LogSoftmax", ["x"], ["y"], axis=0)]),
    "softmax of single numbers": lambda: model([node("Softmax", ["x"], ["y"], axis=-1)], shape=()),
    "batch norm in training mode": lambda: model(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1)],
        {key: np.ones(4) for key in "sbmv"},
    ),
    "cumulative sum": lambda: model([node("CumSum", ["x", "a"], ["y"])], {"a": np.int64(0)}),
    "cumulative sum, counted from the end": lambda: model(
        [node("CumSum", ["x", "a"], ["y"])], {"a": np.int64(-2)}
    ),
    "reduce mean": lambda: model(
        [node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), node("Sub", ["x", "m"], ["y"])]
    ),
    "reduce all": lambda: model(
        [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Div", ["x", "m"], ["y"])]
    ),
    "reduce by an input": lambda: model(
        [node("ReduceSum", ["x", "a"], ["m"], keepdims=1), node("Sub", ["x", "m"], ["y"])],
        {"a": np.array([0])},
    ),
    "mean and variance": lambda: model(
        [node("MeanVarianceNormalization", ["x"], ["y"])], shape=(3, 2, 2)
    ),
    "l2 over the rows": lambda: model([node("LpNormalization", ["x"], ["y"], axis=0)]),
    "attention across rows": _attention_across,
    "gram matrix by gemm": lambda: model(
        [node("Gemm", ["x", "x"], ["s"], transB=1), node("MatMul", ["s", "x"], ["y"])]
    ),
    "sum over rows by gemm": lambda: model(
        [node("Gemm", ["x", "x"], ["s"], transA=1), node("MatMul", ["x", "s"], ["y"])]
    ),
    "einsum over the rows": lambda: model(
        [node("Einsum", ["x", "x"], ["s"], equation="bi,bj->ij"), node("MatMul", ["x", "s"], ["y"])]
    ),
    "einsum of all pairs": lambda: model(
        [node("Einsum", ["x", "x", "x"], ["y"], equation="bi,ci,cj->bj")]
    ),
    "transpose and back around a reduction": lambda: model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("Softmax", ["t"], ["s"], axis=-1),
            node("Transpose", ["s"], ["y"], perm=[1, 0]),
        ]
    ),
    "flatten all": lambda: model(
        [
            node("Flatten", ["x"], ["f"], axis=0),
            node("Softmax", ["f"], ["s"], axis=-1),
            node("Reshape", ["s", "back"], ["y"]),
        ],
        {"back": np.array([-1, 4])},
    ),
    "reshape across rows": lambda: model(
        [
            node("Reshape", ["x", "pairs"], ["p"]),
            node("Softmax", ["p"], ["s"], axis=-1),
            node("Reshape", ["s", "back"], ["y"]),
        ],
        {"pairs": np.array([-1, 8]), "back": np.array([-1, 4])},
    ),
    "reshape to one": lambda: model(
        [
            node("Reshape", ["x", "one"], ["p"]),
            node("ReduceSum", ["p"], ["m"], keepdims=0),
            node("Sub", ["x", "m"], ["y"]),
        ],
        {"one": np.array([1, -1])},
    ),
    "gather by a constant row": lambda: model(
        [node("Gather", ["x", "i"], ["r"], axis=0), node("Sub", ["x", "r"], ["y"])],
        {"i": np.array([0])},
    ),
    "gather rows by values": lambda: model(
        [node("Gather", ["x", "k"], ["y"], axis=0)], dtype=INT64, shape=(), inputs=("x", "k")
    ),
    "gather elements of other rows": lambda: model(
        [
            node("ArgMax", ["x"], ["i"], axis=0, keepdims=1),
            node("GatherElements", ["x", "i"], ["r"], axis=0),
            node("Sub", ["x", "r"], ["y"]),
        ]
    ),
    "gather nd": lambda: model(
        [node("GatherND", ["x", "i"], ["r"]), node("Sub", ["x", "r"], ["y"])], {"i": np.array([0])}
    ),
    "slice of rows": lambda: model(
        [node("Slice", ["x", "s", "e"], ["r"]), node("Sub", ["x", "r"], ["y"])],
        {"s": np.array([0]), "e": np.array([1])},
    ),
    "reversed": lambda: model(
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        {"s": np.array([-1]), "e": np.array([-(2**62)]), "a": np.array([0]), "t": np.array([-1])},
    ),
    "unique": lambda: model(
        [
            node("Unique", ["x"], ["u"], axis=0),
            node("ReduceSum", ["u"], ["m"], keepdims=0),
            node("Sub", ["x", "m"], ["y"]),
        ]
    ),
    "top k over the rows": lambda: model(
        [node("TopK", ["x", "k"], ["v", "i"], axis=0), node("Sub", ["x", "v"], ["y"])],
        {"k": np.array([1])},
    ),
    "sorted over the rows": lambda: _count(
        [node("Unsqueeze", ["n", "axes"], ["k"]), node("TopK", ["x", "k"], ["y", "i"], axis=0)]
    ),
    "arg max over the rows": lambda: model(
        [
            node("ArgMax", ["x"], ["i"], axis=0),
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Sub", ["x", "f"], ["y"]),
        ]
    ),
    "non zero": lambda: model(
        [
            node("NonZero", ["x"], ["i"]),
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("ReduceSum", ["f"], ["m"], keepdims=0),
            node("Sub", ["x", "m"], ["y"]),
        ]
    ),
    "concat over the rows": lambda: model(
        [
            node("Concat", ["x", "x"], ["c"], axis=0),
            node("ReduceMean", ["c"], ["m"], axes=[0], keepdims=1),
            node("Sub", ["x", "m"], ["y"]),
        ]
    ),
    "split of rows": lambda: model(
        [
            node("Split", ["x", "sizes"], ["a"], axis=0),
            node("ReduceMax", ["a"], ["m"], keepdims=0),
            node("Sub", ["x", "m"], ["y"]),
        ],
        {"sizes": np.array([1])},
    ),
    "a constant for each place": lambda: model(
        [node("Add", ["x", "c"], ["y"])], {"c": np.arange(12.0).reshape(3, 4)}
    ),
    "a matrix for each place": lambda: model(
        [node("MatMul", ["x", "c"], ["y"])], {"c": np.arange(48.0).reshape(3, 4, 4)}, shape=(1, 4)
    ),
    "ranks aligned at the end": lambda: model(
        [node("ReduceSum", ["x"], ["s"], axes=[1], keepdims=0), node("Add", ["x", "s"], ["y"])],
        shape=(1,),
        opset=12,
    ),
    "squeeze of whatever is one": lambda: model(
        [
            node("Squeeze", ["x"], ["s"]),
            node("Softmax", ["s"], ["t"], axis=0),
            node("Reshape", ["t", "back"], ["y"]),
        ],
        {"back": np.array([-1, 4])},
    ),
    "unsqueeze before the rows": lambda: model(
        [
            node("Unsqueeze", ["x", "a"], ["u"]),
            node("Softmax", ["u"], ["s"], axis=1),
            node("Squeeze", ["s", "a"], ["y"]),
        ],
        {"a": np.array([0])},
    ),
    "padding before the rows": lambda: model(
        [node("Pad", ["x", "p"], ["q"]), node("Slice", ["q", "s", "e"], ["y"])],
        {"p": np.array([1, 0, 0, 0]), "s": np.array([0]), "e": np.array([-1])},
    ),
    "random normal": lambda: model(
        [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]
    ),
    "random uniform": lambda: model(
        [node("RandomUniformLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]
    ),
    "bernoulli": lambda: model([node("Sigmoid", ["x"], ["p"]), node("Bernoulli", ["p"], ["y"])]),
    "dropout in training mode": lambda: model(
        [node("Dropout", ["x", "r", "t"], ["y"])], {"r": np.float32(0.5), "t": np.bool_(True)}
    ),
    "number of rows as a value": lambda: _count(_as_float()),
    "size as a value": lambda: model([node("Size", ["x"], ["n"]), *_as_float()]),
    "place among the rows": lambda: model(
        [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Squeeze", ["s"], ["n"]),
            node("Range", ["zero", "n", "one"], ["r"]),
            node("Unsqueeze", ["r", "last"], ["c"]),
            node("Cast", ["c"], ["f"], to=FLOAT),
            node("Add", ["x", "f"], ["y"]),
        ],
        {"zero": np.int64(0), "one": np.int64(1), "last": np.array([1])},
    ),
    "number of rows through a squeeze": lambda: model(
        [node("Shape", ["x"], ["s"], start=0, end=1), node("Squeeze", ["s"], ["n"]), *_as_float()]
    ),
    "number of rows as a count of the best": lambda: _count(
        [
            node("Unsqueeze", ["n", "axes"], ["k"]),
            node("Min", ["k", "one"], ["k1"]),
            node("TopK", ["x", "k1"], ["v", "i"], axis=1),
            node("Sub", ["x", "v"], ["y"]),
        ]
    ),
    "dynamic quantization": lambda: model(
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ]
    ),
    "if": lambda: model(
        [
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "c"], ["g"]),
            node(
                "If",
                ["g"],
                ["y"],
                then_branch=_inner("Neg", "x", "t"),
                else_branch=_inner("Identity", "x", "e"),
            ),
        ],
        {"c": np.float32(1)},
    ),
    "loop": _loop,
    "scan": _scan,
    "functions in each other": _function,
    "a function by the name of an operator": _shadowed,
    "reverse sequence over the rows": lambda: model(
        [node("ReverseSequence", ["x", "n"], ["y"], batch_axis=1, time_axis=0)],
        {"n": np.array([1, 1, 1, 1])},
    ),
    "scatter into a row": lambda: model(
        [node("ScatterElements", ["x", "i", "u"], ["y"], axis=0)],
        {"i": np.array([[0, 0, 0, 0]]), "u": np.ones((1, 4))},
    ),
    "rows as a recurrence": lambda: model(
        [
            node("RNN", ["x", "w", "r"], ["", "h"], hidden_size=4),
            node("ReduceSum", ["h"], ["m"], keepdims=0),
            node("Add", ["x", "m"], ["y"]),
        ],
        {"w": np.ones((1, 4, 2)), "r": np.ones((1, 4, 4))},
        shape=(1, 2),
    ),
    "convolution over the rows": lambda: model(
        [
            node("Unsqueeze", ["x", "a"], ["u"]),
            node("Unsqueeze", ["u", "a"], ["v"]),
            node("Conv", ["v", "k"], ["c"], pads=[1, 0, 1, 0]),
            node("Squeeze", ["c", "b"], ["y"]),
        ],
        {"a": np.array([0]), "b": np.array([0, 1]), "k": np.ones((1, 1, 3, 1))},
    ),
    "pooling over the rows": lambda: model(
        [
            node("Unsqueeze", ["x", "a"], ["u"]),
            node("Transpose", ["u"], ["t"], perm=[0, 2, 1]),
            node("MaxPool", ["t"], ["p"], kernel_shape=[3], pads=[1, 1]),
            node("Transpose", ["p"], ["q"], perm=[0, 2, 1]),
            node("Squeeze", ["q", "a"], ["y"]),
        ],
        {"a": np.array([0])},
    ),
    "places of a pooling in the whole tensor": lambda: model(
        [
            node("MaxPool", ["x"], ["p", "i"], kernel_shape=[1]),
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Add", ["x", "f"], ["y"]),
        ],
        shape=(1, 4),
    ),
    "compress": lambda: model(
        [node("Compress", ["x", "c"], ["r"], axis=0), node("Sub", ["x", "r"], ["y"])],
        {"c": np.array([True])},
    ),
    "tile": lambda: model(
        [
            node("Tile", ["x", "t"], ["r"]),
            node("ReduceSum", ["r"], ["m"], keepdims=0),
            node("Add", ["x", "m"], ["y"]),
        ],
        {"t": np.array([2, 1])},
    ),
    "one hot of the rows": lambda: model(
        [
            node("OneHot", ["x", "d", "v"], ["o"], axis=0),
            node("Transpose", ["o"], ["y"], perm=[1, 0]),
        ],
        {"d": np.int64(4), "v": np.array([0, 1])},
        dtype=INT64,
        shape=(),
        out=(4,),
    ),
    "triangle of the rows": lambda: model([node("Trilu", ["x"], ["y"])]),
}
"""Models whose rows influence each other, or that are no functions of rows: by what they do."""
UNSTABLE: Graphs = {"probit": lambda: _classifier("PROBIT")}
"""Models for which the runtime answers with what happens to lie in memory, which may be of
another row.
"""


def _attention() -> onnx.ModelProto:
    """A layer of a transformer: attention inside each row, by heads, with sizes that are
    computed.
    """
    random = np.random.default_rng(0)
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Gather", ["s", "one"], ["t"], axis=0),
    ]
    nodes += [node("Unsqueeze", [each, "first"], [f"{each}1"]) for each in "bt"]
    nodes.append(node("Concat", ["b1", "t1", "heads"], ["split"], axis=0))
    for each, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["x", f"w{each}"], [f"{each}1"]),
            node("Add", [f"{each}1", "bias"], [f"{each}2"]),
            node("Reshape", [f"{each}2", "split"], [f"{each}3"]),
            node("Transpose", [f"{each}3"], [each], perm=order),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Concat", ["b1", "t1", "width"], ["whole"], axis=0),
        node("Reshape", ["back", "whole"], ["joined"]),
        node("Add", ["joined", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "gain", "bias"], ["normed"]),
        node("MatMul", ["normed", "wf"], ["wide"]),
        node("Erf", ["wide"], ["act"]),
        node("MatMul", ["act", "wb"], ["y"]),
    ]
    weights = {f"w{each}": random.standard_normal((8, 8)) for each in "qkv"}
    weights |= {
        "wf": random.standard_normal((8, 16)),
        "wb": random.standard_normal((16, 8)),
        "bias": np.ones(8),
        "gain": np.ones(8),
    }
    weights |= {
        "root": np.float32(2),
        "zero": np.int64(0),
        "one": np.int64(1),
        "first": np.array([0]),
    }
    weights |= {"heads": np.array([2, 4]), "width": np.array([8])}
    return model(nodes, weights, shape=(5, 8))


def _cnn() -> onnx.ModelProto:
    return model(
        [
            node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", ["p", "flat"], ["f"]),
            node("Gemm", ["f", "w", "o"], ["y"], transB=1),
        ],
        {
            "k": np.ones((4, 3, 3, 3)),
            "b": np.ones(4),
            "v": np.ones(4),
            "flat": np.array([-1, 16]),
            "w": np.ones((2, 16)),
            "o": np.ones(2),
        },
        shape=(3, 8, 8),
        out=(2,),
    )


def _by_tokens() -> onnx.ModelProto:
    """All tokens of all rows as one long matrix, and back."""
    return model(
        [
            node("Reshape", ["x", "flat"], ["f"]),
            node("MatMul", ["f", "w"], ["m"]),
            node("Relu", ["m"], ["r"]),
            node("Shape", ["x"], ["s"]),
            node("Reshape", ["r", "s"], ["y"]),
        ],
        {"flat": np.array([-1, 4]), "w": np.ones((4, 4))},
        shape=(3, 4),
    )


def _embedding() -> onnx.ModelProto:
    return model(
        [
            node("Gather", ["table", "x"], ["e"], axis=0),
            node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
            node("MatMul", ["m", "w"], ["y"]),
        ],
        {"table": np.arange(40.0).reshape(10, 4), "w": np.ones((4, 2))},
        dtype=INT64,
        out_dtype=FLOAT,
        shape=(3,),
        out=(2,),
    )


def _trees() -> onnx.ModelProto:
    tree = {
        "nodes_treeids": [0] * 3,
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    nodes = [
        node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.0] * 4, scale=[1.0] * 4),
        node("TreeEnsembleRegressor", ["s"], ["y"], domain="ai.onnx.ml", **tree),
    ]
    return model(nodes, out=(1,), ml=True)


APART: Graphs = {
    "linear": lambda: model(
        [node("Mul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])],
        {"w": np.ones(4), "b": np.float32(1)},
    ),
    "mlp": lambda: model(
        [
            node("Gemm", ["x", "w", "b"], ["h"]),
            node("Relu", ["h"], ["r"]),
            node("MatMul", ["r", "w"], ["o"]),
            node("Softmax", ["o"], ["y"]),
        ],
        {"w": np.ones((4, 4)), "b": np.ones(4)},
    ),
    "softmax of an older set": lambda: model(
        [node("Softmax", ["x"], ["y"])], shape=(2, 3), opset=11
    ),
    "cnn with batch norm": _cnn,
    "transformer": _attention,
    "tokens as rows": _by_tokens,
    "embedding": _embedding,
    "trees": _trees,
    "a classifier with a softmax": lambda: _classifier("SOFTMAX"),
    "limits and a normalisation": lambda: model(
        [
            node("Clip", ["x", "low", "high"], ["c"]),
            node("CastLike", ["c", "low"], ["d"]),
            node("LayerNormalization", ["d", "gain"], ["y"]),
        ],
        {"low": np.float32(-1), "high": np.float32(1), "gain": np.ones(4)},
    ),
    "flatten by computed sizes": lambda: model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["b"], axis=0),
            node("Unsqueeze", ["b", "first"], ["b1"]),
            node("Concat", ["b1", "rest"], ["to"], axis=0),
            node("Reshape", ["x", "to"], ["f"]),
            node("MatMul", ["f", "w"], ["y"]),
        ],
        {"zero": np.int64(0), "first": np.array([0]), "rest": np.array([-1]), "w": np.ones((6, 2))},
        shape=(2, 3),
        out=(2,),
    ),
    "einsum inside rows": lambda: model(
        [node("Einsum", ["x", "w"], ["y"], equation="bi,ij->bj")], {"w": np.ones((4, 4))}
    ),
    "residual with constants in the middle": lambda: model(
        [
            node("Expand", ["c", "to"], ["e"]),
            node("Add", ["x", "e"], ["a"]),
            node("Concat", ["a", "x"], ["d"], axis=1),
            node("Split", ["d", "halves"], ["y", "z"], axis=1),
        ],
        {"c": np.float32(2), "to": np.array([4]), "halves": np.array([4, 4])},
    ),
    "quantized with constants": lambda: model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        {"s": np.float32(0.1), "z": np.uint8(128)},
    ),
    "a mask by computed sizes": lambda: model(
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["zeros"]),
            node("Add", ["x", "zeros"], ["y"]),
        ]
    ),
}
"""Models as they are in use, whose rows are independent of each other."""
