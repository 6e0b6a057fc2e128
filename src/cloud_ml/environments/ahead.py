"""Runtimes before a job asks for them: what is ready, and making it so.

``python -m cloud_ml.environments.ahead`` prepares one in a process of its own: the order comes as
JSON on standard input, what happens goes to standard output as JSON lines, ``{"log": text}`` and at
the end ``{"ready": true}`` or ``{"failed": reason, "message": sentence}``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import evict, interpreter
from cloud_ml.environments.base import Bind, EnvironmentFailed, Sandbox
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.packages.requirements import locked_versions
from cloud_ml.environments.packages.stock import Stock
from cloud_ml.environments.process import Output
from cloud_ml.environments.runtime import Runtime


@dataclass(frozen=True)
class PreparationRequest:
    """Where runtimes are kept and what makes them; ``pythons`` are programs of other versions,
    by version.
    """

    home: str
    uv: str
    runtimes_dir: str
    python: str
    pythons: Mapping[str, str]
    timeout_s: float = 1800.0
    framework: str = ""
    version: str | None = None

    @property
    def catalog(self) -> Catalog:
        """The runtimes that are offered."""
        return Catalog.load(Path(self.runtimes_dir), tuple(self.pythons))


@dataclass(frozen=True)
class State:
    """What of a runtime is there: its interpreter (empty: not yet), its layer's size in bytes,
    its packages.
    """

    runtime: Runtime
    python: str = ""
    ready: bool = False
    size: int = 0
    packages: tuple[str, ...] = ()


def states(order: PreparationRequest) -> list[State]:
    """The state of every runtime that is offered."""
    return [state(order, runtime) for runtime in order.catalog.runtimes]


def state(order: PreparationRequest, runtime: Runtime) -> State:
    """What of ``runtime`` is there; starts no process unless an interpreter is new."""
    try:
        found = _interpreter(order, runtime)
    except (OSError, ValueError, TimeoutError):
        found = None
    if found is None:
        return State(runtime)
    layer = _stock(order, lambda _: None).base_layer(runtime, found)
    if layer is None:
        return State(runtime, found.version, ready=not runtime.requires)
    lock, folder = layer
    packages = tuple(
        f"{name}=={version}" for name, version in sorted(locked_versions(lock).items())
    )
    return State(runtime, found.version, ready=True, size=evict.size_of(folder), packages=packages)


def prepare(order: PreparationRequest, log: Output) -> State:
    """Install the runtime that ``order`` names, unless it is there.

    Raises:
        EnvironmentFailed: It cannot be made; the tool's words went to ``log``.
    """
    runtime = order.catalog.find(order.framework, order.version)
    stock = _stock(order, log)
    found = _interpreter(order, runtime) or stock.shared.find_python(runtime.python or "")
    try:
        stock.layers_for(runtime, (), found)
    finally:
        stock.leases.close()
    return state(order, runtime)


def remove(order: PreparationRequest) -> State:
    """Remove the layer of the runtime that ``order`` names; what a job uses stays."""
    runtime = order.catalog.find(order.framework, order.version)
    found = _interpreter(order, runtime)
    layer = _stock(order, lambda _: None).base_layer(runtime, found) if found is not None else None
    if layer is not None:
        evict.evict(layer[1])
    return state(order, runtime)


def _interpreter(order: PreparationRequest, runtime: Runtime) -> Interpreter | None:
    """The runtime's interpreter; None where uv has to look for it."""
    usual, home = interpreter.at(Path(order.python), Path(order.home)), Path(order.home)
    if runtime.python in (None, usual.minor):
        return usual
    program = order.pythons.get(runtime.python or "")
    return interpreter.at(Path(program), home) if program else None


def _stock(order: PreparationRequest, log: Output) -> Stock:
    config = pipconfig.read()
    return Stock(
        Path(order.home).resolve(),
        "none",
        Path(order.uv),
        config,
        _NoSandbox(),
        log,
        order.timeout_s,
    )


class _NoSandbox(Sandbox):
    """The layer of a bare runtime is made of wheels alone, and nothing of their code runs."""

    isolated = False

    def run(
        self,
        command: Sequence[str],
        *,
        read_only: Sequence[Bind],
        writable: Sequence[Bind],
        environment: Mapping[str, str],
        network: bool,
        timeout_s: float,
        output: Output,
    ) -> int:
        raise AssertionError(command)

    def call(
        self,
        function: Callable[[], None],
        *,
        folder: Path,
        inputs: Sequence[int],
        timeout_s: float,
        small: bool,
    ) -> int | None:
        raise AssertionError(function)

    def guard(self, folders: Sequence[Path]) -> Callable[[], str | None]:
        del folders
        return lambda: None  # what the operator has chosen


def main() -> int:
    """Prepare what standard input asks for; the exit code is 0 when it is ready."""
    os.umask(0o022)  # what is made here is read by users of jobs
    order = PreparationRequest(**json.load(sys.stdin))

    def tell(**event: object) -> None:
        print(json.dumps(event), flush=True)  # noqa: T201 - the engine reads these lines

    try:
        prepare(order, lambda words: tell(log=words.decode("utf-8", "replace")))
    except EnvironmentFailed as failure:
        tell(failed=failure.reason, message=failure.message)
        return 1
    tell(ready=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
