"""The pause between two tries, for the face that blocks."""

from time import sleep

__all__ = ["sleep"]
