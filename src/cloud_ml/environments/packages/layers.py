"""Layers: read-only folders of installed distributions, named by what they hold and shared by
jobs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import inside, process
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.files import digest_of, is_real_folder, make_once
from cloud_ml.environments.interpreter import Interpreter
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages.bytecode import compile_packages
from cloud_ml.environments.packages.requirements import locked_versions, without_secrets
from cloud_ml.environments.packages.resolve import first_reason
from cloud_ml.environments.packages.uv import Uv, is_of_network
from cloud_ml.environments.removing import remove
from cloud_ml.environments.trainers.wheels import make_scripts


@dataclass(frozen=True)
class Store:
    """Layers below ``folder``, installed by ``uv`` (inside the tenant's sandbox if that has
    one).
    """

    folder: Path
    locks: Path
    uv: Uv
    log: process.Output
    leases: Leases
    tries: int = 3
    """How often packages are downloaded where the network fails."""
    pause_s: float = 2.0
    """Seconds before the second try; twice as long before each later one."""

    def layer(self, lock: str, interpreter: Interpreter) -> Path:
        """The folder of packages of the layer that holds exactly ``lock``, installed if it is not
        there, and held.

        Raises:
            EnvironmentFailed: It cannot be installed; the tool's words are in the log.
        """
        target = self.place(lock, interpreter)
        while True:  # it may be evicted before it is held
            make_once(
                target,
                lambda work: self._install(work, lock, interpreter),
                locks=self.locks,
                waiting=lambda: self.log(
                    b"Waiting for another job that installs the same packages\n"
                ),
            )
            if self.leases.take(target):
                break
        return target / "site-packages"

    def place(self, lock: str, interpreter: Interpreter) -> Path:
        """The folder of the layer that holds exactly ``lock``, whether or not it is there."""
        return self.folder / digest_of(
            "layer", 2, lock, interpreter.version, str(interpreter.prefix)
        )

    def _install(self, work: Path, lock: str, interpreter: Interpreter) -> None:
        requirements, out = work / "lock.txt", work / "out"
        requirements.write_text(lock)
        out.mkdir()
        count = len(locked_versions(lock))
        self.log(
            f"Installing {count} package{'s' * (count != 1)} that no job has needed here "
            "before\n".encode()
        )
        self._download(requirements, out, lock, interpreter)
        compile_packages(out / "site-packages", interpreter, self.uv, self.log)
        if self.uv.sandbox is None:
            make_scripts(out / "site-packages")
        else:
            inside.call(
                self.uv.sandbox,
                "scripts",
                [str(out / "site-packages")],
                writes=[out],
                timeout_s=600,
                output=self.log,
            )
        (out / "site-packages").rename(work / "site-packages")

    def _download(self, requirements: Path, out: Path, lock: str, interpreter: Interpreter) -> None:
        """Install into ``out``, again where the network failed."""
        for number in range(1, self.tries + 1):
            remove(out / "site-packages")
            words = _UvOutput(self.log)
            code = self.uv.run(
                _arguments(requirements, out / "site-packages", hashed=" @ git+" not in lock),
                output=words,
                progress=True,
                interpreter=interpreter,
                reads=[requirements],
                writes=[out],
            )
            if not code and is_real_folder(out / "site-packages"):
                return
            output = words.kept
            if number == self.tries or not is_of_network(output):
                break
            pause_s = self.pause_s * 2 ** (number - 1)
            why = (
                without_secrets(first_reason(output.decode("utf-8", "replace")))
                or "the network failed"
            )
            self.log(
                f"The download failed: {why}. Try {number + 1} of {self.tries} in {pause_s:g} "
                "s\n".encode()
            )
            time.sleep(pause_s)
        self.log(output)
        why = "the network failed" if is_of_network(output) else "see the log for uv's words"
        raise EnvironmentFailed("EnvironmentFailed", f"the packages could not be installed: {why}")


_LINE_BYTES = 8192
_PROGRESS_LINES = (b"Downloading ", b"Downloaded ", b"Installed ")


class _UvOutput(process.OutputTail):
    """Keeps what uv says, and passes lines about big downloads and what takes long on as they
    come.
    """

    def __init__(self, log: process.Output) -> None:
        super().__init__()
        self._log = log
        self._line = b""

    def __call__(self, chunk: bytes) -> None:
        *lines, self._line = (self._line + chunk).split(b"\n")
        if len(self._line) > _LINE_BYTES:  # a build may print without end, and without a line break
            lines.append(self._line)
            self._line = b""
        for line in lines:
            if line.strip().startswith(_PROGRESS_LINES):
                self._log(line.strip() + b"\n")
            else:
                super().__call__(line + b"\n")

    @property
    def kept(self) -> bytes:
        """The last words, without those that were passed on."""
        super().__call__(self._line)
        self._line = b""
        return super().kept


def _arguments(requirements: Path, target: Path, *, hashed: bool) -> Sequence[str]:
    """Exactly what the lock says; only code from a repository comes without a hash."""
    return (
        *("install", "--target", str(target), "--no-deps", "--requirement", str(requirements)),
        # Layers share files with uv's cache by hard links, so both must be on one file system.
        *("--link-mode", "hardlink"),
        *(["--require-hashes"] if hashed else []),
    )
