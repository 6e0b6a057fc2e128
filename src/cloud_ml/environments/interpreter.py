"""Interpreters of jobs: the platform's own, or one of another version."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import process
from cloud_ml.environments.files import digest_of, read_json, write_json


@dataclass(frozen=True)
class Interpreter:
    """A real interpreter, never a shim.

    ``path`` is the program, ``prefix`` the installation below which everything it needs lies,
    ``version`` such as ``3.11.7``.
    """

    path: Path
    prefix: Path
    version: str

    @property
    def minor(self) -> str:
        """``3.11`` of ``3.11.7``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def tag(self) -> str:
        """``cp311`` of ``3.11.7``."""
        return "cp" + self.minor.replace(".", "")

    @property
    def mounted(self) -> bool:
        """Whether a sandbox must be given the installation; one below ``/usr`` is there anyway."""
        return not self.prefix.is_relative_to("/usr")


def own() -> Interpreter:
    """The interpreter below the virtual environment that the platform itself runs in."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    prefix = Path(sys.base_prefix).resolve()
    minor = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (prefix / "bin" / minor, prefix / "bin" / "python3", Path(sys.executable)):
        if candidate.exists():
            return Interpreter(candidate.resolve(), prefix, version)
    raise FileNotFoundError(f"no interpreter below {prefix}")


def at(path: Path, home: Path) -> Interpreter:
    """The interpreter at ``path``; what it says of itself is kept below ``home``.

    Raises:
        OSError: It cannot be run.
        ValueError: It gives no sensible answer.
    """
    mine = own()
    if path.resolve() == mine.path:
        return mine
    facts = path.stat()
    kept = home / "interpreters" / f"{digest_of(str(path), str(path.resolve()), facts.st_mtime_ns)}.json"
    answer = read_json(kept)
    if not isinstance(answer, str):
        answer = ask(path)
        write_json(kept, answer)
    return from_answer(path, answer)


def ask(path: Path) -> str:
    """The answer of the interpreter at ``path`` to `QUESTION`."""
    words = process.Words()
    process.run([str(path), "-I", "-S", "-c", QUESTION], environment={}, timeout_s=60, output=words)
    return words.kept.decode("utf-8", "replace")


QUESTION = "import sys; sys.stdout.write('%s\\n%s' % (sys.base_prefix, '.'.join(map(str, sys.version_info[:3]))))"


def from_answer(path: Path, answer: str) -> Interpreter:
    """The interpreter at ``path`` by its answer to `QUESTION`.

    Raises:
        ValueError: The answer makes no sense.
    """
    lines = answer.splitlines()
    if len(lines) != 2 or not lines[1][:1].isdigit():
        raise ValueError(f"{path} is no interpreter: {answer[:200]!r}")
    prefix, version = lines
    return Interpreter(path.resolve(), Path(prefix).resolve(), version)
