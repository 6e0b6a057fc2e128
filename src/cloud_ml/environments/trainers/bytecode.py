"""A trainer's modules, compiled once: a job may not write where they lie, and would compile them
each time anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import py_compile
import warnings
from pathlib import Path

from cloud_ml.environments.trainers import detect, source_files

_MOST_BYTES = 256 * 1024
"""Of source: a quarter of a second, for which the first job waits."""


def is_little(folder: Path) -> bool:
    """Whether ``compile_modules`` compiles all that lies below ``folder``."""
    sizes = [len(text) for _, text in detect.sources(folder)]
    files = sum(1 for _ in source_files.python_files(folder))
    return len(sizes) == files and sum(sizes) <= _MOST_BYTES


def compile_modules(site: Path, *, changes: bool = False) -> None:
    """Compile what lies below ``site``, for the interpreter of the platform; no code of it runs.

    What does not compile says so where it is imported.

    Args:
        site: The folder.
        changes: Whether somebody may change a source later, as a job may its copy of what was
            sent: then its time is looked at when it is loaded.
    """
    modes = py_compile.PycInvalidationMode
    mode = modes.TIMESTAMP if changes else modes.UNCHECKED_HASH
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
                    invalidation_mode=mode,
                )
