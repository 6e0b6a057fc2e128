"""The digest of a file, noted on the file itself, so that nobody has to read it again.

An extended attribute that a job could write, too, on files of its bucket. So the note carries a
proof that only this store can make, and it is bound to the file, its size, its time of change, and
to a moment: the system itself dates every later write, also one whose author turns the time of
change back. Where the file system keeps no attributes, digests are computed when they are asked
for.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from cloud_ml.errors import Unavailable

_NAME = "user.cloudml.sha256"
_NOTE = re.compile(r"([0-9a-f]{64}) ([0-9]{1,20}) ([0-9a-f]{64})")
_BLOCK = 1 << 20
_SETTLES_NS = 1_000_000_000
"""Time for the file to be put in its place, which the system dates as well."""
_TICK_NS = 2_000_000_000
"""No file system dates changes more coarsely. A job's file is not noted before its last change
is so old.
"""


class Notes:
    """Writes and believes notes.

    Args:
        folder: Where the key of the proofs is kept, out of reach of jobs; several processes may
            share it.
    """

    def __init__(self, folder: Path) -> None:
        self._key = _key(folder / ".notes-key")

    def note_upload(self, descriptor: int, sha256: str) -> None:
        """Note the digest of an upload that is written to its end and that no job can reach yet.

        Kernels before 6.13 date writes with a clock that ticks every few milliseconds, so a job
        could write in place in the tick of our last write and leave the time of change as it was.
        The file is therefore dated a nanosecond back: no later write is dated before that tick.
        """
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns - 1))
            self._note(descriptor, sha256)

    def _note(self, descriptor: int, sha256: str) -> None:
        """Note the digest of an open file; where that cannot be done, nothing happens."""
        until = time.time_ns() + _SETTLES_NS
        text = f"{sha256} {until} {self._proof(os.fstat(descriptor), sha256, until)}"
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, _NAME, text.encode())

    def noted(self, descriptor: int) -> str | None:
        """The digest that was noted, if the file is still the same."""
        try:
            found = _NOTE.fullmatch(os.getxattr(descriptor, _NAME).decode("ascii", "replace"))
        except OSError:
            return None
        if found is None:
            return None
        status = os.fstat(descriptor)
        sha256, until, proof = found[1], int(found[2]), found[3]
        right = hmac.compare_digest(proof, self._proof(status, sha256, until))
        return sha256 if right and status.st_ctime_ns <= until else None

    def digest(self, descriptor: int, stop: Callable[[], bool]) -> str:
        """The digest of an open file: the noted one, or one that is computed now, and noted if the
        file stood still.

        Raises:
            Unavailable: ``stop`` said so.
        """
        if (known := self.noted(descriptor)) is not None:
            return known
        began, before = time.time_ns(), os.fstat(descriptor)
        whole, position = hashlib.sha256(), 0
        while position < before.st_size and (block := os.pread(descriptor, _BLOCK, position)):
            if stop():
                raise Unavailable(
                    "the server is going down; the digest is not known", hint="ask again"
                )
            whole.update(block[: before.st_size - position])
            position += len(block)
        after = os.fstat(descriptor)
        stood_still = (before.st_size, before.st_ctime_ns) == (after.st_size, after.st_ctime_ns)
        # As git does: a file that was written within the last tick may be written again in it, and
        # nobody could tell.
        if stood_still and before.st_ctime_ns < began - _TICK_NS:
            self._note(descriptor, whole.hexdigest())
        return whole.hexdigest()

    def _proof(self, status: os.stat_result, sha256: str, until: int) -> str:
        text = f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {sha256} {until}"
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()


def _key(path: Path) -> bytes:
    """The key that every process of this store has; one of this process alone where it cannot be
    kept.
    """
    fresh = secrets.token_bytes(32)
    with contextlib.suppress(OSError):
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(fresh)
                file.flush()
                # Without fsync, a power failure could leave zeros in the file, which a job could
                # guess.
                os.fsync(descriptor)
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    try:
        kept = path.read_bytes()
    except OSError:
        return fresh
    return kept if len(kept) == len(fresh) else fresh
