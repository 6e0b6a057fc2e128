"""Layers of Keras that keep rows apart when they predict, by their exact types. What is not here is
not trusted.

Keras's layers never see the first dimension as anything else than the rows, unless they are told so
by an axis.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from cloud_ml.serving.independence.tensor_info import NotIndependent, names

_PLAIN = names(
    """
    InputLayer Dense EinsumDense Embedding Conv1D Conv2D Conv3D DepthwiseConv1D DepthwiseConv2D SeparableConv1D
    SeparableConv2D Conv1DTranspose Conv2DTranspose Conv3DTranspose MaxPooling1D MaxPooling2D MaxPooling3D
    AveragePooling1D AveragePooling2D AveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D Flatten Reshape Permute RepeatVector
    Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianNoise GaussianDropout AlphaDropout
    ActivityRegularization Activation ReLU LeakyReLU PReLU ELU ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D
    Cropping2D Cropping3D UpSampling1D UpSampling2D UpSampling3D Rescaling LSTM GRU SimpleRNN Identity
    """
)
_WITH_AXIS = names(
    "Softmax LogSoftmax BatchNormalization LayerNormalization UnitNormalization Concatenate "
    "GroupNormalization"
)
_MERGES = names("Add Subtract Multiply Average Maximum Minimum")
_WRAPPERS = {"Bidirectional": ("forward_layer", "backward_layer"), "TimeDistributed": ("layer",)}
_ACTIVATIONS = names(
    """
    linear relu relu6 leaky_relu elu selu celu gelu sigmoid hard_sigmoid tanh silu hard_silu softplus softsign
    exponential softmax log_softmax mish hard_tanh tanh_shrink soft_shrink hard_shrink
    """
)
_OVER_AXIS = names("softmax log_softmax Softmax")
"""Activations that take the last axis together, which is that of the rows where there is no
other.
"""
_ANY_RANK = names("Activation EinsumDense")
"""Layers with an activation whose output may have one dimension only."""
_AS_ACTIVATION = names("ReLU LeakyReLU ELU PReLU Identity Softmax")
"""Layers that may stand for the activation of another one."""
_OPERATIONS = names("Add Subtract Multiply Maximum Minimum Softmax LogSoftmax Concatenate")
"""Operations of ``keras.ops`` that are known. Others have names of layers, but reshape or reduce
the rows.
"""
_DEEPEST = 32


def check(model: Any) -> None:
    """Look at every layer of a functional or sequential model.

    Raises:
        NotIndependent: with the first layer that is not known to keep rows apart, and why.
    """
    _model(model, 0)


def _model(model: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise NotIndependent("models lie deeper in each other than is looked at")
    if type(model).__name__ not in ("Functional", "Sequential") or not _own(model):
        raise NotIndependent(f"model {type(model).__qualname__} has code of its own")
    # ``layers`` leaves out the operations of ``keras.ops`` that a functional model calls directly.
    parts = model.operations if type(model).__name__ == "Functional" else model.layers
    for part in parts:
        _layer(part, depth + 1)


def _own(thing: Any) -> bool:
    """Whether it is of a class of Keras itself."""
    return type(thing).__module__.partition(".")[0] == "keras"


def _own_layer(thing: Any) -> bool:
    """Whether it is one of Keras's layers. Its operations, ``keras.ops``, have other classes
    with the same names.
    """
    return type(thing).__module__.startswith(("keras.src.layers.", "keras.layers."))


def _own_operation(thing: Any) -> bool:
    return (
        type(thing).__module__.startswith("keras.src.ops.") and type(thing).__name__ in _OPERATIONS
    )


def _layer(layer: Any, depth: int) -> None:
    kind, subject = (
        type(layer).__name__,
        f"layer {type(layer).__name__} {getattr(layer, 'name', '')!r}",
    )
    if kind in ("Functional", "Sequential"):
        _calls(layer)
        _model(layer, depth)
        return
    check_layer = _check_of(kind) if _own_layer(layer) or _own_operation(layer) else None
    if check_layer is None:
        raise NotIndependent(f"{subject} is not known to keep rows apart")
    try:
        check_layer(layer)
        _calls(layer)
        for name in ("activation", "recurrent_activation"):
            _activation(layer, getattr(layer, name, None))
    except NotIndependent as reason:
        raise NotIndependent(f"{subject}: {reason}") from None
    for name in _WRAPPERS.get(kind, ()):
        _layer(getattr(layer, name), depth + 1)


def _check_of(kind: str) -> Callable[[Any], None] | None:
    if kind in _PLAIN:
        return _plain
    if kind in _WITH_AXIS:
        return _with_axis
    if kind in _MERGES:
        return _merge
    if kind == "MultiHeadAttention":
        return _attention
    return _plain if kind in _WRAPPERS else None


def _plain(layer: Any) -> None:
    if getattr(layer, "stateful", False):
        raise NotIndependent("it keeps a state from call to call")
    for name in ("scale", "offset") if type(layer).__name__ == "Rescaling" else ():
        _check_constant(getattr(layer, name), min(_ranks(layer), default=0))
    equation = getattr(layer, "equation", None)
    if equation is not None and not _keeps_first(str(equation)):
        raise NotIndependent(f"its equation is {equation!r}")


def _keeps_first(equation: str) -> bool:
    """Whether the first letter of the input is the first of the output, and stands for nothing
    else.
    """
    sides = equation.replace(" ", "").split("->")
    given = sides[0].split(",")
    if len(sides) != 2 or len(given) != 2 or not given[0]:
        return False
    letters = given[0].removeprefix("...")[:1] if given[0].startswith("...") else given[0][0]
    if given[0].startswith("..."):
        return sides[1].startswith("...")
    return sides[1][:1] == letters and given[0].count(letters) == 1 and letters not in given[1]


def _ranks(layer: Any, side: str = "input_tensors") -> list[int]:
    """The number of dimensions of all tensors on one side, in every call of the layer."""
    nodes = getattr(layer, "_inbound_nodes", ())
    return [len(tensor.shape) for node in nodes for tensor in getattr(node, side)]


def _calls(layer: Any) -> None:
    """Refuse calls in training mode, where batch normalisation uses other rows, and constants
    for places of rows.
    """
    for node in getattr(layer, "_inbound_nodes", ()):
        # For other layers 0, so that any array is refused: a first state or a mask has a value for
        # each place.
        rank = (
            min(len(tensor.shape) for tensor in node.input_tensors)
            if type(layer).__name__ in _MERGES
            else 0
        )
        for constant in _constants([*node.arguments.args, *node.arguments.kwargs.values()]):
            _check_constant(constant, rank)
        training = node.arguments.kwargs.get("training")
        # ``training`` may also be given by its place.
        if training not in (None, False) or any(each is True for each in node.arguments.args):
            raise NotIndependent("it is called in training mode")


def _constants(arguments: Iterable[Any]) -> Iterator[Any]:
    """The arrays and lists of numbers among arguments, without the tensors of the model."""
    for value in arguments:
        if hasattr(value, "shape"):
            if not hasattr(value, "_keras_history"):
                yield value
        elif isinstance(value, list | tuple):
            if any(isinstance(part, int | float) for part in value):
                yield value
            yield from _constants(value)


def _check_constant(value: Any, rank: int) -> None:
    """Refuse a constant that may be aligned with the rows: it would give each place another value.

    Raises:
        NotIndependent: where it has as many dimensions as the tensor, and more than one entry in
            the first.
    """
    shape = tuple(getattr(value, "shape", None) or np.shape(value))
    if len(shape) > rank or (len(shape) == rank and shape and shape[0] != 1):
        raise NotIndependent("a constant has a value for each place among the rows")


def _with_axis(layer: Any) -> None:
    axes = layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]
    ranks = _ranks(layer)
    if not ranks:
        raise NotIndependent("the rank of its input is not known")
    for rank in ranks:
        if any(axis % rank == 0 for axis in axes):
            raise NotIndependent("its axis is that of the rows")


def _merge(layer: Any) -> None:
    if len(set(_ranks(layer))) > 1:
        raise NotIndependent("tensors of different ranks are aligned by their last dimension")


def _attention(layer: Any) -> None:
    axes = getattr(layer, "_attention_axes", None)
    if axes is None or 0 in axes or any(axis < 0 for axis in axes):
        raise NotIndependent("rows may attend to each other")


def _activation(layer: Any, function: Any) -> None:
    name = getattr(function, "__name__", type(function).__name__)
    if name in _OVER_AXIS and type(layer).__name__ in _ANY_RANK:
        ranks = _ranks(layer, "output_tensors")
        if not ranks or min(ranks) < 2:
            raise NotIndependent(f"its activation {name!r} may work along the rows")
    if name == "Softmax" and getattr(function, "axis", -1) != -1:
        raise NotIndependent("its activation works along an axis that is not the last")
    if function is None or (_own_layer(function) and type(function).__name__ in _AS_ACTIVATION):
        return
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if not module.startswith("keras.src.activations") or name not in _ACTIVATIONS:
        raise NotIndependent(
            f"its activation {name or type(function).__name__!r} is not known to keep rows apart"
        )
