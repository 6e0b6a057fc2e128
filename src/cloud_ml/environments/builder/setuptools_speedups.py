"""Makes a build with setuptools cheaper. A project's code may import and ask what it likes.

Setuptools asks for entry points some fifteen times in a build, and each time all distributions on
the path are read again. It imports modules that most builds do not use.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib import metadata
from types import ModuleType
from typing import Any

_UNUSED = ("urllib.request",)
"""With it come ``http`` and ``ssl``: a tenth of all that a build imports."""


def install() -> None:
    """Make the build of this process cheaper: it makes one."""
    for name in _UNUSED:
        import_when_used(name)
    metadata.entry_points = EntryPointReader(metadata.entry_points)


def import_when_used(name: str) -> None:
    """Have a module run its code when something of it is used first."""
    package, _, own = name.rpartition(".")
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _DeferredModule
    sys.modules[name] = module
    setattr(sys.modules[package], own, module)


class _DeferredModule(ModuleType):
    """A module that has not run. ``importlib.util.LazyLoader`` has it run when it is imported a
    second time, since that looks at its ``__spec__``.
    """

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)


class EntryPointReader:
    """``importlib.metadata.entry_points``, which reads distributions again when a folder on the path
    has changed.
    """

    def __init__(self, read: Any) -> None:
        self._read = read
        self._state: object = None
        self._all: Any = None

    def __call__(self, **params: Any) -> Any:
        if not params:
            return self._read()
        if (state := [_changed_at(entry) for entry in sys.path]) != self._state:
            self._all, self._state = self._read(), state
        return self._all.select(**params)


def _changed_at(folder: str) -> tuple[str, int]:
    try:
        return folder, os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - an entry may be empty
    except OSError:
        return folder, 0
