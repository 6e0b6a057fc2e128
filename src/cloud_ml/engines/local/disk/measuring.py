"""What a job's files take on the disk, however it hides them: counted little by little, so that
nobody waits.

A tree that its owner changes meanwhile is measured as well as it goes; links are not followed, and
a file of several names counts once. Files without a name count while a process has them open or
mapped. What is only on its way in a socket between two processes is not found.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# The unit of st_blocks, whatever the block size of the file system (stat(2)).
_BLOCK = 512
_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine)
_KCMP_FILES = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Hidden(Exception):
    """Something cannot be measured; the message says what."""


@dataclass
class Sum:
    """What was counted so far: bytes on the disk, and files and folders."""

    size: int = 0
    files: int = 0


def count(folders: Iterable[str], processes: Iterable[int], total: Sum) -> Iterator[None]:
    """Add to ``total``, pausing after every file.

    Raises:
        Hidden: A folder is closed to its own user, or too deep for any path.
    """
    seen: set[tuple[int, int]] = set()
    for facts in _below(folders):
        if (
            # Only a file with several hard links can be seen twice, so remember only those.
            facts.st_nlink == 1
            or stat.S_ISDIR(facts.st_mode)
            or _new(facts.st_dev, facts.st_ino, seen)
        ):
            total.size += facts.st_blocks * _BLOCK
            total.files += 1
        yield
    for pid in processes:
        for device, inode, size in (*_open(pid), *_list_mapped(pid)):
            if _new(device, inode, seen):
                total.size += size
                total.files += 1
            yield


def _new(device: int, inode: int, seen: set[tuple[int, int]]) -> bool:
    if (device, inode) in seen:
        return False
    seen.add((device, inode))
    return True


def _below(folders: Iterable[str]) -> Iterator[os.stat_result]:
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        yield entry.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise Hidden("its folders are nested deeper than any path") from None
            if error.errno == errno.EACCES:
                raise Hidden(
                    f"a folder is closed to its own user: {os.path.basename(folder)}"  # noqa: PTH119
                ) from None


def _open(pid: int) -> Iterator[tuple[int, int, int]]:
    """Files without a name that any thread has open: threads of a hostile program need not share
    their files.
    """
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        for thread in threads:
            if thread != str(pid) and _same_files(pid, int(thread)):
                continue
            folder = f"/proc/{pid}/task/{thread}/fd"
            for name in os.listdir(folder):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    facts = os.stat(f"{folder}/{name}")  # noqa: PTH116 - the file, not its name
                    if facts.st_nlink == 0 and stat.S_ISREG(facts.st_mode):
                        yield facts.st_dev, facts.st_ino, facts.st_blocks * _BLOCK


def _same_files(one: int, other: int) -> bool:
    # Threads usually share one file table: one kcmp call replaces a listing for each thread.
    return _KCMP is not None and _libc.syscall(_KCMP, one, other, _KCMP_FILES, 0, 0) == 0


def _list_mapped(pid: int) -> Iterator[tuple[int, int, int]]:
    """Files without a name that are mapped, though nobody has them open any more."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123
        for line in maps:
            if not line.endswith(b" (deleted)\n"):
                continue
            words: Sequence[bytes] = line.split(None, 5)
            if len(words) < 6 or words[5].startswith(
                (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero")
            ):
                continue  # memory, which has a limit of its own
            place = words[0].decode("ascii")
            try:
                facts = os.stat(f"/proc/{pid}/map_files/{place}")  # noqa: PTH116
                yield facts.st_dev, facts.st_ino, facts.st_blocks * _BLOCK
            except OSError:  # only root may look there: what is mapped is the most that we know
                major, _, minor = words[3].partition(b":")
                begin, _, end = place.partition("-")
                yield (
                    os.makedev(int(major, 16), int(minor, 16)),
                    int(words[4]),
                    int(end, 16) - int(begin, 16),
                )
