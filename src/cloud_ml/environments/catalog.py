"""The runtimes that are offered: which one a user means, and what there is.

Each is a small TOML file (``runtimes/``, read by `runtimefile`). An operator adds or replaces
runtimes by files of a folder: one with the name of a shipped file takes its place.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cloud_ml.environments import runtimefile
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.files import digest_of
from cloud_ml.environments.packages.versions import release
from cloud_ml.environments.runtime import Runtime

_SHIPPED = os.path.join(os.path.dirname(__file__), "runtimes")  # noqa: PTH118, PTH120


class Catalog:
    """The runtimes that are offered."""

    def __init__(self, runtimes: Iterable[Runtime]) -> None:
        self.runtimes = tuple(runtimes)

    @functools.cached_property
    def digest(self) -> str:
        """Changes whenever a runtime says something else."""
        return digest_of([runtime.digest for runtime in self.runtimes])

    @classmethod
    def load(cls, extra_folder: Path | None = None, pythons: Sequence[str] = ()) -> Catalog:
        """The shipped runtimes and those of ``extra_folder``, whose files win by their names.

        As long as no file changes, this process gets the catalogue that it was given before.

        ``pythons`` are versions such as ``3.12`` of interpreters beside the platform's own: a file
        that says ``python = "*"`` is offered once for each.

        Raises:
            BadRuntime: A file cannot be used.
        """
        files = _list_files(_SHIPPED)
        if extra_folder is not None:
            files.update(_list_files(str(extra_folder)))
        states = tuple((path, runtimefile.state_of(path)) for path in files.values())
        return _read_catalog(states, tuple(pythons))

    def find(self, framework: str, version: str | None = None) -> Runtime:
        """The runtime that a user means.

        Raises:
            EnvironmentFailed: There is none; the message names what there is.
        """
        name = framework.strip().lower()
        family = [
            runtime for runtime in self.runtimes if name == runtime.name or name in runtime.aliases
        ]
        if not family:
            raise EnvironmentFailed("EnvironmentFailed", self._unknown_framework(name))
        for runtime in family:
            if runtime.means(version or None):
                return runtime
        if not version:
            return max(family, key=lambda runtime: release(runtime.version))
        there = ", ".join(runtime.version for runtime in _newest_first(family))
        raise EnvironmentFailed(
            "EnvironmentFailed", f"{name} {version} is not offered; there is {there}"
        )

    def refusal(self, framework: str, version: str | None = None) -> str | None:
        """Why ``find`` would fail, in words for the user; ``None`` if it would not."""
        try:
            self.find(framework, version)
        except EnvironmentFailed as error:
            return error.message
        return None

    def listing(self) -> dict[str, list[str]]:
        """Framework to its versions, newest first: what ``framework list`` shows."""
        shown: dict[str, list[str]] = {}
        for runtime in sorted(_newest_first(self.runtimes), key=lambda runtime: runtime.name):
            shown.setdefault(runtime.name, []).append(runtime.version)
        return shown

    def _unknown_framework(self, framework: str) -> str:
        import difflib  # noqa: PLC0415 -- only on this way out

        names = sorted(
            {name for runtime in self.runtimes for name in (runtime.name, *runtime.aliases)}
        )
        near = difflib.get_close_matches(framework, names, n=2)
        guess = f"; did you mean {' or '.join(near)}?" if near else "."
        return f"there is no framework {framework!r}{guess} Offered: {', '.join(self.listing())}"


@functools.lru_cache(4)
def _read_catalog(
    files: tuple[tuple[str, runtimefile.State], ...], pythons: tuple[str, ...]
) -> Catalog:
    return Catalog(
        runtime for path, state in files for runtime in runtimefile.read(Path(path), state, pythons)
    )


def _list_files(folder: str) -> dict[str, str]:
    """The paths of the files of runtimes in ``folder``, by name."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - at each start of a job
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    return {name: f"{folder}/{name}" for name in sorted(names) if name.endswith(".toml")}


def _newest_first(runtimes: Iterable[Runtime]) -> list[Runtime]:
    return sorted(
        runtimes, key=lambda runtime: (release(runtime.version), runtime.default), reverse=True
    )
