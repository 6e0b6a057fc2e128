"""Imports of frameworks, one at a time.

Models are loaded in several threads. Frameworks import each other in circles: Keras imports
TensorFlow, which imports Keras. Two threads that begin at different ends wait for each other.
Python then breaks the deadlock by an error, and what is half imported stays broken until the
process ends.
"""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

_LOCK = threading.RLock()


def import_framework(name: str) -> Any:
    """The module of a framework.

    Raises:
        ImportError: It is not installed. A broken installation raises errors of any type.
    """
    with import_lock():
        return importlib.import_module(name)


@contextlib.contextmanager
def import_lock() -> Iterator[None]:
    """Hold this while files of a model are read that import frameworks themselves: pickles, and
    Python code.
    """
    with _LOCK:
        yield
