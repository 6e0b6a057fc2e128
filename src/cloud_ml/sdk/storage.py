"""Buckets and objects: the calls, and files to and from them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.common import ObjectUri, check_bucket, parse_object_uri, refuse
from cloud_ml.models.storage import Bucket, BucketPage, BucketUsage, ObjectPage, StorageUsage, StoredObject
from cloud_ml.sdk.messages import Answer, FileBody, Request, key_path, segment
from cloud_ml.sdk.progress import Progress, counted
from cloud_ml.sdk.transport import Transport

UPLOAD_TIMEOUT_S = 600.0
"""How long the server may be silent behind an upload: it checks the digest and flushes the disk."""
_PATH = "/api/v1/storage"


class Storage:
    """What the caller keeps on the server. Objects are named by URIs such as ``fds://bucket/path``.

    Every method raises ``InvalidRequest`` for a malformed URI, ``NotFound`` for what is absent (or
    somebody else's), and ``CloudMlError`` as ``Transport.json`` does.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_buckets(self) -> list[Bucket]:
        """Every bucket that the caller may see."""
        document = self._transport.json(Request("GET", _PATH))
        return codec.decode(BucketPage, document, ignore_unknown=True).items

    def create_bucket(self, name: str) -> Bucket:
        """Make a bucket; one that the organisation has already is success."""
        path = f"{_PATH}/{segment(check_bucket('bucket', name))}"
        return codec.decode(Bucket, self._transport.json(Request("PUT", path)), ignore_unknown=True)

    def usage(self) -> StorageUsage:
        """What the organisation stores, by bucket and in all. Figures may be a minute old."""
        return codec.decode(StorageUsage, self._transport.json(Request("GET", f"{_PATH}/-/usage")), ignore_unknown=True)

    def usage_below(self, uri: str) -> BucketUsage:
        """How much is stored under keys that start with what ``uri`` names."""
        where = parse_object_uri("uri", uri)
        path = f"{_PATH}/-/usage/{segment(where.bucket)}"
        document = self._transport.json(Request("GET", path, query={"prefix": where.key or None}))
        return codec.decode(BucketUsage, document, ignore_unknown=True)

    def pages(self, uri: str, *, folders: bool = False, limit: int = 1000) -> Iterator[ObjectPage]:
        """Objects whose URI starts with ``uri``, a page at a time; with ``folders`` only one level of them."""
        where = parse_object_uri("uri", uri)
        after: str | None = None
        while True:
            query = {"prefix": where.key, "delimiter": folders, "after": after, "limit": limit}
            document = self._transport.json(Request("GET", f"{_PATH}/{segment(where.bucket)}", query=query))
            page = codec.decode(ObjectPage, document, ignore_unknown=True)
            yield page
            if (after := page.next) is None:
                return

    def list_objects(self, uri: str) -> Iterator[StoredObject]:
        """All objects whose URI starts with ``uri``, in the order of their keys."""
        for page in self.pages(uri):
            yield from page.objects

    def head(self, uri: str) -> StoredObject:
        """What is known of an object without reading it."""
        where = _object(uri)
        with self._transport.send(Request("HEAD", _object_path(where))) as answer:
            answer.read()
        return StoredObject(
            bucket=where.bucket,
            key=where.key,
            size=int(answer.headers.get("content-length", 0)),
            modified=_time_of(answer.headers.get("last-modified")),
            etag=answer.headers.get("etag", "").strip('"'),
        )

    def open(self, uri: str) -> Answer:
        """An object's content, to be read in chunks; close it, or use it in a ``with`` block."""
        return self._transport.send(Request("GET", _object_path(_object(uri)), headers={"Accept": "*/*"}))

    def upload(
        self, source: Path | bytes, uri: str, *, only_if_absent: bool = False, progress: Progress | None = None
    ) -> StoredObject:
        """Store a file or bytes, in place of what was there. ``progress`` is told how far a file is.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
            InvalidRequest: The file cannot be read.
        """
        where = _object(uri)
        request = Request(
            "PUT",
            _object_path(where),
            body=source if isinstance(source, bytes) else file_body(source, progress),
            headers={
                "Content-Type": "application/octet-stream",
                **({"If-None-Match": "*"} if only_if_absent else {}),
            },
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        return codec.decode(StoredObject, self._transport.json(request), ignore_unknown=True)

    def download(self, uri: str, target: Path, *, progress: Progress | None = None) -> int:
        """Write an object to a file, which appears when it is complete. Returns the size in bytes.

        Raises:
            InvalidRequest: The file cannot be written.
        """
        with self.open(uri) as answer:
            return _save(answer, target, progress)

    def delete(self, uri: str) -> None:
        """Remove an object."""
        with self._transport.send(Request("DELETE", _object_path(_object(uri)))) as answer:
            answer.read()


def file_body(path: Path, progress: Progress | None = None) -> FileBody:
    """The content of ``path``, digested, ready to be signed and sent; ``progress`` is told of the sending.

    Raises:
        InvalidRequest: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileBody(path, file.tell(), digest, progress)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", field="file", value=str(path)) from error


def _save(answer: Answer, target: Path, progress: Progress | None) -> int:
    length = answer.headers.get("content-length", "")
    total = int(length) if length.isdigit() else None
    partial = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    size = 0
    try:
        try:
            with partial.open("xb") as file:
                for chunk in counted(answer, progress, total=total):
                    size += file.write(chunk)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"{target} cannot be written: {error.strerror}", field="file", value=str(target)
        ) from error
    return size


def _object(uri: str) -> ObjectUri:
    where = parse_object_uri("uri", uri)
    if not where.key or where.key.endswith("/"):
        raise refuse("uri", uri, "an object such as fds://bucket/path, not a bucket or a folder")
    return where


def _object_path(where: ObjectUri) -> str:
    return f"{_PATH}/{segment(where.bucket)}/{key_path(where.key)}"


def _time_of(header: str | None) -> datetime:
    try:
        moment = parsedate_to_datetime(header or "")
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
