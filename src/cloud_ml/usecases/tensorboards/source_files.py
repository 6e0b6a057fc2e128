"""The files of the folders that a TensorBoard shows, for one that copies them. Blocking."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cloud_ml.domain.tensorboards.mirror_requests import ListFiles, MirrorRequest, is_shown
from cloud_ml.domain.tensorboards.spec import RunSource
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound
from cloud_ml.models.common import split_uri
from cloud_ml.usecases.storage.objects import Storage

PIECE = 1 << 20
"""Bytes of a file in one answer."""
_PAGE = 10_000
"""Names in one answer, before those are left out that nobody reads. A store may go through a whole
folder for each page.
"""


class SourceFiles:
    """Answers requests for files, as ``cloud_ml.tensorboard.mirror`` reads them.

    Args:
        storage: Knows whose buckets are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def answer(self, org: str, sources: Sequence[RunSource], request: MirrorRequest) -> bytes:
        """The whole answer: an empty list where the bucket is gone, and no ``length`` where the file
        is, cannot be read now, or where no file can have that path.

        Raises:
            TryAgain: A list cannot be had now.
        """
        bucket, prefix = _place(sources[request.source])
        if isinstance(request, ListFiles):
            return self._list(org, bucket, prefix, request.after)
        return self._read(org, bucket, prefix + request.path, request.start)

    def _list(self, org: str, bucket: str, prefix: str, after: str) -> bytes:
        after = prefix + after if after else ""
        try:
            page = self._storage.list(org, bucket, prefix, after=after, limit=_PAGE)
        except (NotFound, InvalidRequest):
            return _line({"objects": [], "next": None})
        objects = [
            (path, one.size, one.etag, round(one.modified.timestamp() * 1000))
            for one in page.objects
            if is_shown(path := one.key.removeprefix(prefix))
        ]
        following = None if page.next is None else page.next.removeprefix(prefix)
        return _line({"objects": objects, "next": following})

    def _read(self, org: str, bucket: str, key: str, start: int) -> bytes:
        try:
            info, chunks = self._storage.read(org, bucket, key, start=start, length=PIECE)
            content = b"".join(chunks)
        except CloudMlError:  # the others must not wait for this one
            return _line({})
        return _line({"size": info.size, "etag": info.etag, "length": len(content)}) + content


def _place(source: RunSource) -> tuple[str, str]:
    """The bucket of a source, and what the keys of its files begin with."""
    bucket, folder = split_uri(source.uri)
    return bucket, f"{folder.strip('/')}/" if folder.strip("/") else ""


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
