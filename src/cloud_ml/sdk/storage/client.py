"""Buckets and objects, and files to and from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cloud_ml.errors import CloudMlError, Unauthenticated
from cloud_ml.models import codec
from cloud_ml.models.common import check_bucket
from cloud_ml.models.storage.objects import StoredObject
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import Request
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.batches import BucketFile, fetch_files, send_files
from cloud_ml.sdk.storage.downloads import fetch
from cloud_ml.sdk.storage.objects import Objects
from cloud_ml.sdk.storage.transfers import (
    Transfers,
    file_body,
    file_status,
    has_changed,
    send_stream,
    source_changed,
)
from cloud_ml.sdk.storage.uris import UPLOAD_TIMEOUT_S, object_path, object_uri, upload_headers
from cloud_ml.sdk.transport import Transport

if TYPE_CHECKING:
    from cloud_ml.sdk.trainers.upload import Sent


class Storage(Objects):
    """What the caller keeps on the server. Objects are named by URIs such as ``fds://bucket/path``.

    Every method raises ``InvalidRequest`` for a malformed URI, ``NotFound`` for what is absent (or
    somebody else's), and ``CloudMlError`` as ``Transport.json`` does.
    """

    def __init__(self, transport: Transport, transfers: Transfers | None = None) -> None:
        super().__init__(transport)
        self._transfers = transfers

    @property
    def transfers(self) -> Transfers:
        """How objects travel; from the environment, unless it was given."""
        if self._transfers is None:
            self._transfers = Transfers.from_environment()
        return self._transfers

    def upload(
        self,
        source: Path | bytes,
        uri: str,
        *,
        only_if_absent: bool = False,
        progress: Progress | None = None,
    ) -> StoredObject:
        """Store a file or bytes, in place of what was there. ``progress`` is told how far a file
        is.

        A large file goes in segments: what has arrived of it before an interruption is not sent
        again.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
            InvalidRequest: The file cannot be read, or changes meanwhile.
        """
        if isinstance(source, bytes):
            return self.upload_bytes(source, uri, only_if_absent=only_if_absent)
        return self.upload_file(source, uri, only_if_absent=only_if_absent, progress=progress)

    def upload_file(
        self,
        source: Path,
        uri: str,
        *,
        only_if_absent: bool = False,
        progress: Progress | None = None,
        sha256: str | None = None,
    ) -> StoredObject:
        """Store a file; with ``sha256`` only if that is its digest, so that it is stored as what it
        was looked at.

        Raises:
            AlreadyExists: ``only_if_absent``, and there is such an object.
            InvalidRequest: The file cannot be read, or changes meanwhile.
        """
        where = object_uri(uri)
        if file_status(source).st_size >= self.transfers.in_parts_from:
            from cloud_ml.sdk.storage.resumable import send_file  # noqa: PLC0415 - threads are for those who send large files

            return send_file(
                self._transport,
                source,
                where,
                transfers=self.transfers,
                only_if_absent=only_if_absent,
                progress=progress,
                expected=sha256,
            )
        before = file_status(source)
        body = file_body(source, progress)
        if sha256 not in (None, body.sha256):
            raise source_changed(source)
        request = Request(
            "PUT",
            object_path(where),
            body=body,
            headers=upload_headers(only_if_absent=only_if_absent),
            read_timeout_s=UPLOAD_TIMEOUT_S,
        )
        try:
            document = self._transport.json(request)
        except AlreadyCarriedOut:
            return self._find_stored(uri, body.sha256)
        except Unauthenticated:  # the server has digested other bytes than were signed
            if has_changed(source, before):
                raise source_changed(source) from None
            raise
        return codec.decode(StoredObject, document, ignore_unknown=True)

    def upload_stream(
        self, source: IO[bytes], uri: str, *, progress: Progress | None = None
    ) -> StoredObject:
        """Store what can be read only once, such as a pipe; it appears when its end has come."""
        return send_stream(
            self._transport, source, object_uri(uri), transfers=self.transfers, progress=progress
        )

    def download(self, uri: str, target: Path, *, progress: Progress | None = None) -> int:
        """Write an object to a file, which appears when it is complete and checked. Returns the
        size in bytes.

        What an interrupted download has left is not fetched again; ``progress`` is told how far it
        is.

        Raises:
            InvalidRequest: The file cannot be written.
            TransportError: The connection broke for good, or what came is damaged.
        """
        return fetch(self._transport, object_path(object_uri(uri)), target, progress=progress)

    def upload_files(
        self, bucket: str, files: Sequence[BucketFile]
    ) -> list[StoredObject | CloudMlError]:
        """Store small files in one request, each under its key, in place of what was there.

        Returns for each file its object, or the error that kept it out.

        Raises:
            TransportError: The answer was lost; each file is stored as a whole or not at all.
        """
        return send_files(self._transport, check_bucket("bucket", bucket), files)

    def download_files(self, bucket: str, files: Sequence[BucketFile]) -> list[int | CloudMlError]:
        """Write small objects to files in one request; each file appears when it is complete and
        checked.

        Returns for each its size in bytes, or the error that kept it out.
        """
        return fetch_files(self._transport, check_bucket("bucket", bucket), files)

    def send_trainer(self, source: str, bucket: str, *, progress: Progress | None = None) -> str:
        """Pack local code and upload it, unless the server has the very same already. Returns its
        URI.

        Raises:
            InvalidRequest: It cannot be packed.
            TooLarge: It is too big.
        """
        from cloud_ml.sdk.trainers.upload import send_trainer  # noqa: PLC0415 - packing is for those who submit

        return send_trainer(self, source, bucket, progress=progress).uri

    def send_code(
        self, source: str, bucket: str, *, git: bool, progress: Progress | None = None
    ) -> Sent:
        """As ``send_trainer``; with ``git``, also what git knows of the code."""
        from cloud_ml.sdk.trainers.upload import send_trainer  # noqa: PLC0415 - packing is for those who submit

        return send_trainer(self, source, bucket, progress=progress, git=git)

    def send_model(self, source: str, bucket: str, *, progress: Progress | None = None) -> str:
        """Upload a local model as numbered versions, but for what the server has already. Returns
        its URI.

        Raises:
            InvalidRequest: It is no model.
        """
        from cloud_ml.sdk.models.folders import send_model  # noqa: PLC0415 - for those who deploy

        return send_model(self, source, bucket, progress=progress)
