"""The files in two archives of code, and what differs between them.

Whoever packed them may be out to harm: this runs in a process without rights, within bounds of
memory and processor time, and writes nothing to a disk.
"""

from __future__ import annotations

import bz2
import difflib
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

MOST_BYTES, MOST_FILES = 64 * 2**20, 5000
"""Of the files of one archive."""
_MOST_CHANGED, _MOST_DIFF, _MOST_DIFFS = 200, 40_000, 400_000
_TEXT_BYTES, _TEXT_LINES = 200_000, 3000
_LONGEST_PATH = 500
_CHUNK = 1 << 16
DAMAGE = (
    EOFError, OSError, RecursionError, RuntimeError, ValueError, OverflowError, KeyError,
    NotImplementedError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the readers of the standard library raise over bytes that make no sense."""


class TooMuch(ValueError):
    """There is more in an archive than is looked at."""


def files_of(data: bytes) -> dict[str, bytes]:
    """The plain files of a tar or a zip by their paths; other bytes are the one file ``""``.

    Raises:
        TooMuch: There are too many, or they are too large.
        ValueError: The archive is damaged.
    """
    try:
        if data[:2] == b"PK":
            return dict(_bounded(_zip_files(data)))
        whole = _inflated(data)
        # The magic of a tar. Tars of before POSIX have none: they are only looked for where a file
        # is packed.
        if whole[257:262] == b"ustar" or whole is not data:
            return dict(_bounded(_tar_files(whole)))
    except TooMuch:
        raise
    except DAMAGE as error:
        raise ValueError(f"the archive is damaged: {type(error).__name__}") from error
    return {"": data}


def _inflated(data: bytes) -> bytes:
    stream: Any
    if data[:2] == b"\x1f\x8b":
        stream = zlib.decompressobj(31)
    elif data[:3] == b"BZh":
        stream = bz2.BZ2Decompressor()
    elif data[:6] == b"\xfd7zXZ\x00":
        # The head of an xz file may ask for a dictionary of up to 4 GiB.
        stream = lzma.LZMADecompressor(memlimit=128 * 2**20)
    else:
        return data
    # One byte more than is allowed tells that there is more; no bomb becomes larger than that.
    whole: bytes = stream.decompress(data, MOST_BYTES + 1)
    if len(whole) > MOST_BYTES:
        raise TooMuch("it is too large")
    return whole


def _tar_files(whole: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
        for count, member in enumerate(archive):
            if count > 2 * MOST_FILES:
                raise TooMuch("it has too many members")
            # A sparse file may claim any size; code has none.
            if member.isreg() and not member.issparse():
                body = archive.extractfile(member)
                if body is not None:
                    yield member.name, body


def _zip_files(data: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if len(infos) > 2 * MOST_FILES:
            raise TooMuch("it has too many members")
        for info in infos:
            if info.filename and not info.is_dir():  # without a name, it asks for a last letter
                with archive.open(info) as body:
                    yield info.filename, body


def _bounded(files: Iterator[tuple[str, IO[bytes]]]) -> Iterator[tuple[str, bytes]]:
    left = MOST_BYTES
    for count, (name, body) in enumerate(files):
        if count >= MOST_FILES:
            raise TooMuch("it has too many files")
        content = body.read(left + 1)
        left -= len(content)
        if left < 0:
            raise TooMuch("its files are too large")
        yield name.removeprefix("./")[:_LONGEST_PATH], content


def differences(
    first: Mapping[str, bytes], second: Mapping[str, bytes], *, texts: bool = True
) -> list[dict[str, Any]]:
    """What differs, by path. With ``texts``, the changes of small texts as unified diffs."""
    names = sorted(first.keys() | second.keys())
    changed = [name for name in names if first.get(name) != second.get(name)]
    found, left = [], _MOST_DIFFS
    for name in changed[:_MOST_CHANGED]:
        before, after = first.get(name), second.get(name)
        diff, cut = _diff(name, before, after, min(left, _MOST_DIFF)) if texts else ("", False)
        left -= len(diff)
        found.append(
            {
                "path": _shown(name),
                "digests": [None if each is None else _digest(each) for each in (before, after)],
                "sizes": [None if each is None else len(each) for each in (before, after)],
                "diff": diff,
                "cut": cut,
            }
        )
    return found


def _diff(name: str, before: bytes | None, after: bytes | None, most: int) -> tuple[str, bool]:
    """(unified diff, whether there is more)."""
    old, new = _lines(before or b""), _lines(after or b"")
    if old is None or new is None or most <= 0:
        return "", False
    shown = _shown(name)
    text: list[str] = []
    size = 0
    for line in difflib.unified_diff(old, new, f"a/{shown}", f"b/{shown}", lineterm=""):
        size += len(line) + 1
        if size > most:
            return "\n".join(text), True
        text.append(line)
    return "\n".join(text), False


def _lines(content: bytes) -> list[str] | None:
    if len(content) > _TEXT_BYTES or b"\0" in content:
        return None
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= _TEXT_LINES else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
