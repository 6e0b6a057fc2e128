"""The pause between two tries, and work that blocks, for the face that awaits."""

from asyncio import sleep
from asyncio import to_thread as in_thread

__all__ = ["in_thread", "sleep"]
