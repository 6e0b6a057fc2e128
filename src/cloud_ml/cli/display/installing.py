"""How far the installation of packages is, read from the lines about it in a job's log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_BEGINS = re.compile(rb"Installing (\d{1,6}) packages? that no job has needed here before$")
_ANNOUNCED = re.compile(rb"Downloading (\S{1,200}) \((\d{1,6}(?:\.\d{1,3})?)(B|KiB|MiB|GiB)\)$")
_ARRIVED = re.compile(rb"Downloaded (\S{1,200})$")
_IN_PLACE = re.compile(rb"Installed \d{1,6} packages? in ")
_ENDS = re.compile(rb"Bytecode compiled \d{1,9} files? in |Installed \S+ with ")
_BYTES = {b"B": 1, b"KiB": 2**10, b"MiB": 2**20, b"GiB": 2**30}
_LONGEST = 512
"""No line about an installation is longer; what a job's code prints may be."""


@dataclass(frozen=True)
class Progress:
    """An installation that is under way: its packages, and the bytes of the big downloads that
    were announced.
    """

    packages: int
    done: int = 0
    total: int = 0
    current: str = ""
    """The largest package that is being downloaded."""
    compiling: bool = False
    """They are in place, and their code is being compiled."""


@dataclass
class _Downloads:
    packages: int
    sizes: dict[str, int] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    in_place: bool = False

    def progress(self) -> Progress:
        missing = [name for name in self.sizes if name not in self.arrived]
        total = sum(self.sizes.values())
        done = total - sum(self.sizes[name] for name in missing)
        return Progress(
            self.packages,
            done,
            total,
            max(missing, key=self.sizes.__getitem__, default=""),
            self.in_place,
        )


class Installing:
    """Is fed a log as it comes; ``now`` may be read by another thread meanwhile."""

    def __init__(self) -> None:
        self.now: Progress | None = None
        """Where the installation stands; None while there is none."""
        self.changed: Callable[[], object] = lambda: None
        """Called whenever ``now`` has changed."""
        self._downloads: _Downloads | None = None
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of the log; they may end within a line."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:_LONGEST]
        for line in lines:
            if len(line) <= _LONGEST:
                self._read(line.strip())

    def passing(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same chunks, each fed on its way."""
        for chunk in chunks:
            self.feed(chunk)
            yield chunk

    def _read(self, line: bytes) -> None:
        if begins := _BEGINS.match(line):
            self._downloads = _Downloads(int(begins[1]))
        elif self._downloads is None:
            return
        elif _ENDS.match(line):
            self._downloads = None
        elif _IN_PLACE.match(line):
            self._downloads.in_place = True
        elif announced := _ANNOUNCED.match(line):
            if len(self._downloads.sizes) < self._downloads.packages:
                size = float(announced[2]) * _BYTES[announced[3]]
                self._downloads.sizes[announced[1].decode(errors="replace")] = round(size)
        elif arrived := _ARRIVED.match(line):
            name = arrived[1].decode(errors="replace")
            if name in self._downloads.sizes:
                self._downloads.arrived.add(name)
        else:
            return
        self.now = self._downloads.progress() if self._downloads else None
        self.changed()
