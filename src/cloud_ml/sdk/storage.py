"""Buckets and objects: the calls, and files to and from them."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cloud_ml.models import codec
from cloud_ml.models.common import ObjectUri, check_bucket, parse_object_uri, refuse
from cloud_ml.models.storage import Bucket, BucketPage, BucketUsage, CopyObject, ObjectPage, StorageUsage, StoredObject
from cloud_ml.sdk.downloads import fetch
from cloud_ml.sdk.messages import Answer, FileBody, Request, key_path, segment
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.transfers import (
    PATH,
    UPLOAD_TIMEOUT_S,
    Transfers,
    digest_of,
    send_in_parts,
    send_stream,
    time_of,
    unreadable,
)
from cloud_ml.sdk.transport import Transport


class Storage:
    """What the caller keeps on the server. Objects are named by URIs such as ``fds://bucket/path``.

    Every method raises ``InvalidRequest`` for a malformed URI, ``NotFound`` for what is absent (or
    somebody else's), and ``CloudMlError`` as ``Transport.json`` does.
    """

    def __init__(self, transport: Transport, transfers: Transfers | None = None) -> None:
        self._transport = transport
        self._transfers = transfers

    @property
    def transfers(self) -> Transfers:
        """How objects travel; from the environment, unless it was given."""
        if self._transfers is None:
            self._transfers = Transfers.from_environment()
        return self._transfers

    def list_buckets(self) -> list[Bucket]:
        """Every bucket that the caller may see."""
        document = self._transport.json(Request("GET", PATH))
        return codec.decode(BucketPage, document, ignore_unknown=True).items

    def create_bucket(self, name: str) -> Bucket:
        """Make a bucket; one that the organisation has already is success."""
        path = f"{PATH}/{segment(check_bucket('bucket', name))}"
        return codec.decode(Bucket, self._transport.json(Request("PUT", path)), ignore_unknown=True)

    def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket.

        Raises:
            Conflict: There are objects in it.
        """
        path = f"{PATH}/{segment(check_bucket('bucket', name))}"
        with self._transport.send(Request("DELETE", path)) as answer:
            answer.read()

    def usage(self) -> StorageUsage:
        """What the organisation stores, by bucket and in all. Figures may be a minute old."""
        return codec.decode(StorageUsage, self._transport.json(Request("GET", f"{PATH}/-/usage")), ignore_unknown=True)

    def usage_below(self, uri: str) -> BucketUsage:
        """How much is stored under keys that start with what ``uri`` names."""
        where = parse_object_uri("uri", uri)
        path = f"{PATH}/-/usage/{segment(where.bucket)}"
        document = self._transport.json(Request("GET", path, query={"prefix": where.key or None}))
        return codec.decode(BucketUsage, document, ignore_unknown=True)

    def pages(self, uri: str, *, folders: bool = False, limit: int = 1000) -> Iterator[ObjectPage]:
        """Objects whose URI starts with ``uri``, a page at a time; with ``folders`` only one level of them."""
        where = parse_object_uri("uri", uri)
        after: str | None = None
        while True:
            query = {"prefix": where.key, "delimiter": folders, "after": after, "limit": limit}
            document = self._transport.json(Request("GET", f"{PATH}/{segment(where.bucket)}", query=query))
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
            modified=time_of(answer.headers.get("last-modified")),
            etag=answer.headers.get("etag", "").strip('"'),
        )

    def open(self, uri: str) -> Answer:
        """An object's content, to be read in chunks; close it, or use it in a ``with`` block."""
        return self._transport.send(Request("GET", _object_path(_object(uri)), headers={"Accept": "*/*"}))

    def upload(
        self, source: Path | bytes, uri: str, *, only_if_absent: bool = False, progress: Progress | None = None
    ) -> StoredObject:
        """Store a file or bytes, in place of what was there. ``progress`` is told how far a file is.

        A large file goes in parts: what has arrived of it before an interruption is not sent again.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
            InvalidRequest: The file cannot be read.
        """
        where = _object(uri)
        if isinstance(source, Path) and _size_of(source) >= self.transfers.in_parts_from:
            return send_in_parts(
                self._transport,
                source,
                where,
                transfers=self.transfers,
                only_if_absent=only_if_absent,
                progress=progress,
            )
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

    def upload_stream(self, source: IO[bytes], uri: str, *, progress: Progress | None = None) -> StoredObject:
        """Store what can be read only once, such as a pipe; it appears when its end has come."""
        return send_stream(self._transport, source, _object(uri), transfers=self.transfers, progress=progress)

    def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> StoredObject:
        """Copy an object within the server.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
        """
        old, new = _object(source), _object(target)
        wanted = CopyObject(
            source_bucket=old.bucket, source_key=old.key, bucket=new.bucket, key=new.key, only_if_absent=only_if_absent
        )
        request = Request(
            "POST",
            f"{PATH}/-/copy",
            body=json.dumps(codec.encode(wanted)).encode(),
            headers={"Content-Type": "application/json"},
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        return codec.decode(StoredObject, self._transport.json(request), ignore_unknown=True)

    def presign(self, uri: str, *, expires_s: float = 3600, method: str = "GET") -> str:
        """A link that reads (``GET``) or writes (``PUT``) the object for whoever has it. Does not ask the server.

        Raises:
            InvalidRequest: The time is not above 0, or the method is another one.
        """
        if expires_s <= 0:
            raise refuse("expires", expires_s, "a time above 0")
        path = _object_path(_object(uri))
        return self._transport.link(method, path, expires=math.ceil(time.time() + expires_s))

    def digest(self, uri: str) -> str | None:
        """The SHA-256 of an object; the server may have to read it."""
        return digest_of(self._transport, _object_path(_object(uri)))[1]

    def download(self, uri: str, target: Path, *, progress: Progress | None = None) -> int:
        """Write an object to a file, which appears when it is complete and checked. Returns the size in bytes.

        What an interrupted download has left is not fetched again; ``progress`` is told how far it is.

        Raises:
            InvalidRequest: The file cannot be written.
            TransportError: The connection broke for good, or what came is damaged.
        """
        return fetch(self._transport, _object_path(_object(uri)), target, progress=progress)

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
        raise unreadable(path, error) from error


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error


def _object(uri: str) -> ObjectUri:
    where = parse_object_uri("uri", uri)
    if not where.key or where.key.endswith("/"):
        raise refuse("uri", uri, "an object such as fds://bucket/path, not a bucket or a folder")
    return where


def _object_path(where: ObjectUri) -> str:
    return f"{PATH}/{segment(where.bucket)}/{key_path(where.key)}"
