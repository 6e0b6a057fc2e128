"""Uploads of large files that go on where they were interrupted, read once and hashed while they
are sent.

A file is appended segment by segment. Each segment is signed with the SHA-256 of the file from its
first byte to the segment's last, so that neither side hashes anything twice; a thread computes
these digests ahead of the sending.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import queue
import random
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cloud_ml.auth.signature import UNSIGNED_PAYLOAD
from cloud_ml.errors import (
    CloudMlError,
    Conflict,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from cloud_ml.models import codec
from cloud_ml.models.common import ObjectUri
from cloud_ml.models.storage.objects import (
    BeginUpload,
    CompleteUpload,
    ReceivedBytes,
    StoredObject,
    UploadInParts,
)
from cloud_ml.sdk.messages import FileBody, Request, segment
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.transfers import (
    Transfers,
    complete,
    file_status,
    give_up,
    has_changed,
    repeatable_post,
    source_changed,
    unreadable,
)
from cloud_ml.sdk.storage.uris import PATH, UPLOAD_TIMEOUT_S
from cloud_ml.sdk.transport import Transport

_BLOCK = 1 << 20
_AHEAD = 4
"""Segments that are hashed before the one that is sent."""
_BEGINNINGS = 3
"""How often an upload is begun before we give up: others may complete or drop it, or have
damaged it.
"""
_STALLS = 8
"""How often in a row the server may have received nothing new before we give up."""


def send_file(
    transport: Transport,
    source: Path,
    where: ObjectUri,
    *,
    transfers: Transfers,
    only_if_absent: bool,
    progress: Progress | None,
    expected: str | None = None,
) -> StoredObject:
    """Send a large file. What the server has received of it before, also from another process, is
    not sent again.

    With an ``expected`` digest the object appears only if it has that one.

    Raises:
        InvalidRequest: The file cannot be read, or changes meanwhile.
        CloudMlError: As ``Transport.json``.
    """
    before = file_status(source)
    sending = _Sending(
        transport, source, before, where, transfers.part_size_for(before.st_size), progress
    )
    resume = _resume_token(source, before)
    try:
        for left in reversed(range(_BEGINNINGS)):
            try:
                return _send_and_complete(sending, resume, expected, only_if_absent=only_if_absent)
            except (
                NotFound,
                _Differs,
            ) as error:  # another process has ended it, or it holds something else
                if not left or error.field == "bucket":
                    raise
                # Another token: with the same one the server would name the same upload again.
                resume = secrets.token_hex(16)
            except Conflict as error:
                if (
                    not left or error.field != "upload"
                ):  # it was damaged, as by a power failure, and begins again
                    raise
    except InvalidRequest:  # nobody goes on with it: a file that has changed has another token
        if sending.path:
            give_up(transport, sending.path)
        raise
    raise AssertionError("unreachable")


def _send_and_complete(
    sending: _Sending, resume: str, expected: str | None, *, only_if_absent: bool
) -> StoredObject:
    sha256 = sending.send(resume)
    # A file that was written meanwhile has the digest of pieces that never stood in it together.
    if has_changed(sending.source, sending.before) or expected not in (None, sha256):
        raise source_changed(sending.source)
    completion = CompleteUpload(sha256=sha256, only_if_absent=only_if_absent)
    return complete(
        sending.transport, sending.path, completion, sending.where, sending.before.st_size
    )


class _Differs(Conflict):
    """What the server has received is not the beginning of the file."""


@dataclass
class _Sending:
    """One file on its way. ``path`` is that of the upload, once it has begun."""

    transport: Transport
    source: Path
    before: os.stat_result
    where: ObjectUri
    segment_size: int
    progress: Progress | None
    path: str = ""

    def send(self, resume: str) -> str:
        """Send what the server does not have; returns the digest of the file.

        Raises:
            NotFound: The upload is over, since somebody else has completed or dropped it.
            CloudMlError: As ``send_file``.
        """
        size = self.before.st_size
        uploads = f"{PATH}/-/uploads/{segment(self.where.bucket)}"
        begin = BeginUpload(key=self.where.key, size=size, resume=resume)
        upload = codec.decode(
            UploadInParts, self.transport.json(repeatable_post(uploads, begin)), ignore_unknown=True
        )
        self.path, received, stalls = f"{uploads}/{upload.id}", upload.received, 0
        with _DigestsAhead(self.source, size, self.segment_size, first=received.size) as digests:
            while True:
                if received.size and digests.at(received.size) != received.sha256:
                    raise _Differs(
                        f"{self.path} holds other bytes than {self.source}", field="file"
                    )
                self._tell(received.size)
                if received.size == size:
                    return digests.at(size)
                end = min((received.size // self.segment_size + 1) * self.segment_size, size)
                known = received
                try:
                    received = self._append(received.size, end, digests.at(end))
                except (
                    Conflict,
                    Unavailable,
                ):  # an answer was lost, or somebody else sends the same file
                    received = self._get_received()
                stalls = stalls + 1 if received.size <= known.size else 0
                if stalls > _STALLS:
                    raise Conflict(
                        f"the server receives nothing more of {self.source}",
                        hint="Try again later.",
                    )
                if stalls:
                    self.transport.sleep(self.transport.retry.backoff(stalls, random.random()))  # noqa: S311

    def _append(self, start: int, end: int, sha256: str) -> ReceivedBytes:
        body = FileBody(
            self.source, end - start, UNSIGNED_PAYLOAD, self._shift_progress(start), start
        )
        request = Request(
            "PATCH",
            self.path,
            query={"offset": start, "sha256": sha256},
            body=body,
            read_timeout_s=UPLOAD_TIMEOUT_S,
            same_twice=True,  # the server takes it only where what it has received ends
        )
        try:
            return codec.decode(ReceivedBytes, self.transport.json(request), ignore_unknown=True)
        except (Unauthenticated, InvalidRequest):
            if has_changed(self.source, self.before):
                raise source_changed(self.source) from None
            raise

    def _get_received(self) -> ReceivedBytes:
        document = self.transport.json(Request("GET", self.path))
        return codec.decode(UploadInParts, document, ignore_unknown=True).received

    def _shift_progress(self, start: int) -> Progress | None:
        if self.progress is None:
            return None
        return lambda done, _: self._tell(start + done)

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, self.before.st_size)


class _DigestsAhead:
    """The SHA-256 of a file from its beginning to each end of a segment, computed by a thread ahead
    of its use.

    Args:
        source: The file.
        size: Its size in bytes.
        segment_size: Segments end at multiples of that, and at the end of the file.
        first: One more place where a digest is wanted.
    """

    def __init__(self, source: Path, size: int, segment_size: int, *, first: int) -> None:
        self._source = source
        ends = {*range(segment_size, size, segment_size), size, first} - {0}
        self._ends = sorted(end for end in ends if end <= size)
        self._found: dict[int, str] = {}
        self._ready: queue.Queue[tuple[int, str] | BaseException] = queue.Queue(_AHEAD)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cloudml-digests", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._ready.get_nowait()
        self._thread.join()

    def at(self, end: int) -> str:
        """The digest of the first ``end`` bytes. Ends come in order.

        Raises:
            Conflict: A digest is never computed there.
            InvalidRequest: The file cannot be read, or has become shorter.
        """
        if end not in self._found and (
            end not in self._ends or (self._found and end < max(self._found))
        ):
            raise _Differs(f"no segment of {self._source} ends at byte {end}", field="file")
        while end not in self._found:
            ready = self._ready.get()
            if isinstance(ready, BaseException):
                raise ready
            self._found[ready[0]] = ready[1]
        return self._found[end]

    def _run(self) -> None:
        try:
            with self._source.open("rb", buffering=0) as file:
                self._hash(file)
        except OSError as error:
            self._hand_over(unreadable(self._source, error))
        except CloudMlError as error:
            self._hand_over(error)

    def _hash(self, file: object) -> None:
        state, position, buffer = hashlib.sha256(), 0, bytearray(_BLOCK)
        view = memoryview(buffer)
        for end in self._ends:
            while position < end:
                read = file.readinto(view[: min(_BLOCK, end - position)])  # type: ignore[attr-defined]
                if not read:
                    raise source_changed(self._source)
                state.update(view[:read])
                position += read
                if self._over.is_set():
                    return
            self._hand_over((end, state.hexdigest()))

    def _hand_over(self, ready: tuple[int, str] | CloudMlError) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Full):
                # Not for ever: a full queue that nobody reads any more must not keep the thread,
                # and ``__exit__`` waits for it.
                self._ready.put(ready, timeout=0.1)
                return


def _resume_token(source: Path, status: os.stat_result) -> str:
    """The same for the same file of this machine as long as it does not change."""
    facts = (
        platform.node(),
        source.resolve(),
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
    )
    return hashlib.sha256(
        "\n".join(map(str, facts)).encode("utf-8", "surrogateescape")
    ).hexdigest()[:32]
