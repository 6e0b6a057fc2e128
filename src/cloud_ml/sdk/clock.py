"""The pause between two tries, and work that blocks, for the face that blocks."""

from collections.abc import Callable
from time import sleep
from typing import TypeVar

T = TypeVar("T")

__all__ = ["in_thread", "sleep"]


def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns; the other face has it done in a thread."""
    return work()
