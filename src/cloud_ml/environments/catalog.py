"""The runtimes that are offered, each a small TOML file.

===============  ==================================================================================
key              meaning
===============  ==================================================================================
``name``         the framework, as users say it
``version``      the version that is shown; ``{python}`` is the interpreter's, such as ``3.11``
``accepts``      other versions that mean this runtime, ``*`` as in file names
``aliases``      other names of the framework
``default``      whether the framework without a version means this one
``summary``      one line for people
``python``       the interpreter it needs, such as ``3.7``; the platform's own when absent
``requires``     requirements of the runtime itself
``provides``     distributions that it stands in for, with the version it passes for: a trainer that
                 requires them pulls nothing
``lenient``      whether a trainer's other pin on such a distribution is dropped with a notice (true)
                 or refused (false)
``constraints``  bounds on what trainers may pull in
``compat``       folders of ``environments/compat`` put on the job's path
``base_memory``  what the bare framework needs on top of what the user asks for: bytes, or with K, M, G
``environment``  variables of the job
===============  ==================================================================================

An operator adds or replaces runtimes by files of a folder: one with the name of a shipped file takes its place.
"""

from __future__ import annotations

import fnmatch
import functools
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.files import digest_of
from cloud_ml.environments.requirements import normalised
from cloud_ml.environments.versions import release

_SHIPPED = Path(__file__).with_name("runtimes")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


class BadRuntime(ValueError):
    """A file of the catalog is wrong; the message names file, key and what is allowed."""


@dataclass(frozen=True)
class Runtime:
    """One offered runtime: the keys of its file, ``base_memory`` in bytes."""

    name: str
    version: str
    accepts: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    default: bool = False
    summary: str = ""
    python: str | None = None
    requires: tuple[str, ...] = ()
    provides: Mapping[str, str] = field(default_factory=dict)
    lenient: bool = False
    constraints: tuple[str, ...] = ()
    compat: tuple[str, ...] = ()
    base_memory: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Such as ``tensorflow 2.21``."""
        return f"{self.name} {self.version}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Requirements that make a resolver forget what the runtime stands in for."""
        own = {normalised(line.split("=", 1)[0]) for line in self.requires}
        return tuple(f'{name}; python_version < "0"' for name in sorted(self.provides) if normalised(name) not in own)

    @functools.cached_property
    def digest(self) -> str:
        """Changes whenever the file says something else."""
        return digest_of({name: getattr(self, name) for name in self.__dataclass_fields__})

    def means(self, version: str | None) -> bool:
        """Whether a user who asks for ``version`` of this framework means this runtime."""
        if version is None:
            return self.default
        return version == self.version or any(fnmatch.fnmatchcase(version, pattern) for pattern in self.accepts)


class Catalog:
    """The runtimes that are offered."""

    def __init__(self, runtimes: Iterable[Runtime]) -> None:
        self.runtimes = tuple(runtimes)

    @property
    def digest(self) -> str:
        """Changes whenever a runtime says something else."""
        return digest_of([runtime.digest for runtime in self.runtimes])

    @classmethod
    def load(cls, extra_folder: Path | None = None) -> Catalog:
        """The shipped runtimes and those of ``extra_folder``, whose files win by their names.

        Raises:
            BadRuntime: A file cannot be used.
        """
        files = {file.name: file for file in sorted(_SHIPPED.glob("*.toml"))}
        if extra_folder is not None:
            files.update({file.name: file for file in sorted(extra_folder.glob("*.toml"))})
        return cls(_read_unless_known(file) for file in files.values())

    def find(self, framework: str, version: str | None = None) -> Runtime:
        """The runtime that a user means.

        Raises:
            EnvironmentFailed: There is none; the message names what there is.
        """
        wanted = framework.strip().lower()
        family = [runtime for runtime in self.runtimes if wanted == runtime.name or wanted in runtime.aliases]
        if not family:
            raise EnvironmentFailed("EnvironmentFailed", self._unknown_framework(wanted))
        for runtime in family:
            if runtime.means(version or None):
                return runtime
        if not version:
            return max(family, key=lambda runtime: release(runtime.version))
        there = ", ".join(runtime.version for runtime in _newest_first(family))
        raise EnvironmentFailed("EnvironmentFailed", f"{wanted} {version} is not offered; there is {there}")

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

    def _unknown_framework(self, wanted: str) -> str:
        import difflib  # noqa: PLC0415 -- only on this way out

        names = sorted({name for runtime in self.runtimes for name in (runtime.name, *runtime.aliases)})
        near = difflib.get_close_matches(wanted, names, n=1)
        guess = f"; did you mean {near[0]}?" if near else "."
        return f"there is no framework {wanted!r}{guess} Offered: {', '.join(self.listing())}"


def _newest_first(runtimes: Iterable[Runtime]) -> list[Runtime]:
    return sorted(runtimes, key=lambda runtime: release(runtime.version), reverse=True)


def _read_unless_known(file: Path) -> Runtime:
    """A file is parsed once as long as it stays as it is, here and in every process forked from here."""
    try:
        facts = file.stat()
    except OSError as error:
        raise BadRuntime(f"{file}: {error}") from error
    return _known(file, (facts.st_ino, facts.st_size, facts.st_mtime_ns))


@functools.lru_cache(maxsize=256)
def _known(file: Path, state: tuple[int, int, int]) -> Runtime:
    del state  # what the file was like belongs to the question
    return _read(file)


def _read(file: Path) -> Runtime:
    try:
        document = tomllib.loads(file.read_text().replace("{python}", f"{sys.version_info[0]}.{sys.version_info[1]}"))
    except (OSError, ValueError) as error:
        raise BadRuntime(f"{file}: {error}") from error
    if unknown := sorted(set(document) - set(Runtime.__dataclass_fields__)):
        raise BadRuntime(f"{file}: unknown key {unknown[0]!r}; allowed: {', '.join(Runtime.__dataclass_fields__)}")
    if missing := sorted({"name", "version"} - set(document)):
        raise BadRuntime(f"{file}: the key {missing[0]!r} is missing")
    return Runtime(**{key: _value(file, key, value) for key, value in document.items()})


def _value(file: Path, key: str, value: Any) -> Any:
    """One key's value in its own type."""
    if key == "base_memory":
        return _bytes(file, value)
    if key in ("provides", "environment"):
        good, wanted = isinstance(value, dict), "a table of strings"
        good = good and all(isinstance(entry, str) for entry in value.values())
    elif key in ("default", "lenient"):
        good, wanted = isinstance(value, bool), "true or false"
    elif key in ("name", "version", "summary", "python"):
        good, wanted = isinstance(value, str) and bool(value), "a string"
    else:
        good, wanted = isinstance(value, list) and all(isinstance(entry, str) for entry in value), "a list of strings"
        value = tuple(value) if good else value
    if not good:
        raise BadRuntime(f"{file}: {key} is {value!r}; allowed: {wanted}")
    return value


def _bytes(file: Path, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isdigit():
        return int(value[:-1]) * _UNITS[value[-1]]
    raise BadRuntime(f"{file}: base_memory is {value!r}; allowed: bytes, or a number with K, M or G")
