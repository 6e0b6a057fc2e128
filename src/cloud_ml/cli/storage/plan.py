"""What a copy means: from sources and a target, as they were typed, to pairs of one object and one
file.

Nothing is transferred here. What cannot be copied becomes a problem, and the rest goes on.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloud_ml.cli.storage.file_version import FileVersion
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.common import check_key, parse_object_uri
from cloud_ml.models.paths.local import expand_home
from cloud_ml.models.paths.wildcards import Matcher, matcher
from cloud_ml.sdk.storage.transfers import unreadable

if TYPE_CHECKING:
    from cloud_ml.models.storage.objects import StoredObject
    from cloud_ml.sdk.storage.client import Storage

SCHEME = "fds://"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/+)(.*)", re.DOTALL)
"""What looks like a URI: its scheme, its slashes, and the rest."""
_SPECIAL = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to copy.

    ``size`` in bytes. ``root`` is the folder that a local target must stay in. ``version`` is what
    the source was when it was planned: the ETag of an object, or the status of a file.
    """

    source: str
    target: str
    size: int
    root: Path | None = None
    version: str | FileVersion = ""

    @property
    def up(self) -> bool:
        """Whether a file goes to the server."""
        return not self.source.startswith(SCHEME)

    @property
    def down(self) -> bool:
        """Whether an object becomes a file."""
        return not self.target.startswith(SCHEME)


@dataclass(slots=True)
class Plan:
    """Everything to copy, what cannot be, and what was left out."""

    items: list[Item] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def is_remote(text: str) -> bool:
    """Whether it names something on the server."""
    return text.startswith(SCHEME)


def check_schemes(places: Sequence[str]) -> None:
    """Refuse URIs of other stores, and misspelt ones: they would be taken for local paths.

    Raises:
        UsageError: Names the URI, and what is allowed.
    """
    for place in places:
        found = _URI.match(place)
        if found is None or is_remote(place) or Path(place).exists():
            continue
        scheme, slashes, rest = found.groups()
        if scheme.lower() == "fds":
            raise click.UsageError(f"{place} is no URI; did you mean {SCHEME}{rest}?")
        if len(slashes) > 1:
            raise click.UsageError(
                f"{place}: only local paths and URIs such as {SCHEME}bucket/path are known; copy "
                f"{scheme}:// with a tool of its own, through a local folder"
            )


def expanded(text: str) -> str:
    """What a person typed, with ``~`` at its start as the home folder.

    Names of files are never expanded: ``~lock`` and ``~root`` are plain names there.
    """
    return text if is_remote(text) else expand_home(text)


def base_name(uri: str) -> str:
    """The last name of a path or URI."""
    return uri.rstrip("/").rpartition("/")[2]


def below(target: str, name: str) -> str:
    """``name`` in the folder ``target``."""
    return f"{target.rstrip('/')}/{name}" if target.rstrip("/") else f"/{name}"


def is_pattern(uri: str) -> bool:
    """Whether a URI has wildcards: ``*`` and ``?`` within one name, ``**`` over many, ``[…]``."""
    return is_remote(uri) and _SPECIAL.search(uri) is not None


def are_several(sources: Sequence[str]) -> bool:
    """Whether sources may be more than one file or folder, so that each keeps its name below the
    target.
    """
    return len(sources) > 1 or any(is_pattern(one) for one in sources)


def matching(store: Storage, pattern: str) -> list[StoredObject]:
    """The objects that match a pattern; an object of just that name goes before.

    Raises:
        NotFound: There are none.
    """
    try:
        return [store.head(pattern)]
    except (NotFound, InvalidRequest):
        pass
    literal = _SPECIAL.split(pattern, maxsplit=1)[0]
    matches = _compile_pattern(pattern)
    found = [one for one in store.list_objects(literal) if matches(one.uri)]
    if not found:
        raise NotFound(f"nothing matches {pattern}", field="uri", value=pattern)
    return found


def find_object(store: Storage, uri: str, folder_advice: str) -> StoredObject:
    """The object that a URI names. ``folder_advice`` says what to do where it names a folder.

    Raises:
        NotFound: There is none.
        UsageError: It is a folder or a bucket.
    """
    key = parse_object_uri("uri", uri).key
    if key and not key.endswith("/"):
        try:
            return store.head(uri)
        except NotFound:
            if not _holds_objects(store, uri):
                raise NotFound(f"there is no object {uri}", field="uri", value=uri) from None
    raise click.UsageError(f"{uri} is a {'folder' if key else 'bucket'}: {folder_advice}")


def _holds_objects(store: Storage, folder: str) -> bool:
    """Whether there is an object below a folder or in a bucket.

    Raises:
        NotFound: There is no such bucket.
    """
    root = folder if folder.endswith("/") else folder + "/"
    with closing(store.pages(root, limit=1)) as pages:
        return any(page.objects for page in pages)


def _is_stored_folder(store: Storage, target: str) -> bool:
    """Whether a target on the server is a folder of objects, and no object itself.

    Raises:
        NotFound: There is no such bucket.
    """
    where = parse_object_uri("target", target)
    try:
        if not _holds_objects(store, target):
            return False
    except NotFound as error:
        raise NotFound(
            error.message,
            field="target",
            value=target,
            hint=f"Make it: cloudml storage mb {where.bucket}",
        ) from None
    if not where.key or where.key.endswith("/"):
        return True
    try:
        store.head(target)
    except NotFound:
        return True
    return False


def plan(
    store: Storage,
    sources: tuple[str, ...],
    target: str,
    *,
    recursive: bool,
    into: bool | None = None,
) -> Plan:
    """Find out what is to be copied where. ``into`` says whether ``target`` is a folder; ``None``:
    judge by it.

    Raises:
        InvalidRequest: A source or the target makes no sense.
        NotFound: There is no such source, or no bucket for the target.
    """
    made = Plan()
    target = expanded(target)
    many = are_several(sources)
    # The bucket is looked up here, once: each copy would fail on its own without it.
    folder = is_remote(target) and _is_stored_folder(store, target)
    folder = into if into is not None else folder or many or _is_folder(target)
    for source in sources:
        try:
            if is_pattern(source):
                for one in matching(store, source):
                    made.items.append(_item(one, below(target, base_name(one.key)), target))
            elif is_remote(source):
                _remote(store, made, source, target, recursive=recursive, folder=folder, many=many)
            else:
                _local(made, source, target, recursive=recursive, folder=folder, many=many)
        except (InvalidRequest, NotFound) as error:
            if not many:
                raise
            made.problems.append((source, error.message))
    return made


def _remote(
    store: Storage,
    made: Plan,
    source: str,
    target: str,
    *,
    recursive: bool,
    folder: bool,
    many: bool,
) -> None:
    if not recursive:
        found_object = find_object(store, source, "copy it with -r")
        made.items.append(_single(found_object, source, target, folder=folder))
        return
    where = parse_object_uri("source", source)
    root = source if source.endswith("/") else source + "/"
    base = below(target, base_name(source)) if many else target
    found = False
    for one in store.list_objects(root):
        found = True
        made.items.append(_item(one, below(base, one.uri.removeprefix(root)), base))
    if not found and where.key and not where.key.endswith("/"):
        # Although -r was given, this is a single object.
        made.items.append(_single(store.head(source), source, target, folder=folder))
    elif not found and where.key:
        raise NotFound(f"there is nothing below {root}", field="source", value=source)


def _local(
    made: Plan, source: str, target: str, *, recursive: bool, folder: bool, many: bool
) -> None:
    path = Path(expanded(source))
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISREG(status.st_mode):
        where = below(target, path.name) if folder else target
        made.items.append(Item(str(path), where, status.st_size, version=FileVersion.of(status)))
    elif not stat.S_ISDIR(status.st_mode):
        raise InvalidRequest(
            f"{path} is no plain file (a pipe, a socket or a device)", field="file", value=source
        )
    elif not recursive:
        raise click.UsageError(f"{source} is a folder: copy it with -r")
    else:
        base = below(target, path.resolve().name) if many else target
        before = len(made.items)
        for file, relative, status in _walk(path, made):
            try:
                check_key("name", relative)
            except InvalidRequest:
                made.problems.append(
                    (str(file), "its name can be no key: see `cloudml storage cp --help`")
                )
            else:
                version = FileVersion.of(status)
                made.items.append(
                    Item(str(file), below(base, relative), status.st_size, version=version)
                )
        if len(made.items) == before and not made.problems:
            made.skipped.append((source, "there is no file in it, and empty folders are not kept"))


def _walk(top: Path, made: Plan) -> Iterator[tuple[Path, str, os.stat_result]]:
    """Plain files below ``top``. Links to files count as files; those to folders, which may go
    in circles, do not.
    """

    def unreadable_folder(error: OSError) -> None:
        made.problems.append((str(error.filename), f"cannot be read: {error.strerror}"))

    for at, folders, files in os.walk(top, onerror=unreadable_folder):
        for name in sorted(folders):
            if (Path(at) / name).is_symlink():
                made.skipped.append((str(Path(at) / name), "a link to a folder"))
        folders.sort()
        for name in sorted(files):
            file = Path(at) / name
            try:
                status = file.stat()
            except OSError as error:
                why = (
                    "a link to nothing"
                    if file.is_symlink()
                    else f"cannot be read: {error.strerror}"
                )
                made.problems.append((str(file), why))
                continue
            if stat.S_ISREG(status.st_mode):
                yield file, file.relative_to(top).as_posix(), status
            else:
                made.skipped.append((str(file), "no plain file"))


def _item(source: StoredObject, target: str, root: str) -> Item:
    folder = None if is_remote(target) else Path(root)
    return Item(source.uri, target, source.size, folder, source.etag)


def _single(found: StoredObject, source: str, target: str, *, folder: bool) -> Item:
    return _item(found, below(target, base_name(source)) if folder else target, target)


def _is_folder(target: str) -> bool:
    if is_remote(target):
        return target.endswith("/") or "/" not in target.removeprefix(SCHEME)
    return target.endswith("/") or Path(target).is_dir()


def _compile_pattern(pattern: str) -> Matcher:
    try:
        return matcher(pattern, whole_folders=False)
    except ValueError:
        raise InvalidRequest(
            f"{pattern} is no pattern", field="uri", value=pattern, allowed="*, **, ? and [a-z]"
        ) from None
