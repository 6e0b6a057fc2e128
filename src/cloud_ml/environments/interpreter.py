"""Interpreters of jobs: the platform's own, or one of another version."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.environments import process
from cloud_ml.environments.files import digest_of, read_json, write_json
from cloud_ml.environments.packages.versions import release

_PROGRAM = re.compile(r"python3\.\d{1,2}")
_OLDEST = (3, 8)


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


@functools.cache
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
    if os.path.realpath(path) == str(mine.path):
        return mine
    facts = path.stat()
    kept = (
        home
        / "interpreters"
        / f"{digest_of(str(path), str(path.resolve()), facts.st_mtime_ns)}.json"
    )
    answer = read_json(kept)
    if not isinstance(answer, str):
        answer = ask(path)
        write_json(kept, answer)
    return from_answer(path, answer)


def find_installed(home: Path, places: Iterable[Path] | None = None) -> dict[str, Interpreter]:
    """Minor version → the interpreter of this machine with the highest release of it, oldest first.

    The platform's own stands for its version. What cannot be run, and what is older than uv can
    serve, is passed over.
    """
    mine = own()
    found = {mine.minor: mine}
    for path in _programs(_usual_places(os.environ) if places is None else places):
        try:
            one = at(path, home)
        except (OSError, ValueError, TimeoutError):
            continue
        known = release(found[one.minor].version) if one.minor in found else _OLDEST
        if one.minor != mine.minor and release(one.version) > known:
            found[one.minor] = one
    return dict(sorted(found.items(), key=lambda entry: release(entry[0])))


def _usual_places(environ: Mapping[str, str]) -> Iterator[Path]:
    """Folders in which programs of Python lie: the search path, and where pyenv and uv install
    to.
    """
    home = Path(environ.get("HOME", "/nonexistent"))
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    versions = (
        Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions",
        Path(environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python"),
        Path(sys.base_prefix).resolve().parent,
    )
    for folder in (
        *map(Path, environ.get("PATH", "").split(":")),
        Path("/usr/local/bin"),
        Path("/usr/bin"),
    ):
        # Shims of pyenv are slow, and are not the interpreter.
        if folder.is_absolute() and folder.name != "shims":
            yield folder
    for folder in versions:
        yield from _matching(folder, "*/bin")
    yield from _matching(Path("/opt"), "python*/bin")


def _matching(folder: Path, pattern: str) -> list[Path]:
    """What a pattern finds; nothing in a folder of somebody else."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _programs(places: Iterable[Path]) -> Iterator[Path]:
    """Programs named ``python3.N`` in ``places``, each real file once."""
    seen: set[Path] = set()
    for place in dict.fromkeys(places):
        try:
            names = sorted(name for name in os.listdir(place) if _PROGRAM.fullmatch(name))  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            real = (place / name).resolve()
            if real not in seen and os.access(real, os.X_OK):
                seen.add(real)
                yield place / name


def ask(path: Path) -> str:
    """The answer of the interpreter at ``path`` to `QUESTION`."""
    words = process.OutputTail()
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
