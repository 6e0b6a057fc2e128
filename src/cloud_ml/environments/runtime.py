"""A runtime: what a framework is called, what it installs, what it needs."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloud_ml.environments.files import digest_of
from cloud_ml.environments.packages.requirements import normalise_name


class BadRuntime(ValueError):
    """A file of the catalog is wrong; the message names file, key and what is allowed."""


@dataclass(frozen=True)
class Runtime:
    """One offered runtime: the keys of its file; ``base_memory`` has become a number of bytes."""

    name: str
    """The framework, as users say it."""
    version: str
    """The version that is shown; ``{python}`` is the interpreter's, such as ``3.11``."""
    accepts: tuple[str, ...] = ()
    """Other versions that mean this runtime, ``*`` as in file names."""
    aliases: tuple[str, ...] = ()
    """Other names of the framework."""
    default: bool = False
    """Whether the framework without a version means this one."""
    summary: str = ""
    """One line for people."""
    python: str | None = None
    """The interpreter it needs, such as ``3.7``; the platform's own when absent; ``*`` offers
    the runtime once for every interpreter of the machine.
    """
    requires: tuple[str, ...] = ()
    """Requirements of the runtime itself."""
    imports: tuple[str, ...] = ()
    """Modules whose import tells that code is written for this runtime; ``keras+jax`` needs
    both.
    """
    distributions: tuple[str, ...] = ()
    """Distributions whose requirement by a trainer tells the same."""
    rank: int = 0
    """Which runtime is meant where code tells several: the highest, from 0 to 1000."""
    provides: Mapping[str, str] = field(default_factory=dict)
    """Distributions that it stands in for, with the version it passes for: a trainer that
    requires them pulls nothing.
    """
    lenient: bool = False
    """Whether a trainer's other pin on such a distribution is dropped with a notice (true) or
    refused (false).
    """
    constraints: tuple[str, ...] = ()
    """Bounds on what trainers may pull in."""
    indexes: tuple[str, ...] = ()
    """Addresses of package indexes to ask first, unless a folder of pip's ``find-links`` on this
    machine offers a build of one of the runtime's requirements.
    """
    forbids: tuple[str, ...] = ()
    """Distributions that must not come along, ``*`` as in file names: an environment that would
    hold one is refused before anything is downloaded.
    """
    compat: tuple[str, ...] = ()
    """Folders of ``environments/compat`` put on the job's path."""
    base_memory: int = 0
    """What the bare framework needs on top of what the user asks for."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the job."""
    threads: tuple[str, ...] = ()
    """Variables that are set to the number of cores of a job that names ``cpu_limit``."""
    preload: tuple[str, ...] = ()
    """Modules that an interpreter may import ahead of a job, where the operator allows it
    (``engine.zygotes``).
    """

    @property
    def label(self) -> str:
        """Such as ``tensorflow 2.21``."""
        return f"{self.name} {self.version}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Requirements that make a resolver forget what the runtime stands in for."""
        own = {normalise_name(line.split("=", 1)[0]) for line in self.requires}
        return tuple(
            f'{name}; python_version < "0"'
            for name in sorted(self.provides)
            if normalise_name(name) not in own
        )

    @functools.cached_property
    def digest(self) -> str:
        """Changes whenever the file says something else."""
        return digest_of({name: getattr(self, name) for name in self.__dataclass_fields__})

    def means(self, version: str | None) -> bool:
        """Whether a user who asks for ``version`` of this framework means this runtime."""
        if version is None:
            return self.default
        return version == self.version or any(
            fnmatch.fnmatchcase(version, pattern) for pattern in self.accepts
        )
