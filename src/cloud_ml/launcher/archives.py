"""Unpack a trainer's archive by our own rules: whoever packed it may be out to harm.

Runs as the job's user inside its sandbox, with whatever Python (3.6 or newer) is there; hence one
file that imports nothing of ours::

    python archives.py [--strip] ARCHIVE TARGET

What an archive may hold: folders, plain files, links that stay inside. What its members are called:
relative paths without ``..``, backslashes, drive letters or control characters. What comes out
belongs to the caller, has mode 0644 or 0755 (folders, and files that were executable) less the
umask, and today's date; no special bits, owners or times are taken over. A member that comes twice
replaces a file or a link, never a folder.

Why links cannot lead out, though each is looked at by itself: a link's ``..`` may only stand in
front, where it climbs real folders (nothing is ever written through a link, so the link's own
folder is real) and ends inside. All that follows goes down, or through a link of which the same
holds.
"""

import bz2
import errno
import gzip
import itertools
import json
import lzma
import os
import re
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from typing import IO, Any, Dict, List, NamedTuple, Optional, Tuple, Union

Parts = Tuple[str, ...]

CHUNK = 1 << 16
BLOCK = 512
HEADER_LIMIT = 1 << 20
"""Most that tarfile may ask for at once: by the format, a member's "name" could be gigabytes
long.
"""
PAX_KEYWORDS = 1000
"""Most keywords that an archive may set for all members that follow: tarfile copies them for
each member.
"""
FORMATS = "tar, tar.gz, tar.bz2, tar.xz or zip"

_FOLDER, _FILE, _LINK = "folder", "file", "link"
_DAMAGE = (
    EOFError,
    RecursionError,
    RuntimeError,
    ValueError,
    OverflowError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the readers of the standard library raise over bytes that make no sense."""


class ArchiveError(Exception):
    """The archive is refused, damaged or of no known format. The message names the member."""


class Limits(NamedTuple):
    """Caps on what comes out.

    ``members`` bounds what the archive lists, and also what comes out, with the folders that are
    only implied. All files together may be ``ratio`` times the archive's size, or
    ``ratio_from_bytes`` if that is more, and ``total_bytes`` at most.
    """

    members: int = 100000
    total_bytes: int = 8 << 30
    ratio: int = 200
    ratio_from_bytes: int = 64 << 20
    name_bytes: int = 1024
    depth: int = 64

    def allowance(self, archive_bytes: int) -> int:
        """Bytes that an archive of this size may grow to."""
        return min(self.total_bytes, max(self.ratio_from_bytes, self.ratio * archive_bytes))


class Summary(NamedTuple):
    """What was unpacked. ``stripped`` is the name of the top folder that was left out, or empty."""

    files: int
    folders: int
    links: int
    bytes: int
    stripped: str


DEFAULT_LIMITS = Limits()


def unpack(
    archive: Union[str, int], target: str, limits: Limits = DEFAULT_LIMITS, strip: bool = False
) -> Summary:
    """Unpack a tar (plain, gzip, bzip2, xz) or zip (whl) archive; its content tells which it is.

    Args:
        archive: The file, or a descriptor of it, which is closed.
        target: A folder that is empty or absent, and that nobody else writes to meanwhile.
        limits: Caps on what comes out.
        strip: Leave out the top folder if everything lies in a single one.

    Raises:
        ArchiveError: The archive breaks a rule or is damaged. What was unpacked so far stays: throw
            the folder away.
        OSError: The archive cannot be read, or the target not written.
    """
    os.makedirs(target, exist_ok=True)
    if os.listdir(target):
        raise ArchiveError("the folder %s is not empty" % target)
    tree = _Tree(target, limits, limits.allowance(os.path.getsize(archive)))
    try:
        with open(archive, "rb") as file:
            _unpack_into(tree, file)
        return tree.summary(tree.hoist() if strip else "")
    finally:
        tree.close()


def member_path(name: str, limits: Limits = DEFAULT_LIMITS) -> Parts:
    """The components of a member's name; none for the root itself.

    Raises:
        ArchiveError: The name is no path that stays inside.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        raise _archive_error(name, "the path is absolute")
    if "\\" in name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise _archive_error(name, "the path has a backslash or a control character")
    if ".." in parts:
        raise _archive_error(name, "the path has '..'")
    if len(_encode_name(name)) > limits.name_bytes or any(
        len(_encode_name(part)) > 255 for part in parts
    ):
        raise _archive_error(
            name, "the path is over %d bytes, or a name in it over 255" % limits.name_bytes
        )
    if len(parts) > limits.depth:
        raise _archive_error(name, "the path is deeper than %d" % limits.depth)
    return parts


def link_climbs(parts: Parts, target: str) -> int:
    """How many folders up the target of the link at ``parts`` begins.

    Raises:
        ArchiveError: The target is absolute, leaves the root, or climbs after it has gone down.
    """
    name, steps = "/".join(parts), [step for step in target.split("/") if step not in ("", ".")]
    climbs = len(list(itertools.takewhile(lambda step: step == "..", steps)))
    if not target or target.startswith("/") or re.match("[A-Za-z]:", target):
        raise _archive_error(name, "the link to %s is not relative" % printable_name(target))
    if "\\" in target or "\0" in target or len(_encode_name(target)) > 4095:
        raise _archive_error(name, "the link to %s is no path" % printable_name(target))
    if climbs >= len(parts) or ".." in steps[climbs:]:
        raise _archive_error(
            name, "the link to %s leads out of the archive, or might" % printable_name(target)
        )
    return climbs


def printable_name(name: str) -> str:
    """A member's name as it may stand in a log: one line, bounded."""
    text = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in name
    )
    return text if len(text) <= 200 else text[:197] + "..."


class _Tree:
    """The folder that is being filled, and all that was put there."""

    def __init__(self, target: str, limits: Limits, allowance: int) -> None:
        self.limits = limits
        self.allowance = allowance
        self.where = "the archive"
        self._root = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
        self._kinds: Dict[Parts, str] = {}
        self._climbs: Dict[Parts, int] = {}
        self._members = 0
        self._bytes = 0
        self._parent: Parts = ()
        self._parent_fd = os.dup(self._root)

    def close(self) -> None:
        os.close(self._parent_fd)
        os.close(self._root)

    def begin(self, name: str) -> None:
        """Count a member and remember whose fault the next error is."""
        self.where = name
        self._members += 1
        self._check_count(self._members)

    def add_folder(self, parts: Parts) -> None:
        self._enter(parts)

    def add_file(self, parts: Parts, source: "IO[bytes]", size: int, executable: bool) -> None:
        """Copy ``source``, which must give ``size`` bytes."""
        if size < 0 or self._bytes + size > self.allowance:
            raise _archive_error(
                self.where, "what is unpacked grows over %d bytes" % self.allowance
            )
        folder = self._make_room(parts, _FILE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(
            os.open(_encode_name(parts[-1]), flags, 0o755 if executable else 0o644, dir_fd=folder),
            "wb",
        ) as file:
            left = size
            while left:
                chunk = source.read(min(CHUNK, left))
                if not chunk:
                    raise EOFError("%d bytes are missing" % left)
                file.write(chunk)
                left -= len(chunk)
            if source.read(1):
                raise ValueError("there is more than was announced")
        self._bytes += size

    def add_link(self, parts: Parts, target: str) -> None:
        self._climbs[parts] = link_climbs(parts, target)
        os.symlink(
            _encode_name(target), _encode_name(parts[-1]), dir_fd=self._make_room(parts, _LINK)
        )

    def add_hard_link(self, parts: Parts, source: Parts) -> None:
        """Give a second name to a plain file of this archive that is there already."""
        if self._kinds.get(source) != _FILE or source == parts:
            raise _archive_error(
                self.where,
                "the link to %s is to no file before it" % printable_name("/".join(source)),
            )
        self._make_room(parts, _FILE)
        source_folder = os.dup(self._enter(source[:-1]))
        try:
            folder = self._enter(parts[:-1])
            names = _encode_name(source[-1]), _encode_name(parts[-1])
            os.link(*names, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(source_folder)

    def hoist(self) -> str:
        """Move the content of the only top folder up; returns its name, empty if there is none."""
        tops = {parts[0] for parts in self._kinds}
        if len(tops) != 1 or self._kinds[tuple(tops)] != _FOLDER:
            return ""
        (top,) = tops
        for parts, climbs in self._climbs.items():
            if climbs >= len(parts) - 1 and self._kinds[parts] == _LINK:
                raise _archive_error(
                    "/".join(parts), "the link leads out of %s" % printable_name(top)
                )
        inside = {parts[1] for parts in self._kinds if len(parts) > 1}
        # The folder may hold a member of its own name, so it gets a name that no member has.
        spare = next(
            name for name in map("unpacked-{}".format, itertools.count()) if name not in inside
        )
        os.rename(_encode_name(top), spare, src_dir_fd=self._root, dst_dir_fd=self._root)
        folder = os.open(spare, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._root)
        try:
            for name in map(_encode_name, inside):
                os.rename(name, name, src_dir_fd=folder, dst_dir_fd=self._root)
        finally:
            os.close(folder)
        os.rmdir(spare, dir_fd=self._root)
        del self._kinds[(top,)]
        return top

    def summary(self, stripped: str) -> Summary:
        kinds = list(self._kinds.values())
        return Summary(
            kinds.count(_FILE), kinds.count(_FOLDER), kinds.count(_LINK), self._bytes, stripped
        )

    def _make_room(self, parts: Parts, kind: str) -> int:
        """Note a file or link at ``parts`` and remove an older one; returns its folder's
        descriptor.
        """
        if not parts:
            raise _archive_error(self.where, "the root can only be a folder")
        folder = self._enter(parts[:-1])
        before = self._kinds.get(parts)
        if before == _FOLDER:
            raise _archive_error(self.where, "a folder of that name came before")
        if before is not None:
            os.unlink(_encode_name(parts[-1]), dir_fd=folder)
        self._note(parts, kind)
        return folder

    def _enter(self, parts: Parts) -> int:
        """Make the folder if need be and return its descriptor, which is good until the next
        call.
        """
        if parts == self._parent:
            return self._parent_fd
        folder = os.dup(self._root)
        try:
            for depth in range(1, len(parts) + 1):
                folder, upper = self._step_into(folder, parts[:depth]), folder
                os.close(upper)
        except BaseException:
            os.close(folder)
            raise
        os.close(self._parent_fd)
        self._parent, self._parent_fd = parts, folder
        return folder

    def _step_into(self, upper: int, parts: Parts) -> int:
        kind = self._kinds.get(parts)
        if kind is None:
            self._note(parts, _FOLDER)
            os.mkdir(_encode_name(parts[-1]), 0o755, dir_fd=upper)
        elif kind != _FOLDER:
            raise _archive_error(self.where, "%s is a %s" % (printable_name("/".join(parts)), kind))
        return os.open(
            _encode_name(parts[-1]), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=upper
        )

    def _note(self, parts: Parts, kind: str) -> None:
        self._kinds[parts] = kind
        self._check_count(len(self._kinds))

    def _check_count(self, count: int) -> None:
        if count > self.limits.members:
            raise _archive_error(self.where, "there are more than %d members" % self.limits.members)


class _Stream:
    """An unpacked tar stream for ``tarfile``: forward only, bounded, and it remembers its last
    read.
    """

    def __init__(self, source: "IO[bytes]", limit: int) -> None:
        self._source = source
        self._limit = limit
        self._position = 0
        self.last = b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= HEADER_LIMIT:
            raise ValueError("a header of %d bytes" % size)
        self.last = self._source.read(size)
        self._position += len(self.last)
        if self._position > self._limit:
            raise ValueError("it grows over %d bytes" % self._limit)
        return self.last

    def seek(self, position: int) -> None:
        if position < self._position:
            raise ValueError("members overlap")
        while self._position < position and self.read(min(CHUNK, position - self._position)):
            pass


def _unpack_into(tree: _Tree, file: "IO[bytes]") -> None:
    start = file.read(6)
    file.seek(0)
    try:
        if start[:4] in (b"PK\3\4", b"PK\5\6"):
            _unpack_zip(tree, file)
        else:
            _unpack_tar(tree, _decompress(file, start))
    except _DAMAGE as error:
        raise _archive_error(
            tree.where, "damaged, cut off or no %s (%s)" % (FORMATS, printable_name(str(error)))
        ) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):
            raise
        # gzip and bz2 raise a bare OSError over bytes that make no sense; zipfile asks for places
        # before the start.
        raise _archive_error(
            tree.where, "damaged, cut off or no %s (%s)" % (FORMATS, printable_name(str(error)))
        ) from error


def _decompress(file: "IO[bytes]", start: bytes) -> "IO[bytes]":
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    return file


def _unpack_tar(tree: _Tree, source: "IO[bytes]") -> None:
    stream = _Stream(source, tree.allowance + HEADER_LIMIT + 4 * BLOCK * tree.limits.members)
    tar = tarfile.TarFile(fileobj=stream, encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]
    while True:
        member = tar.next()
        if member is None:
            break
        if len(tar.pax_headers) > PAX_KEYWORDS:
            raise ValueError("more than %d keywords for all members" % PAX_KEYWORDS)
        tar.members = []  # type: ignore[attr-defined]  # it would keep all of them for lookups we do not make
        tree.begin(member.name)
        _add_tar_member(tree, tar, member)
        tree.where = "after " + member.name
    # tarfile takes a broken header for the end; a real end is a block of zeros.
    if stream.last != bytes(BLOCK):
        raise EOFError("there is no end mark")
    tree.where = "the archive"
    while stream.read(CHUNK):  # reads the checksum at the end of the compressed stream
        pass


def _add_tar_member(tree: _Tree, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    parts = member_path(member.name, tree.limits)
    if member.isdir():
        tree.add_folder(parts)
    elif member.issym():
        tree.add_link(parts, member.linkname)
    elif member.islnk():
        tree.add_hard_link(parts, member_path(member.linkname, tree.limits))
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        tree.add_file(parts, content, member.size, bool(member.mode & stat.S_IXUSR))
    else:
        raise _archive_error(member.name, "devices, pipes and other special files are not allowed")


def _unpack_zip(tree: _Tree, file: "IO[bytes]") -> None:
    with zipfile.ZipFile(file) as bundle:
        for member in bundle.infolist():
            tree.begin(member.filename)
            _add_zip_member(tree, bundle, member)


def _add_zip_member(tree: _Tree, bundle: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    parts = member_path(member.filename, tree.limits)
    unix = 3
    # Only Unix stores the file mode there.
    mode = member.external_attr >> 16 if member.create_system == unix else 0
    if member.flag_bits & 1:
        raise _archive_error(member.filename, "encrypted members are not allowed")
    if member.filename.endswith("/"):
        tree.add_folder(parts)
    # A longer text is no path (PATH_MAX), and is not read into memory.
    elif stat.S_ISLNK(mode) and member.file_size < 4096:
        tree.add_link(parts, bundle.read(member).decode("utf-8", "surrogateescape"))
    elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
        with bundle.open(member) as content:
            tree.add_file(parts, content, member.file_size, bool(mode & stat.S_IXUSR))
    else:
        raise _archive_error(
            member.filename, "devices, pipes and other special files are not allowed"
        )


def _archive_error(name: str, why: str) -> ArchiveError:
    return ArchiveError("%s: %s" % (printable_name(name), why))


def _encode_name(name: str) -> bytes:
    """Bytes, whatever the locale: old interpreters would take a C locale for ASCII."""
    return name.encode("utf-8", "surrogateescape")


def main(arguments: Optional[List[str]] = None) -> int:
    """Unpack and print the summary as JSON; 1 and a sentence on standard error if it is refused."""
    import argparse  # noqa: PLC0415 - not where this file is a module

    parser = argparse.ArgumentParser(description="Unpack an archive that nobody vouches for.")
    parser.add_argument("--strip", action="store_true", help="leave out a single top folder")
    parser.add_argument("archive")
    parser.add_argument("target")
    options: Any = parser.parse_args(arguments)
    try:
        summary = unpack(options.archive, options.target, strip=options.strip)
    except (ArchiveError, OSError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    sys.stdout.write(json.dumps(summary._asdict()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
