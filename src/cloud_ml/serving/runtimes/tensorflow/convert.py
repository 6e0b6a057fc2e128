"""A program that turns a SavedModel into ONNX models, one for each signature, and keeps them only
if they are as good.

Run as ``python -m cloud_ml.serving.runtimes.tensorflow.convert FOLDER OUT``, in a process of its
own: it imports TensorFlow, which the server then does without. What it finds out stands in
``OUT/result.json``.

A model is taken when, for every signature, it has only floating-point inputs (a bad index or an
unknown string is answered differently by the two), nothing random and no state, gives TensorFlow's
answers on made-up inputs, large and tiny ones included, and is faster. What is not a number is not
compared: TensorFlow's relu makes 0 of it, onnxruntime passes it on.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.runtimes.onnx import OnnxModel
from cloud_ml.serving.runtimes.tensorflow import children, described
from cloud_ml.serving.signatures import Signature

OPSET = 18
OPEN_SIZE = 8
"""What an open dimension that is not the rows is tried with."""
LOOSEST = {dtypes.FLOAT: (1e-4, 1e-5), dtypes.DOUBLE: (1e-9, 1e-12), dtypes.HALF: (1e-2, 1e-3)}
"""Relative and absolute difference that two orders of adding may make, by the type of an output."""


class Unfit(Exception):
    """The model stays with TensorFlow; the reason is the message."""


def main() -> None:
    """Convert, compare, write down."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        speedup = convert(folder, out)
    except Unfit as reason:
        for file in out.glob("*.onnx"):
            file.unlink()
        children.tell(out, fit=False, why=str(reason))
    else:
        faster = f"onnxruntime gives the same answers {speedup:.1f} times faster than TensorFlow"
        children.tell(out, fit=True, why=faster)


def convert(folder: Path, out: Path) -> float:
    """Write ``NAME.onnx`` for every signature; returns how many times faster the slowest of them
    is.

    Raises:
        Unfit: where it is not to be used.
    """
    import tensorflow as tf  # noqa: PLC0415 - this program is for it

    signatures = described.signatures(folder)
    for each in signatures.values():
        for spec in each.inputs:
            if spec.dtype not in LOOSEST:
                raise Unfit(f"input {spec.name!r} of signature {each.name!r} is {spec.dtype}")
    loaded = tf.saved_model.load(str(folder), tags=[described.SERVE])
    return min(_one(loaded.signatures[name], each, out) for name, each in signatures.items())


def _one(function: Any, signature: Signature, out: Path) -> float:
    model = _onnx(function, signature)
    file = out / f"{signature.name}.onnx"
    file.write_bytes(model)
    try:
        converted = OnnxModel({signature.name: file}, {signature.name: signature}, inner=False)
    except ModelFailed as error:
        raise Unfit(error.message) from error

    def tensorflow(inputs: Sequence[Array]) -> list[Array]:
        import tensorflow as tf  # noqa: PLC0415

        named = {
            spec.name: tf.constant(array)
            for spec, array in zip(signature.inputs, inputs, strict=True)
        }
        made = function(**named)
        return [made[spec.name].numpy() for spec in signature.outputs]

    def onnx(inputs: Sequence[Array]) -> list[Array]:
        return list(converted.predict(signature, inputs))

    for inputs in _samples(signature):
        _agree(signature, tensorflow(inputs), tensorflow(inputs), onnx(inputs))
    inputs = next(_samples(signature))
    speedup = _quickest(tensorflow, inputs) / _quickest(onnx, inputs)
    if speedup < 1.1:
        raise Unfit(f"onnxruntime is not faster for signature {signature.name!r}: {speedup:.2f}")
    return speedup


def _onnx(function: Any, signature: Signature) -> bytes:
    """The function with its variables as constants, as an ONNX model whose names are those of
    the signature.
    """
    import tensorflow as tf  # noqa: PLC0415
    from tensorflow.python.framework.convert_to_constants import (  # noqa: PLC0415
        convert_variables_to_constants_v2,
    )

    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    operations = [each for each in frozen.graph.get_operations() if each.type != "Placeholder"]
    if keeping := sorted(
        {each.type for each in operations if each.op_def.is_stateful and each.type != "NoOp"}
    ):
        raise Unfit(f"it is random or keeps a state: {', '.join(keeping)}")
    try:
        from tf2onnx import optimizer, tfonnx  # noqa: PLC0415
    except ImportError as error:
        raise Unfit("tf2onnx is not installed") from error
    _, arguments = (
        function.structured_input_signature
    )  # both sides of a function are in the order of their names
    inputs = dict(zip(sorted(arguments), [tensor.name for tensor in frozen.inputs], strict=True))
    outputs = dict(
        zip(
            sorted(function.structured_outputs),
            [tensor.name for tensor in frozen.outputs],
            strict=True,
        )
    )
    if set(inputs) != {spec.name for spec in signature.inputs}:
        raise Unfit(f"the function takes {sorted(inputs)}")
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen.graph.as_graph_def(), name="")
        with tf.compat.v1.Session(graph=graph):
            try:
                made = tfonnx.process_tf_graph(
                    graph,
                    opset=OPSET,
                    input_names=list(inputs.values()),
                    output_names=list(outputs.values()),
                    tensors_to_rename={
                        tensor: name
                        for names in (inputs, outputs)
                        for name, tensor in names.items()
                    },
                )
            except Exception as error:
                raise Unfit(f"tf2onnx cannot convert it: {error}"[:500]) from error
    return bytes(optimizer.optimize_graph(made).make_model("converted").SerializeToString())


def _samples(signature: Signature) -> Any:
    """Made-up inputs: usual ones in several sizes, then extreme ones."""
    random = np.random.default_rng(0)
    for rows in (1, 3, 32):
        yield [
            _array(spec.shape, rows, spec.dtype, random.standard_normal)
            for spec in signature.inputs
        ]
    for value in (0.0, 1.0, -1.0, 1e4, -1e4, 1e-6):
        yield [
            _array(spec.shape, 2, spec.dtype, lambda size, v=value: np.full(size, v))
            for spec in signature.inputs
        ]


def _array(
    shape: tuple[int, ...] | None, rows: int, dtype: dtypes.DType, fill: Callable[..., Array]
) -> Array:
    if shape is None:
        raise Unfit("an input of any rank")
    sizes = [
        (rows if place == 0 else OPEN_SIZE) if size < 0 else size
        for place, size in enumerate(shape)
    ]
    return np.asarray(fill(size=sizes), dtype.numpy)


def _agree(
    signature: Signature, first: list[Array], again: list[Array], converted: list[Array]
) -> None:
    for spec, one, two, other in zip(signature.outputs, first, again, converted, strict=True):
        if one.tobytes() != two.tobytes():
            raise Unfit(f"output {spec.name!r} differs from run to run")
        relative, absolute = LOOSEST.get(spec.dtype, (0.0, 0.0))
        same = one.shape == other.shape and one.dtype == other.dtype
        if not same or not np.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True):
            raise Unfit(
                f"output {spec.name!r} of signature {signature.name!r} differs from TensorFlow's"
            )


def _quickest(run: Callable[[Sequence[Array]], list[Array]], inputs: Sequence[Array]) -> float:
    """Seconds of the fastest of some runs."""
    best = float("inf")
    for _ in range(20):
        begun = time.perf_counter()
        run(inputs)
        best = min(best, time.perf_counter() - begun)
    return best


if __name__ == "__main__":
    main()
