"""The files of the folders that a TensorBoard shows, for one that copies them. Blocking."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cloud_ml.domain.tensorboards.mirror_requests import ListFiles, MirrorRequest, ReadFile
from cloud_ml.domain.tensorboards.spec import RunSource
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.common import split_uri
from cloud_ml.usecases.storage.objects import Storage

PIECE = 1 << 20
"""Bytes of a file in one answer."""
_PAGE = 1000


class SourceFiles:
    """Answers requests for files, as ``cloud_ml.tensorboard.mirror`` reads them.

    Args:
        storage: Knows whose buckets are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def answer(self, org: str, sources: Sequence[RunSource], request: MirrorRequest) -> bytes:
        """The whole answer: an empty list also where the bucket is gone, and no ``length`` where
        the file is, or where no file can have that path.

        Raises:
            TryAgain: A store does not answer.
        """
        bucket, prefix = _place(sources[request.source])
        try:
            if isinstance(request, ListFiles):
                return self._list(org, bucket, prefix, request)
            return self._read(org, bucket, prefix, request)
        except (NotFound, InvalidRequest):
            return _line({"objects": [], "next": None})

    def _list(self, org: str, bucket: str, prefix: str, request: ListFiles) -> bytes:
        after = prefix + request.after if request.after else ""
        page = self._storage.list(org, bucket, prefix, after=after, limit=_PAGE)
        objects = [
            (one.key.removeprefix(prefix), one.size, one.etag)
            for one in page.objects
        ]  # fmt: skip
        following = None if page.next is None else page.next.removeprefix(prefix)
        return _line({"objects": objects, "next": following})

    def _read(self, org: str, bucket: str, prefix: str, request: ReadFile) -> bytes:
        key = prefix + request.path
        info, chunks = self._storage.read(org, bucket, key, start=request.start, length=PIECE)
        content = b"".join(chunks)
        return _line({"size": info.size, "etag": info.etag, "length": len(content)}) + content


def _place(source: RunSource) -> tuple[str, str]:
    """The bucket of a source, and what the keys of its files begin with."""
    bucket, folder = split_uri(source.uri)
    return bucket, f"{folder.strip('/')}/" if folder.strip("/") else ""


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
