"""A trainer's modules, compiled once: a job may not write where they lie, and would compile them
each time anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import py_compile
import warnings
from pathlib import Path

from cloud_ml.environments.trainers import detect

_MOST_BYTES = 256 * 1024
"""Of source: a quarter of a second, for which the first job waits."""


def compile_modules(site: Path) -> None:
    """Compile what lies below ``site``, for the interpreter of the platform; no code of it runs.

    Times are not looked at when it is loaded: nothing changes here. What does not compile says so
    where it is imported.
    """
    left = _MOST_BYTES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, text in detect.sources(site):
            if (left := left - len(text)) < 0:
                return
            source = site / name
            with contextlib.suppress(
                py_compile.PyCompileError, ValueError, RecursionError, MemoryError, OSError
            ):
                py_compile.compile(
                    str(source),
                    importlib.util.cache_from_source(str(source), optimization=""),
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
