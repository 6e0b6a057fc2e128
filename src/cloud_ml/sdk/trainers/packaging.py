"""From a user's code to one file that the server can install.

=====================================  ========================================================
what is given                          what is sent
=====================================  ========================================================
a folder with a project                its files, packed (``pyproject.toml`` or ``setup.py``)
a package folder (``__init__.py``)     the folder itself, packed, so that it can be imported
any other folder                       its files, packed; ``requirements.txt`` counts
``.tar.gz .tgz .tar .zip .whl``        the file as it is
``.py``                                the script; packed with the modules beside it that it
                                       imports and the files that say what it requires, if any
=====================================  ========================================================

Packing is deterministic: the same files give the same bytes on every machine, so that the server
keeps them once and what was installed before is not installed again.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shlex
import stat
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cloud_ml.errors import InvalidRequest, TooLarge
from cloud_ml.models.common import format_memory, refuse
from cloud_ml.models.paths.ignoring import (
    DATA_FOLDER_MARKS,
    DEFAULT_PATTERNS,
    ENVIRONMENT_MARKS,
    IGNORE_FILE,
    IgnoreRules,
)
from cloud_ml.models.paths.local import expand_home
from cloud_ml.sdk.messages import FileBody
from cloud_ml.sdk.storage.transfers import file_body
from cloud_ml.sdk.trainers.script_files import companions
from cloud_ml.text_encoding import decode_text

SIZE_LIMIT_BYTES = 512 * 2**20
"""Code is small; what is larger is data that slipped in and belongs into a bucket."""
SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip", ".whl", ".py")
_NAMED_BIGGEST = 5
_ENOUGH_FILES = 10_000
"""After so many files, the first ones that are too large together end the walk of a folder."""
_SYSTEM_FOLDER = re.compile(r"/(bin|boot|dev|etc|lib|lib64|opt|proc|run|sbin|srv|sys|tmp|usr|var)")
TRAINER_NEEDS = (
    "A trainer is a Python script, or a folder with one, such as train.py or trainer/task.py. "
    "Name its packages in requirements.txt."
)


@dataclass(frozen=True, slots=True)
class Package:
    """A file to be sent: ``name`` tells its format.

    ``files`` are the packed files with their sizes in bytes; a file that is sent as it is has none.
    ``left_out`` are the ignored paths of the folder, folders with a slash at their end.
    """

    name: str
    body: FileBody
    files: Sequence[tuple[str, int]] = ()
    left_out: Sequence[str] = ()


class _FolderRules:
    """The ignore rules of a folder; remembers what they left out."""

    def __init__(self, root: Path) -> None:
        self._rules = IgnoreRules((*DEFAULT_PATTERNS, *_own_patterns(root)))
        self.left_out: list[str] = []

    def ignores(self, path: str, *, folder: bool) -> bool:
        ignored = self._rules.ignores(path, folder=folder)
        if ignored:
            self.note(path, folder=folder)
        return ignored

    def note(self, path: str, *, folder: bool) -> None:
        self.left_out.append(f"{path}/" if folder else path)


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of an archive: ``link`` is the target of a symbolic link; ``folder`` tells an
    empty folder.
    """

    name: str
    path: Path
    size: int
    executable: bool = False
    link: str | None = None
    folder: bool = False


@contextmanager
def pack_source(source: Path, *, size_limit_bytes: int = SIZE_LIMIT_BYTES) -> Iterator[Package]:
    """Give ``source`` as one file; what had to be made is gone after the ``with`` block.

    Raises:
        InvalidRequest: There is nothing there, or something that cannot be packed: another kind of
            file, a link that leaves the folder or leads nowhere, a name that is no text.
        TooLarge: More than ``size_limit_bytes``; names the biggest files.
    """
    if source.is_dir():
        root = source.resolve()
        rules = _FolderRules(root)
        with _pack_members(root.name, _members(root, size_limit_bytes, rules), rules) as package:
            yield package
        return
    if not source.is_file():
        raise refuse(
            "trainer_uri", str(source), "fds://bucket/path, or a file or folder that exists"
        )
    if source.name.endswith(".ipynb"):
        raise refuse_notebook(source)
    if source.name.endswith(".py") and (others := companions(source.absolute())):
        script = source.absolute()
        rules = _FolderRules(script.parent)
        with _pack_members(
            source.stem, _script_members(script, others, size_limit_bytes, rules), rules
        ) as package:
            yield package
        return
    if not source.name.endswith(SUFFIXES):
        raise refuse(
            "trainer_uri", str(source), "a folder, or a file that ends in " + ", ".join(SUFFIXES)
        )
    body = file_body(source)
    if body.size > size_limit_bytes:
        raise _too_large(f"{source} has", body.size, size_limit_bytes)
    yield Package(source.name, body)


def list_files(source: Path) -> list[tuple[str, Path]]:
    """Names and paths of the files that ``pack_source`` would read of a folder or a script; none of
    an archive.

    Raises:
        InvalidRequest: Something cannot be packed.
        TooLarge: It is too big.
    """
    if source.is_dir():
        root = source.resolve()
        members = _members(root, SIZE_LIMIT_BYTES, _FolderRules(root))
    elif source.name.endswith(".py"):
        script = source.absolute()
        rules = _FolderRules(script.parent)
        members = _script_members(script, companions(script), SIZE_LIMIT_BYTES, rules)
    else:
        members = []
    return [(one.name, one.path) for one in members if not one.folder and one.link is None]


def check_is_code(folder: Path) -> None:
    """Refuse a folder that holds much more than code: the home folder, one above it, a folder
    of the system, or the data folder of a server.

    Nobody means to send those, their size takes long to find out, and keys lie in them. A file
    of ignore rules in the folder says that it is meant.

    Raises:
        InvalidRequest: It is such a folder.
    """
    root = folder.resolve()
    home = Path(expand_home("~")).resolve()
    if root == home:
        what = "your home folder"
    elif root == Path(root.anchor):
        what = "the top of the file system"
    elif home.is_relative_to(root):
        what = f"a folder above your home folder {home}"
    elif _SYSTEM_FOLDER.fullmatch(str(root)):
        what = "a folder of the system"
    elif all((root / mark).exists() for mark in DATA_FOLDER_MARKS):
        what = "the data folder of a server"
    else:
        return
    if (root / IGNORE_FILE).is_file():
        return
    raise InvalidRequest(
        f"{folder} is {what}, which is more than a trainer's code",
        field="trainer_uri",
        value=str(folder),
        allowed="a folder of code alone",
        hint="Give the folder of your code, such as ./linear.",
    )


def refuse_notebook(notebook: Path) -> InvalidRequest:
    """The error for a notebook, with the way out."""
    script = notebook.with_suffix(".py")
    return InvalidRequest(
        f"{notebook.name} is a notebook; running notebooks is planned, and not possible yet",
        field="trainer_uri",
        value=str(notebook),
        allowed="a script, a folder or an archive",
        hint=f"Convert it to a script: jupyter nbconvert --to script {shlex.quote(str(notebook))}, "
        f"then submit {shlex.quote(str(script))}.",
    )


@contextmanager
def _pack_members(name: str, members: list[_Member], rules: _FolderRules) -> Iterator[Package]:
    files = [(member.name, member.size) for member in members if not member.folder]
    with tempfile.TemporaryDirectory(prefix="cloudml-") as work:
        target = Path(work) / "package.tar.gz"
        with target.open("wb") as file:
            _write(members, file)
        yield Package(_archive_name(name), file_body(target), files, sorted(rules.left_out))


def _script_members(
    script: Path, others: list[Path], size_limit_bytes: int, rules: _FolderRules
) -> list[_Member]:
    members = []
    for place in (script, *others):
        if place.is_dir():
            members += list(_walk(script.parent, f"{place.name}/", "", rules))
        else:
            facts = place.stat()
            executable = bool(facts.st_mode & 0o100)
            members.append(_Member(place.name, place, facts.st_size, executable=executable))
    if (total := sum(member.size for member in members)) > size_limit_bytes:
        raise _too_large(
            f"{script.name} and what it imports have", total, size_limit_bytes, members
        )
    return sorted(members, key=lambda member: member.name)


def _members(root: Path, size_limit_bytes: int, rules: _FolderRules) -> list[_Member]:
    check_is_code(root)
    is_package = (root / "__init__.py").is_file() and not _is_project(root)
    prefix = f"{root.name}/" if is_package else ""
    members: list[_Member] = []
    total = 0
    for member in _walk(root, "", prefix, rules):
        members.append(member)
        total += member.size
        if total > size_limit_bytes and len(members) >= _ENOUGH_FILES:
            raise _too_large(f"{root} holds more than", size_limit_bytes, size_limit_bytes, members)
    if all(member.folder for member in members):
        raise _without_files(root, rules)
    if total > size_limit_bytes:
        raise _too_large(f"{root} holds", total, size_limit_bytes, members)
    # The order of ``scandir`` is that of the file system and differs between machines.
    return sorted(members, key=lambda member: member.name)


def _without_files(root: Path, rules: _FolderRules) -> InvalidRequest:
    error = refuse("trainer_uri", str(root), "a folder with files in it that are not ignored")
    error.hint = TRAINER_NEEDS if not rules.left_out else f"See the lines of {IGNORE_FILE}."
    return error


def _walk(root: Path, inside: str, prefix: str, rules: _FolderRules) -> Iterator[_Member]:
    try:
        with os.scandir(root / inside) as entries:
            found = list(entries)
    except OSError as error:
        raise _unreadable(root / inside, error) from error
    if inside and _is_no_code({entry.name for entry in found}):
        rules.note(inside.rstrip("/"), folder=True)
        return
    if inside and not found:
        yield _Member(prefix + _as_text(inside.rstrip("/")), root / inside, 0, folder=True)
    for entry in found:
        path = inside + entry.name
        if rules.ignores(path, folder=entry.is_dir(follow_symlinks=False)):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path + "/", prefix, rules)
        else:
            yield _member(root, path, prefix, entry)


def _is_no_code(names: Collection[str]) -> bool:
    """Whether a folder that holds these is an environment, or the data folder of a server."""
    return DATA_FOLDER_MARKS.issubset(names) or any(mark in names for mark in ENVIRONMENT_MARKS)


def _member(root: Path, path: str, prefix: str, entry: os.DirEntry[str]) -> _Member:
    _as_text(path)
    if entry.is_symlink():
        return _Member(prefix + path, Path(entry.path), 0, link=_inner_target(root, path))
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError as error:
        raise _unreadable(Path(entry.path), error) from error
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidRequest(
            f"{path} is a {_kind(facts.st_mode)}, which cannot be sent",
            field="trainer_uri",
            value=path,
            allowed="files, folders and links",
            hint=f"Remove it, or name it in {IGNORE_FILE}.",
        )
    return _Member(
        prefix + path, Path(entry.path), facts.st_size, executable=bool(facts.st_mode & 0o100)
    )


def _as_text(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise refuse("trainer_uri", path, "files whose names are text") from None
    return path


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def _inner_target(root: Path, path: str) -> str:
    link = root / path
    try:
        target = link.resolve()
    except (OSError, RuntimeError):  # links that lead in a circle
        target = root / "nowhere"
    if not target.is_relative_to(root):
        raise InvalidRequest(
            f"the link {path} leads out of the folder, to {target}",
            field="trainer_uri",
            value=path,
            allowed="links within the folder",
            hint=f"Copy what it points to, or name the link in {IGNORE_FILE}.",
        )
    if not link.exists():
        raise InvalidRequest(
            f"the link {path} leads nowhere",
            field="trainer_uri",
            value=path,
            hint=f"Remove it, or name it in {IGNORE_FILE}.",
        )
    return os.path.relpath(target, link.parent.resolve())


def _write(members: list[_Member], target: IO[bytes]) -> None:
    # No name and no time in gzip's header, nor owners in tar's: bytes depend on the files alone.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=target, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.mode = 0o755 if member.executable else 0o644
            if member.link is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, member.link, 0o777
                archive.addfile(info)
            elif member.folder:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            else:
                # Read as a whole: tar writes the size before the bytes, and a file may grow between
                # ``stat`` and the reading.
                content = _content(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def _content(member: _Member) -> bytes:
    try:
        return member.path.read_bytes()
    except OSError as error:
        raise _unreadable(member.path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidRequest:
    return InvalidRequest(
        f"{path} cannot be read: {error.strerror}",
        field="trainer_uri",
        value=str(path),
        hint=f"Change its permissions, or name it in {IGNORE_FILE}.",
    )


def _own_patterns(root: Path) -> list[str]:
    file = root / IGNORE_FILE
    try:
        text = decode_text(file.read_bytes(), "replace") if file.is_file() else ""
    except OSError as error:
        raise _unreadable(file, error) from error
    return text.splitlines()


def _is_project(root: Path) -> bool:
    return (root / "pyproject.toml").is_file() or (root / "setup.py").is_file()


def _archive_name(folder: str) -> str:
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", folder).strip("-.") or "trainer")[:100] + ".tar.gz"


def _too_large(what: str, size: int, limit: int, members: list[_Member] | None = None) -> TooLarge:
    biggest = sorted(members or [], key=lambda member: -member.size)[:_NAMED_BIGGEST]
    named = ", ".join(f"{member.name} ({format_memory(member.size)})" for member in biggest)
    return TooLarge(
        f"{what} {format_memory(size)} to be packed; allowed are {format_memory(limit)}"
        + (f". The biggest: {named}" if named else ""),
        field="trainer_uri",
        allowed=f"at most {format_memory(limit)}",
        hint=f"Name data in {IGNORE_FILE}, and keep it in a bucket: `cloudml storage cp`.",
    )
