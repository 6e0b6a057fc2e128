"""Calling uv: on behalf of the platform, or inside a tenant's sandbox where a build may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import interpreter as interpreters
from cloud_ml.environments import process
from cloud_ml.environments.base import Bind, EnvironmentFailed, Sandbox
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.packages.pipconfig import PipConfig

_NETWORK_WORDS = (
    b"Failed to fetch",
    b"error sending request",
    b"dns error",
    b"Could not connect",
    b"network was disabled",
    b"Connection reset",
    b"HTTP status server error",
    b"operation timed out",
)
_NO_PROJECT = ("--directory", "/")
"""uv reads the ``uv.toml`` or ``pyproject.toml`` of the folder that it is in, or of the next one above
it. Whoever can write there would say what is installed, and one that cannot be read fails it.
"""


def is_of_network(words: bytes) -> bool:
    """Whether uv says that the network failed it: a name service, a broken connection, an answer
    of 5xx.
    """
    return any(word in words for word in _NETWORK_WORDS)


def same_place(*paths: Path | str) -> list[Bind]:
    """Binds that show each path where it is."""
    return [Bind(str(path), str(path)) for path in paths]


@dataclass(frozen=True)
class Uv:
    """The program, the machine's configuration, a cache, and where it runs.

    With a ``sandbox`` it may build source distributions, which runs their code: as the tenant, with
    the tenant's own cache and without the operator's credentials. Without one it takes wheels only.
    """

    program: Path
    config: PipConfig
    cache: Path
    timeout_s: float
    sandbox: Sandbox | None = None
    guard: Callable[[Sequence[Path]], process.Guard] = lambda _: lambda: None
    """Makes what is asked whether a call without a sandbox has to end, of the folders that it
    fills.
    """

    def run(
        self,
        arguments: Sequence[str],
        *,
        output: process.Output,
        interpreter: Interpreter,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
        offline: bool = False,
        progress: bool = False,
    ) -> int:
        """Run ``uv pip <arguments>`` for ``interpreter`` and return its exit code.

        With ``progress`` it tells of big downloads as they begin and end.

        Raises:
            EnvironmentFailed: It could not be started or did not end in time.
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        command = [
            str(self.program),
            "pip",
            *arguments,
            "--python",
            str(interpreter.path),
            *self.config.arguments,
        ]
        command += ["--cache-dir", str(self.cache), "--color", "never", "--no-python-downloads"]
        command += _NO_PROJECT
        command += [] if progress else ["--no-progress"]
        # To build a source distribution runs its code, which is for a sandbox.
        command += [] if self.sandbox else ["--only-binary", ":all:"]
        command += ["--offline"] if offline else []
        environment = self._environment(writes)
        try:
            if self.sandbox is None:
                return process.run(
                    command,
                    environment=environment,
                    timeout_s=self.timeout_s,
                    output=output,
                    guard=self.guard(writes),
                )
            prefix = [interpreter.prefix] if interpreter.mounted else []
            return self.sandbox.run(
                command,
                read_only=same_place(self.program, *prefix, *self.config.paths, *reads),
                writable=same_place(*writes, self.cache),
                environment=environment,
                network=not offline,
                timeout_s=self.timeout_s,
                output=output,
            )
        except TimeoutError as error:
            raise EnvironmentFailed("EnvironmentFailed", f"uv took too long: {error}") from error
        except OSError as error:
            raise EnvironmentFailed("EnvironmentFailed", f"uv cannot be run: {error}") from error

    def find_python(self, version: str) -> Interpreter:
        """The interpreter of ``version`` that this machine has or uv can fetch.

        Raises:
            EnvironmentFailed: There is none.
        """
        try:
            if (found := self._find(version)) is None:
                self._python("install", version)
                found = self._find(version)
            if found is not None:
                return interpreters.from_answer(found, interpreters.ask(found))
        except (OSError, TimeoutError, ValueError) as error:
            raise EnvironmentFailed(
                "EnvironmentFailed", f"Python {version} cannot be used: {error}"
            ) from error
        raise EnvironmentFailed(
            "EnvironmentFailed",
            f"Python {version} is not on this machine and cannot be fetched; use an image",
        )

    def _find(self, version: str) -> Path | None:
        code, words = self._python("find", "--no-project", version)
        return Path(words.strip()) if code == 0 else None

    def _python(self, *arguments: str) -> tuple[int, str]:
        words = process.OutputTail()
        command = [str(self.program), "python", *arguments, *_NO_PROJECT, "--color", "never"]
        code = process.run(
            command, environment=self._environment(), timeout_s=self.timeout_s, output=words
        )
        return code, words.kept.decode("utf-8", "replace")

    def _environment(self, writes: Sequence[Path] = ()) -> Mapping[str, str]:
        made = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            **self.config.uv_environment(secrets=self.sandbox is None),
        }
        made["UV_CONCURRENT_BUILDS"] = "2"
        if self.sandbox is not None:
            home = str(writes[0] if writes else self.cache)
            made.update(HOME=home, TMPDIR=home, PATH="/usr/local/bin:/usr/bin:/bin")
        return made
