"""What ONNX's operators are given: inputs that may be left out, and attributes of numbers."""

from collections.abc import Callable, Sequence

from cloud_ml.serving.independence.onnx_file import Node
from cloud_ml.serving.independence.tensor_info import NotIndependent, TensorInfo

Inputs = Sequence[TensorInfo | None]
Handler = Callable[[Node, Inputs], TensorInfo | list[TensorInfo]]


def first(infos: Inputs) -> TensorInfo:
    """The first input.

    Raises:
        NotIndependent: where it was left out.
    """
    return require_input(infos, 0)


def require_input(infos: Inputs, place: int) -> TensorInfo:
    """An input that must be there.

    Raises:
        NotIndependent: where it was left out.
    """
    found = infos[place] if place < len(infos) else None
    if found is None:
        raise NotIndependent(f"input {place} is missing")
    return found


def given_inputs(infos: Inputs) -> list[TensorInfo]:
    """The inputs that were not left out."""
    return [info for info in infos if info is not None]


def axes_of(node: Node, infos: Inputs, place: int = 1) -> list[int] | None:
    """The axes of a node: an attribute in older sets, an input in newer ones. None where none
    are named.
    """
    if "axes" in node.attributes:
        return integers_of(node, "axes")
    found = infos[place] if place < len(infos) else None
    return None if found is None else list(found.integers())


def integers_of(node: Node, name: str, default: Sequence[int] = ()) -> list[int]:
    """A list of numbers among the attributes of a node."""
    value = node.attributes.get(name, list(default))
    if not isinstance(value, list):
        raise NotIndependent(f"attribute {name!r} is no list of numbers")
    return value


def integer_of(node: Node, name: str, default: int) -> int:
    """A number among the attributes of a node."""
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise NotIndependent(f"attribute {name!r} is no number")
    return value
