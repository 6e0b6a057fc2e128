"""The pause between two tries, for the face that awaits."""

from asyncio import sleep

__all__ = ["sleep"]
