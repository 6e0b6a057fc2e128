"""Attributes of TensorFlow's operations, which must be what they are documented to be."""

from cloud_ml.serving.independence.tensor_info import (
    NotIndependent,
)
from cloud_ml.serving.independence.tensorflow_file import Node

MOST_OUTPUTS = 1 << 16
"""Outputs of an operation that are looked at."""


def integer(node: Node, name: str, default: int = 0) -> int:
    """The whole number of an attribute.

    Raises:
        NotIndependent: where it is something else.
    """
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise NotIndependent(f"attribute {name!r} is no number")
    return value


def number_of_outputs(node: Node, name: str) -> int:
    """How many outputs an attribute asks for.

    Raises:
        NotIndependent: where they are more than are looked at.
    """
    value = integer(node, name)
    if value > MOST_OUTPUTS:
        raise NotIndependent(
            f"attribute {name!r} is {value}, which is more than {MOST_OUTPUTS} outputs"
        )
    return value


def integers(node: Node, name: str) -> list[int]:
    """The list of numbers of an attribute; none where it is not given.

    Raises:
        NotIndependent: where it is something else.
    """
    value = node.attributes.get(name, [])
    if not isinstance(value, list):
        raise NotIndependent(f"attribute {name!r} is no list of numbers")
    return value
