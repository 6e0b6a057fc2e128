"""Buckets and objects, and files to and from them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cloud_ml.aio.storage.files import FileThreads
from cloud_ml.aio.storage.objects import AsyncObjects
from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.errors import CloudMlError, NotFound
from cloud_ml.models import codec
from cloud_ml.models.storage.objects import (
    BeginUpload,
    CompleteUpload,
    StoredObject,
    UploadInParts,
    UploadPart,
)
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.batches import BucketFile
from cloud_ml.sdk.storage.transfers import Transfers, part_request, repeatable_post
from cloud_ml.sdk.storage.uris import PATH, object_uri

if TYPE_CHECKING:
    from cloud_ml.sdk.trainers.upload import Sent


class AsyncStorage(AsyncObjects):
    """What the caller keeps on the server. Objects are named by URIs such as ``fds://bucket/path``.

    Every method raises ``InvalidRequest`` for a malformed URI, ``NotFound`` for what is absent (or
    somebody else's), and ``CloudMlError`` as ``AsyncTransport.json`` does.

    Files are read and written in threads, ``Transfers.parallel`` of them at most; more transfers
    wait their turn. Progress is told in the event loop. A transfer whose task is cancelled ends at
    once, and what it has sent or fetched of a large file is not lost: the same transfer goes on
    from there.
    """

    def __init__(self, transport: AsyncTransport, transfers: Transfers | None = None) -> None:
        super().__init__(transport)
        self._transfers = transfers
        self._threads: FileThreads | None = None

    @property
    def transfers(self) -> Transfers:
        """How objects travel; from the environment, unless it was given."""
        if self._transfers is None:
            self._transfers = Transfers.from_environment()
        return self._transfers

    async def upload(
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
            InvalidRequest: The file cannot be read.
        """
        if isinstance(source, bytes):
            return await self.upload_bytes(source, uri, only_if_absent=only_if_absent)
        return await self.upload_file(source, uri, only_if_absent=only_if_absent, progress=progress)

    async def upload_file(
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
        return await self._files.run(
            lambda storage, on_progress: storage.upload_file(
                source, uri, only_if_absent=only_if_absent, progress=on_progress, sha256=sha256
            ),
            progress,
        )

    async def upload_stream(
        self,
        source: IO[bytes] | AsyncIterable[bytes],
        uri: str,
        *,
        progress: Progress | None = None,
    ) -> StoredObject:
        """Store what can be read only once, such as a pipe; it appears when its end has come.

        An asynchronous source is read in the event loop, a file in a thread.
        """
        if isinstance(source, AsyncIterable):
            return await self._send_chunks(source, uri, progress)
        return await self._files.run(
            lambda storage, on_progress: storage.upload_stream(source, uri, progress=on_progress),
            progress,
        )

    async def download(self, uri: str, target: Path, *, progress: Progress | None = None) -> int:
        """Write an object to a file, which appears when it is complete and checked. Returns the
        size in bytes.

        What an interrupted download has left is not fetched again; ``progress`` is told how far it
        is.

        Raises:
            InvalidRequest: The file cannot be written.
            TransportError: The connection broke for good, or what came is damaged.
        """
        return await self._files.run(
            lambda storage, on_progress: storage.download(uri, target, progress=on_progress),
            progress,
        )

    async def upload_files(
        self, bucket: str, files: Sequence[BucketFile]
    ) -> list[StoredObject | CloudMlError]:
        """Store small files in one request, each under its key, in place of what was there.

        Returns for each file its object, or the error that kept it out.

        Raises:
            TransportError: The answer was lost; each file is stored as a whole or not at all.
        """
        return await self._files.run(lambda storage, _: storage.upload_files(bucket, files), None)

    async def download_files(
        self, bucket: str, files: Sequence[BucketFile]
    ) -> list[int | CloudMlError]:
        """Write small objects to files in one request; each file appears when it is complete and
        checked.

        Returns for each its size in bytes, or the error that kept it out.
        """
        return await self._files.run(lambda storage, _: storage.download_files(bucket, files), None)

    async def send_trainer(
        self, source: str, bucket: str, *, progress: Progress | None = None
    ) -> str:
        """Pack local code and upload it, unless the server has the very same already. Returns its
        URI.

        Raises:
            InvalidRequest: It cannot be packed.
            TooLarge: It is too big.
        """
        return await self._files.run(
            lambda storage, on_progress: storage.send_trainer(source, bucket, progress=on_progress),
            progress,
        )

    async def send_code(
        self, source: str, bucket: str, *, git: bool, progress: Progress | None = None
    ) -> Sent:
        """As ``send_trainer``; with ``git``, also what git knows of the code."""
        return await self._files.run(
            lambda storage, on_progress: storage.send_code(
                source, bucket, git=git, progress=on_progress
            ),
            progress,
        )

    async def send_model(
        self, source: str, bucket: str, *, progress: Progress | None = None
    ) -> str:
        """Upload a local model as numbered versions, but for what the server has already. Returns
        its URI.

        Raises:
            InvalidRequest: It is no model.
        """
        return await self._files.run(
            lambda storage, on_progress: storage.send_model(source, bucket, progress=on_progress),
            progress,
        )

    @property
    def _files(self) -> FileThreads:
        if self._threads is None:
            its = self._transport
            self._threads = FileThreads(
                its.endpoint, its.credentials, self.transfers, retry=its.retry
            )
        return self._threads

    async def _send_chunks(
        self, source: AsyncIterable[bytes], uri: str, progress: Progress | None
    ) -> StoredObject:
        where = object_uri(uri)
        path = f"{PATH}/-/uploads/{segment(where.bucket)}"
        begun = await self._transport.json(repeatable_post(path, BeginUpload(key=where.key)))
        here = f"{path}/{codec.decode(UploadInParts, begun, ignore_unknown=True).id}"
        whole, sent, done = hashlib.sha256(), list[UploadPart](), 0
        try:
            async with contextlib.aclosing(_blocks(source, self.transfers.part_size)) as blocks:
                async for block in blocks:
                    whole.update(block)
                    part = part_request(here, len(sent) + 1, block)
                    sent.append(
                        codec.decode(
                            UploadPart, await self._transport.json(part), ignore_unknown=True
                        )
                    )
                    done += len(block)
                    if progress is not None:
                        progress(done, None)
            completion = CompleteUpload(sha256=whole.hexdigest(), parts=sent)
            try:
                document = await self._transport.json(
                    repeatable_post(f"{here}/complete", completion)
                )
            except NotFound:  # the first answer was lost: if what is there is ours, all is well
                if await self.digest(uri) != completion.sha256:
                    raise
                return await self.head(uri)
        except CloudMlError:
            with contextlib.suppress(CloudMlError):
                async with await self._transport.send(
                    Request("DELETE", here, same_twice=True)
                ) as answer:
                    await answer.read()
            raise
        return codec.decode(StoredObject, document, ignore_unknown=True)


async def _blocks(source: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes]:
    """Blocks of exactly ``size``, but for the last one."""
    waiting = bytearray()
    async for chunk in source:
        waiting += chunk
        while len(waiting) >= size:
            yield bytes(memoryview(waiting)[:size])
            del waiting[:size]
    if waiting:
        yield bytes(waiting)
