"""What the maker of environments is asked and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class EnvironmentFailed(Exception):
    """The environment cannot be made, and trying again is no help.

    ``reason`` is one of ``TrainerNotFound``, ``TrainerInvalid``, ``EnvironmentFailed``; the tool's
    own words have gone to the log.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class EnvironmentRequest:
    """What a gang needs around it.

    ``tenant`` keeps apart what was built by running a tenant's code. ``trainer`` is a readable file
    whose ``trainer_name`` tells the format. ``framework`` ``None`` means: find out from the code.
    ``requires`` is added to what the code requires. ``keras_backend`` is the variable of the job,
    empty without one.
    """

    tenant: str
    trainer: Path | None
    trainer_name: str
    module: str | None
    framework: str | None = None
    framework_version: str | None = None
    requires: tuple[str, ...] = ()
    keras_backend: str = ""


@dataclass(frozen=True)
class Bind:
    """A read-only folder of this machine and where the job sees it."""

    source: str
    target: str


@dataclass(frozen=True)
class Prepared:
    """An environment that is ready.

    ``python`` is the interpreter as the job sees it (unsandboxed jobs see ``Bind.source`` paths:
    see ``build.prepare``); ``lock`` is the exact resolution in requirements form; ``base_memory``
    is in bytes; ``notices`` are sentences for the log; ``threads`` are variables that take a number
    of cores. ``preload`` are modules that may be imported ahead, with ``own_sites`` (the trainer's,
    as the job sees them) left out of ``base``. ``folder`` holds the files that were sent, of which
    the job gets a copy as its working directory; empty for a package that was only installed.
    ``takes_output_path`` tells that the module's file defines a flag ``--output_path``.
    """

    python: str
    binds: Sequence[Bind]
    environment: Mapping[str, str]
    runtime: str
    base_memory: int
    lock: str
    trainer_digest: str
    notices: Sequence[str] = field(default_factory=tuple)
    threads: Sequence[str] = field(default_factory=tuple)
    preload: Sequence[str] = field(default_factory=tuple)
    own_sites: Sequence[str] = field(default_factory=tuple)
    folder: str = ""
    takes_output_path: bool = False
    base: Base | None = None


@dataclass(frozen=True)
class Base:
    """What an environment is without the trainer: the same for everybody who needs the same
    packages.

    ``python`` is the interpreter as it lies on this machine, with its ``prefix`` and ``version``.
    """

    python: str
    prefix: str
    version: str
    sites: Sequence[str]
    binds: Sequence[Bind]
    environment: Mapping[str, str]


class Sandbox(Protocol):
    """Runs a tool on behalf of a tenant, fenced like the tenant's jobs. Provided by the engine."""

    def run(
        self,
        command: Sequence[str],
        *,
        read_only: Sequence[Bind],
        writable: Sequence[Bind],
        environment: Mapping[str, str],
        network: bool,
        timeout_s: float,
        output: Callable[[bytes], None],
    ) -> int:
        """Run ``command`` to its end and return its exit code (negative for a signal).

        ``writable`` folders have been made by the caller and belong to the tenant when this
        returns. Without isolation on this machine, targets are ignored and sources are used as they
        are.
        """

    def call(
        self,
        function: Callable[[], None],
        *,
        folder: Path,
        inputs: Sequence[int],
        timeout_s: float,
        small: bool,
    ) -> int | None:
        """Run a function of ours that reads a tenant's bytes, in a forked process with the tenant's
        user and limits.

        The function sees ``folder`` as its working folder, writes there only, and has the
        descriptors in ``inputs``. ``small`` says that its work is short whatever the bytes are.

        Returns:
            Its exit code, negative for a signal; ``None`` where a forked process cannot be fenced
            like a command.

        Raises:
            TimeoutError: It did not end within ``timeout_s`` seconds.
            OSError: It could not be started.
        """
        ...

    def guard(self, folders: Sequence[Path]) -> Callable[[], str | None]:
        """What tells why a tool of the platform's own has to end that fills ``folders`` for a
        tenant; else ``None``.

        It is to be asked several times a second.
        """
        ...

    @property
    def isolated(self) -> bool:
        """Whether processes see targets (True) or sources (False)."""
