# Made of aio/storage/objects.py by tools/twins.py: change that one, then run `make format`.
"""The calls about buckets and objects, files excepted."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import replace

from cloud_ml.errors import Conflict, NotFound, PreconditionFailed, TransportError
from cloud_ml.models import codec
from cloud_ml.models.common import check_bucket, parse_object_uri, refuse
from cloud_ml.models.storage.objects import (
    PRESIGN_LIMIT_S,
    Bucket,
    BucketPage,
    BucketUsage,
    CopyObject,
    ObjectPage,
    StorageUsage,
    StoredObject,
    UnnameableObject,
    UnnameableObjects,
)
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.failures import AlreadyCarriedOut, AlreadyDeleted
from cloud_ml.sdk.messages import Request, key_path, segment
from cloud_ml.sdk.storage.uris import (
    PATH,
    UPLOAD_TIMEOUT_S,
    object_path,
    object_uri,
    repr_digest,
    time_of,
    upload_headers,
)
from cloud_ml.sdk.transport import Transport

_VERSIONS = 5
"""How many versions of an object one call of ``delete`` follows while others replace it."""
_LOOKS = 3
"""How often an upload whose answer was lost looks for its object: the server may be about to
place it.
"""
_NO_VERSION = "absent"
"""An ETag that no object has: the server says what is missing, and removes nothing that appears
meanwhile.
"""


class Objects:
    """What the caller keeps on the server. Objects are named by URIs such as ``fds://bucket/path``.

    Every method raises ``InvalidRequest`` for a malformed URI, ``NotFound`` for what is absent (or
    somebody else's), and ``CloudMlError`` as ``Transport.json`` does.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_buckets(self) -> list[Bucket]:
        """Every bucket that the caller may see."""
        document = self._transport.json(Request("GET", PATH))
        return codec.decode(BucketPage, document, ignore_unknown=True).items

    def create_bucket(self, name: str) -> Bucket:
        """Make a bucket; one that the organisation has already is success."""
        path = f"{PATH}/{segment(check_bucket('bucket', name))}"
        request = Request(
            "PUT", path, same_twice=True
        )  # at worst an empty bucket that was removed comes back
        return codec.decode(Bucket, self._transport.json(request), ignore_unknown=True)

    def delete_bucket(self, name: str, *, force: bool = False) -> None:
        """Remove an empty bucket; with ``force`` with everything in it, at once.

        Raises:
            Conflict: There are objects in it, and ``force`` is not given.
        """
        path = f"{PATH}/{segment(check_bucket('bucket', name))}"
        try:
            request = Request(
                "DELETE", path, query={"force": force}, read_timeout_s=UPLOAD_TIMEOUT_S
            )
            with self._transport.send(request) as answer:
                answer.read()
        except AlreadyDeleted:
            if any(bucket.name == name for bucket in self.list_buckets()):
                raise Conflict(
                    f"the bucket {name} is there, although the answer to its removal was lost: it "
                    "was not removed, or somebody made it again",
                    field="bucket",
                    value=name,
                    hint="Look at the bucket and try again.",
                ) from None

    def usage(self) -> StorageUsage:
        """What the organisation stores, by bucket and in all. Figures may be a minute old."""
        return codec.decode(
            StorageUsage,
            self._transport.json(Request("GET", f"{PATH}/-/usage")),
            ignore_unknown=True,
        )

    def usage_below(self, uri: str) -> BucketUsage:
        """How much is stored under keys that start with what ``uri`` names."""
        where = parse_object_uri("uri", uri)
        path = f"{PATH}/-/usage/{segment(where.bucket)}"
        document = self._transport.json(Request("GET", path, query={"prefix": where.key or None}))
        return codec.decode(BucketUsage, document, ignore_unknown=True)

    def pages(self, uri: str, *, folders: bool = False, limit: int = 1000) -> Generator[ObjectPage]:
        """Objects whose URI starts with ``uri``, a page at a time; with ``folders`` only one
        level of them.
        """
        where = parse_object_uri("uri", uri)
        after: str | None = None
        while True:
            query = {"prefix": where.key, "delimiter": folders, "after": after, "limit": limit}
            document = self._transport.json(
                Request("GET", f"{PATH}/{segment(where.bucket)}", query=query)
            )
            page = codec.decode(ObjectPage, document, ignore_unknown=True)
            yield page
            if (after := page.next) is None:
                return

    def list_objects(self, uri: str) -> Generator[StoredObject]:
        """All objects whose URI starts with ``uri``, in the order of their keys."""
        with closing(self.pages(uri)) as pages:
            for page in pages:
                yield from page.objects

    def head(self, uri: str) -> StoredObject:
        """What is known of an object without reading it."""
        where = object_uri(uri)
        with self._transport.send(Request("HEAD", object_path(where))) as answer:
            answer.read()
        return StoredObject(
            bucket=where.bucket,
            key=where.key,
            size=int(answer.headers.get("content-length", 0)),
            modified=time_of(answer.headers.get("last-modified")),
            etag=answer.headers.get("etag", "").strip('"'),
        )

    def open(self, uri: str) -> Answer:
        """An object's content, to be read in chunks; close it, or use it in an ``with``
        block.
        """
        return self._transport.send(
            Request("GET", object_path(object_uri(uri)), headers={"Accept": "*/*"})
        )

    def read_range(self, uri: str, start: int, end: int, *, etag: str | None = None) -> bytes:
        """The bytes of an object from ``start`` up to and without ``end``; fewer at its end.

        Args:
            uri: The object.
            start: The first byte, from 0 on.
            end: The byte behind the last.
            etag: Read this version only.

        Raises:
            PreconditionFailed: The object is another one than ``etag`` says.
        """
        if end <= start:
            return b""
        headers = {"Accept": "*/*", "Range": f"bytes={start}-{end - 1}"}
        if etag is not None:
            headers["If-Match"] = f'"{etag}"'
        request = Request("GET", object_path(object_uri(uri)), headers=headers)
        with self._transport.send(request) as answer:
            content = answer.read()
        if answer.status == 206:
            return content
        return content[start:end]  # somebody on the way knows no ranges

    def upload_bytes(
        self, content: bytes, uri: str, *, only_if_absent: bool = False
    ) -> StoredObject:
        """Store what is in memory, in place of what was there.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
        """
        request = Request(
            "PUT",
            object_path(object_uri(uri)),
            body=content,
            headers=upload_headers(only_if_absent=only_if_absent),
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        try:
            document = self._transport.json(request)
        except AlreadyCarriedOut:
            return self._find_stored(uri, hashlib.sha256(content).hexdigest())
        return codec.decode(StoredObject, document, ignore_unknown=True)

    def _find_stored(self, uri: str, sha256: str) -> StoredObject:
        """What stands under a key after an upload whose answer was lost.

        Raises:
            TransportError: It is not there: the server may have died before it was placed, or
                another caller has replaced or removed it since.
        """
        for attempt in range(1, _LOOKS + 1):
            with suppress(NotFound):  # an earlier try may be about to place the object
                if self.digest(uri) == sha256:
                    return replace(self.head(uri), sha256=sha256)
            self._transport.sleep(self._transport.retry.backoff(attempt, random.random()))  # noqa: S311
        raise TransportError(
            f"{uri} was sent, but the answer was lost, and the object is another one now",
            hint="Another caller may have replaced or removed it. Look at it and send it again.",
        )

    def copy(self, source: str, target: str, *, only_if_absent: bool = False) -> StoredObject:
        """Copy an object within the server.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
        """
        old, new = object_uri(source), object_uri(target)
        copy_request = CopyObject(
            source_bucket=old.bucket,
            source_key=old.key,
            bucket=new.bucket,
            key=new.key,
            only_if_absent=only_if_absent,
        )
        request = Request(
            "POST",
            f"{PATH}/-/copy",
            body=json.dumps(codec.encode(copy_request)).encode(),
            headers={"Content-Type": "application/json"},
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        return codec.decode(StoredObject, self._transport.json(request), ignore_unknown=True)

    def presign(
        self,
        uri: str,
        *,
        expires_s: float = 3600,
        method: str = "GET",
        limit_s: float = PRESIGN_LIMIT_S,
    ) -> str:
        """A link that reads (``GET``) or writes (``PUT``) the object for whoever has it. Does not
        ask the server.

        Args:
            uri: The object.
            expires_s: How long the link works, in seconds.
            method: ``GET`` or ``PUT``.
            limit_s: The server's limit, which is 7 days unless its operator has set another one
                (``server_info().presign_limit_s``).

        Raises:
            InvalidRequest: The time is not above 0, or above the limit, or the method is another
                one.
        """
        if not 0 < expires_s <= limit_s:
            raise refuse("expires", expires_s, f"above 0 and at most {limit_s:g} s")
        now = time.time()
        # A whole second that rounding adds would be beyond the limit.
        expires = min(math.ceil(now + expires_s), math.floor(now + limit_s))
        return self._transport.link(method, object_path(object_uri(uri)), expires=expires)

    def digest(self, uri: str) -> str | None:
        """The SHA-256 of an object; the server may have to read it."""
        request = Request(
            "HEAD",
            object_path(object_uri(uri)),
            headers={"Want-Repr-Digest": "sha-256=1"},
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        with self._transport.send(request) as answer:
            answer.read()
        return repr_digest(answer.headers.get("repr-digest"))

    def delete(self, uri: str, *, if_match: str | None = None) -> None:
        """Remove an object, with ``if_match`` only the version of that ETag.

        The request names the version that it removes. So a retry after a lost answer never removes
        what somebody else has stored under the key since.

        Raises:
            PreconditionFailed: The object has another version than ``if_match``, or is replaced all
                the time.
        """
        path = object_path(object_uri(uri))
        if if_match is not None:
            self._delete(path, etag=if_match)
            return
        for attempt in range(1, _VERSIONS + 1):
            try:
                self._delete(path, etag=self._etag(uri))
            except PreconditionFailed:
                if attempt == _VERSIONS:
                    raise
            else:
                return

    def unnameable(self, uri: str, *, folders: bool = False) -> list[UnnameableObject]:
        r"""Files of jobs under ``uri`` whose paths can be no keys; with ``folders`` only those of one level.

        Escapes in their names stand for what is no text: ``fds://bucket/bad\xff.txt``. At most 1000 are returned.
        """
        bucket, name = _escaped_uri(uri)
        query = {"prefix": name, "delimiter": folders}
        return (
            self._transport.ask(UnnameableObjects, Request("GET", _unnameable(bucket), query=query))
        ).items

    def delete_unnameable(self, uri: str) -> None:
        """Remove such a file by the URI that ``unnameable`` gives it."""
        bucket, name = _escaped_uri(uri)
        request = Request("DELETE", f"{_unnameable(bucket)}/{key_path(name)}")
        try:
            with self._transport.send(request) as answer:
                answer.read()
        except (
            AlreadyCarriedOut,
            AlreadyDeleted,
        ):  # an earlier try, whose answer was lost, removed it
            return

    def _etag(self, uri: str) -> str:
        try:
            return self.head(uri).etag
        except NotFound:
            return _NO_VERSION

    def _delete(self, path: str, *, etag: str) -> None:
        headers = {"If-Match": f'"{etag}"'}
        try:
            # A repeat is harmless: it names the version that it removes.
            with self._transport.send(
                Request("DELETE", path, headers=headers, same_twice=True)
            ) as answer:
                answer.read()
        except AlreadyDeleted:
            return


def _unnameable(bucket: str) -> str:
    return f"{PATH}/-/unnameable/{segment(check_bucket('bucket', bucket))}"


def _escaped_uri(uri: str) -> tuple[str, str]:
    """Bucket and escaped name."""
    bucket, _, name = uri.removeprefix("fds://").partition("/")
    return bucket, name
