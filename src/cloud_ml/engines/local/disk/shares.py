"""What every gang of this machine keeps on the disk, and who gives way when the disk is nearly
full.

Each supervisor has a file of its own here, locked while it lives, with what its gang takes. Whoever
needs room on a nearly full disk compares all of them: organisations have equal shares of what is
there, and the gangs of one organisation equal parts of its share. The gang that is furthest beyond
its share is asked to end, by a mark beside its file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_MARK = ".end"


@dataclass(frozen=True)
class DiskUse:
    """What a gang takes, in bytes."""

    gang: str
    tenant: int
    size: int


def furthest_beyond_share(uses: Sequence[DiskUse], room: int) -> DiskUse | None:
    """The gang that takes the most beyond its share of what is used and ``room``; ``None`` if none
    is beyond.

    Pure. The organisation is found first, then its gang, so that many small gangs are one large
    tenant.
    """
    if not uses:
        return None
    by_tenant: Counter[int] = Counter()
    for use in uses:
        by_tenant[use.tenant] += use.size
    share = (sum(by_tenant.values()) + max(0, room)) / len(by_tenant)
    # Break ties by number and name: all supervisors must choose the same gang.
    tenant, _ = max(by_tenant.items(), key=lambda item: (item[1], -item[0]))
    gangs = [use for use in uses if use.tenant == tenant]
    largest = max(gangs, key=lambda use: (use.size, use.gang))
    return largest if largest.size > share / len(gangs) else None


class DiskShares:
    """The files of all gangs, from the supervisor of one.

    Args:
        folder: Where they lie; made if need be.
        gang: Of this supervisor.
        tenant: Its organisation.
    """

    def __init__(self, folder: Path, gang: str, tenant: int) -> None:
        self._folder = folder
        self._gang = gang
        self._tenant = tenant
        self._file: int | None = None

    def note(self, size: int) -> None:
        """Say what the gang takes now. A full disk loses the news."""
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._open()
            # Pad to a fixed length, so that a shorter number overwrites a longer one completely.
            os.pwrite(self._file, f"{self._tenant:<20d} {size:<20d}".encode("ascii"), 0)

    def asked_to_end(self) -> bool:
        """Whether somebody needs the room of this gang."""
        return os.access(self._folder / f"{self._gang}{_MARK}", os.F_OK)

    def is_own(self, use: DiskUse) -> bool:
        """Whether that is this supervisor's gang."""
        return use.gang == self._gang

    def ask_to_end(self, gang: str) -> None:
        """Have the supervisor of a gang end it."""
        with contextlib.suppress(OSError):
            (self._folder / f"{gang}{_MARK}").touch(mode=0o600)

    def all(self) -> list[DiskUse]:
        """Every gang whose supervisor lives; files of others are removed."""
        return list(self._living())

    def close(self) -> None:
        """Take this gang's file away."""
        if self._file is not None:
            self._remove(self._gang)
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._remove(self._gang)
        file = os.open(self._folder / self._gang, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Use a record lock, because child processes do not inherit it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def _living(self) -> Iterator[DiskUse]:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._folder)):  # noqa: PTH208
                if name.endswith(_MARK):
                    self._remove_mark_of_none(name)
                elif (use := self._read(name)) is not None:
                    yield use

    def _remove_mark_of_none(self, name: str) -> None:
        if not (self._folder / name.removesuffix(_MARK)).exists():
            (self._folder / name).unlink(missing_ok=True)

    def _read(self, name: str) -> DiskUse | None:
        # Opening and closing the file again would release this process's own lock (fcntl(2)).
        if name == self._gang and self._file is not None:
            return _parse_share(name, os.pread(self._file, 64, 0))
        try:
            file = os.open(self._folder / name, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # The kernel releases a record lock when its process ends, so getting the lock proves
            # that the supervisor is gone.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return _parse_share(name, os.pread(file, 64, 0))
        else:
            self._remove(name)
            return None
        finally:
            os.close(file)

    def _remove(self, gang: str) -> None:
        for name in (gang, f"{gang}{_MARK}"):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()


def _parse_share(gang: str, content: bytes) -> DiskUse | None:
    words = content.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return DiskUse(gang, int(words[0]), int(words[1]))
