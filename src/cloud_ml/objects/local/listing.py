"""Walk a bucket in byte order of the keys, a page at a time.

A folder's name is compared with its '/': ``a-b`` comes before ``a/c``, though the folder ``a``
comes before ``a-b``. Depth first over names in that order is then byte order of the keys.

The tree may be built to harm. So depth is bounded by the length of a key and kept on a list, not on
the stack; one folder is open at a time, found again from the bucket's own after a subfolder; and of
a folder with millions of names no more than ``BATCH`` are held at once.
"""

from __future__ import annotations

import collections
import errno
import heapq
import os
from collections.abc import Generator, Iterator

from cloud_ml.errors import InvalidRequest
from cloud_ml.objects.base import check_object_key
from cloud_ml.objects.local import tree

BATCH = 10_000

_NOTHING_TO_SHOW = tree.ABSENT | {errno.EACCES}
"""The folder is gone or changed since it was listed, or its owner has closed it."""

Found = tuple[str, os.stat_result | None]
"""A key and its file's status, or a folder (ending in '/') and ``None``."""


def walk(
    bucket: int, prefix: str, after: str, *, deep: bool, batch: int = BATCH
) -> Generator[Found, None, None]:
    """What starts with ``prefix`` and sorts behind ``after``.

    Close the generator when done: a folder is open while it waits.

    Args:
        bucket: The bucket's open folder.
        prefix: What keys start with; need not end at a '/'.
        after: Only what sorts behind this.
        deep: Give all objects. Otherwise folders behind the prefix are given instead of what is in
            them, if there is any object in them.
        batch: Names held at once of one folder.
    """
    folder, slash, rest = prefix.rpartition("/")
    if slash and not _is_key(folder):
        return
    stack = [_Level(bucket, folder + slash, rest, after=after, deep=deep, batch=batch)]
    while stack:
        subfolder = yield from stack[-1].until_subfolder()
        if subfolder is None:
            stack.pop()
        else:
            stack.append(_Level(bucket, subfolder, "", after=after, deep=deep, batch=batch))


class _Level:
    """One folder of the walk, and how far it has come."""

    def __init__(
        self, bucket: int, folder: str, start: str, *, after: str, deep: bool, batch: int
    ) -> None:
        self._bucket = bucket
        self._folder = folder
        self._start = start
        self._after = after
        self._deep = deep
        self._batch = batch
        self._names: collections.deque[str] = collections.deque()
        self._last = ""
        self._more = True

    def until_subfolder(self) -> Generator[Found, None, str | None]:
        """Give entries up to the next subfolder that the walk must enter, and return that;
        ``None`` at the end.
        """
        try:
            with tree.open_folder(self._bucket, tree.key_parts(self._folder)[:-1]) as folder:
                while name := self._next_name(folder):
                    key = self._folder + name
                    if not _is_key(key.removesuffix("/")):
                        continue
                    if name.endswith("/"):
                        if self._deep:
                            return key
                        if _holds_object(self._bucket, key):
                            yield key, None
                    elif status := tree.file_status(folder, name.encode()):
                        yield key, status
        except OSError as error:
            if error.errno not in _NOTHING_TO_SHOW:
                raise
        return None

    def _next_name(self, folder: int) -> str | None:
        if not self._names and self._more:
            found = heapq.nsmallest(self._batch, self._candidates(folder))
            self._more = len(found) == self._batch
            self._names.extend(found)
        if not self._names:
            return None
        self._last = self._names.popleft()
        return self._last

    def _candidates(self, folder: int) -> Iterator[str]:
        for name in names(folder):
            if (
                name > self._last
                and name.startswith(self._start)
                and self._may_follow(self._folder + name)
            ):
                yield name

    def _may_follow(self, key: str) -> bool:
        """Whether ``key``, or something in the folder ``key``, sorts behind ``after``."""
        return key > self._after or (
            self._deep and key.endswith("/") and self._after.startswith(key)
        )


def names(folder: int) -> Iterator[str]:
    """Names of plain files, and of folders with a '/', in no order. What is no text cannot be a
    key.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                name = os.fsencode(entry.name).decode()
                if entry.is_dir(follow_symlinks=False):
                    yield name + "/"
                elif entry.is_file(follow_symlinks=False):
                    yield name
            except (UnicodeDecodeError, OSError):
                continue


def _holds_object(bucket: int, folder: str) -> bool:
    """Whether there is any, looking first where it costs least: unsorted, in the folder itself."""
    try:
        with tree.open_folder(bucket, tree.key_parts(folder)[:-1]) as descriptor:
            if any(not name.endswith("/") and _is_key(folder + name) for name in names(descriptor)):
                return True
    except OSError as error:
        if error.errno not in _NOTHING_TO_SHOW:
            raise
        return False
    below = walk(bucket, folder, "", deep=True)
    try:
        return next(below, None) is not None
    finally:
        below.close()


def _is_key(text: str) -> bool:
    try:
        check_object_key(text)
    except InvalidRequest:
        return False
    return True
