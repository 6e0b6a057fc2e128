"""What a harness of a parser is, and where they are all kept.

A harness is a function of bytes that says what must hold for any of them: which errors are the
documented ones, what comes back when it is written out again, that two readers agree. It returns
when all is well and raises otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())

Harness = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """A harness, the modules whose parsers it drives, inputs to begin with, and words of the
    grammar.
    """

    name: str
    covers: tuple[str, ...]
    run: Harness
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...]

    @property
    def kept(self) -> Path:
        """Inputs that once were found, a line each, escaped: what broke a parser stays here."""
        return CORPUS / f"{self.name}.txt"

    def inputs(self) -> list[bytes]:
        """All that is known to be worth trying."""
        lines = self.kept.read_text("ascii").splitlines() if self.kept.exists() else []
        return [*self.seeds, *map(unescaped, lines)]


TARGETS: dict[str, Target] = {}
"""All that were registered."""


def load(only: str | None = None) -> dict[str, Target]:
    """Every harness by its name, or those of one module of ``fuzz.targets``."""
    for module in pkgutil.iter_modules([str(FOLDER / "targets")]):
        if only in (None, module.name):
            importlib.import_module(f"fuzz.targets.{module.name}")
    return TARGETS


def target(
    *covers: str, seeds: Sequence[bytes | str], words: Sequence[bytes | str] = ()
) -> Callable[[Harness], Harness]:
    """Register a harness under its own name."""

    def register(run: Harness) -> Harness:
        name = run.__name__
        assert name not in TARGETS, name
        assert seeds, name
        TARGETS[name] = Target(
            name, covers, run, tuple(map(_bytes, seeds)), tuple(map(_bytes, words))
        )
        return run

    return register


def escaped(data: bytes) -> str:
    """One line of ASCII for any bytes."""
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def unescaped(line: str) -> bytes:
    """The reverse."""
    return line.encode("ascii").decode("unicode_escape").encode("latin-1")


def text(data: bytes) -> str:
    """Text as a program may meet it: halves of surrogate pairs stand for what is no UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def pieces(data: bytes, count: int) -> list[bytes]:
    """``data`` in so many parts, with zero bytes between them."""
    found = data.split(b"\0", count - 1)
    return found + [b""] * (count - len(found))


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The same bytes in pieces: a byte each, and in two at some places."""
    yield [data[at : at + 1] for at in range(len(data))]
    for at in {1, len(data) // 2, len(data) - 1} - {-1, 0}:
        yield [data[:at], data[at:]]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory for a moment."""
    folder = Path(tempfile.mkdtemp(prefix="cloudml-fuzz-", dir=MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bytes(one: bytes | str) -> bytes:
    return one.encode("utf-8", "surrogateescape") if isinstance(one, str) else one
