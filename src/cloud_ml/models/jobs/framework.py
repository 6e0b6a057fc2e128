"""What the modern surface answers about the frameworks that jobs may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One version of a framework, and what of it is there.

    ``python`` is the interpreter's full version, empty while it is not there. One that is not
    ``ready`` is installed when a job first needs it. ``size_bytes`` is what its packages take on
    the server's disk, ``base_memory`` the bytes that are added to a job's memory limit. ``threads``
    names the variables that are set to the number of cores of a job with a limit. ``preload`` names
    the modules that an interpreter may have imported before a job asks, where the operator allows
    it.
    """

    name: str
    version: str
    summary: str = ""
    default: bool = False
    aliases: list[str] = field(default_factory=list)
    accepts: list[str] = field(default_factory=list)
    python: str = ""
    ready: bool = False
    size_bytes: int = 0
    base_memory: int = 0
    requires: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    threads: list[str] = field(default_factory=list)
    preload: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RuntimePage:
    """Every runtime that is offered, by name, newest version first."""

    items: list[Runtime]


@dataclass(frozen=True, kw_only=True)
class PreparationLine:
    """One line of a preparation: what happens, and in the last one the runtime, or the error
    that ended it.
    """

    message: str = ""
    runtime: Runtime | None = None
    error: str | None = None
