"""How objects travel: the settings, uploads of what can be read only once, and what all uploads
share.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound
from cloud_ml.models import codec
from cloud_ml.models.common import ObjectUri, refuse
from cloud_ml.models.storage.objects import (
    BeginUpload,
    CompleteUpload,
    StoredObject,
    UploadInParts,
    UploadPart,
)
from cloud_ml.sdk.messages import FileBody, Request, key_path, segment
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.uris import PATH, UPLOAD_TIMEOUT_S, repr_digest, time_of
from cloud_ml.sdk.transport import Transport

_MOST_PARTS = 10_000
_BLOCK = 1 << 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Transfers:
    """How objects travel. Sizes in bytes.

    Attributes:
        in_parts_from: Files from this size on are sent in several requests, and may be interrupted.
        part_size: Of each part or segment; more where a file would have too many of them.
        parallel: Files under way at once, where there are many.
    """

    in_parts_from: int = 32 * _MIB
    part_size: int = 16 * _MIB
    parallel: int = 4

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Transfers:
        """``CLOUDML_TRANSFER_IN_PARTS_FROM``, ``_PART_SIZE`` and ``_PARALLEL``, as far as they are
        set.

        Raises:
            InvalidRequest: One is no number, or out of range.
        """
        given = os.environ if environment is None else environment
        most = {"in_parts_from": 2**50, "part_size": 2**30, "parallel": 64}
        found: dict[str, int] = {}
        for name, highest in most.items():
            variable = f"CLOUDML_TRANSFER_{name.upper()}"
            if text := given.get(variable):
                if not (text.isascii() and text.isdigit() and 1 <= int(text[:20]) <= highest):
                    raise refuse(variable, text, f"a whole number from 1 to {highest}")
                found[name] = int(text)
        return cls(**found)

    def part_size_for(self, size: int) -> int:
        """The size of parts that makes no more of them than an upload may have."""
        return max(self.part_size, -(-size // _MOST_PARTS))


def send_stream(
    transport: Transport,
    source: IO[bytes],
    where: ObjectUri,
    *,
    transfers: Transfers,
    progress: Progress | None,
) -> StoredObject:
    """Send what can be read only once, such as a pipe. Parts are held in memory one at a time.

    Raises:
        CloudMlError: As ``Transport.json``.
    """
    path = f"{PATH}/-/uploads/{segment(where.bucket)}"
    upload = codec.decode(
        UploadInParts,
        transport.json(repeatable_post(path, BeginUpload(key=where.key))),
        ignore_unknown=True,
    )
    here, whole, sent, done = f"{path}/{upload.id}", hashlib.sha256(), list[UploadPart](), 0
    try:
        for number, block in enumerate(_blocks(source, transfers.part_size), start=1):
            whole.update(block)
            request = part_request(here, number, block)
            sent.append(codec.decode(UploadPart, transport.json(request), ignore_unknown=True))
            done += len(block)
            if progress is not None:
                progress(done, None)
        return complete(
            transport, here, CompleteUpload(sha256=whole.hexdigest(), parts=sent), where, done
        )
    except BaseException:
        give_up(transport, here)
        raise


def digest_of(transport: Transport, path: str) -> tuple[str, str | None]:
    """ETag and SHA-256 of the object at a path of the API; the server may have to read it.

    Raises:
        CloudMlError: As ``Transport.send``.
    """
    request = Request(
        "HEAD", path, headers={"Want-Repr-Digest": "sha-256=1"}, read_timeout_s=UPLOAD_TIMEOUT_S
    )
    with transport.send(request) as answer:
        answer.read()
    return answer.headers.get("etag", ""), repr_digest(answer.headers.get("repr-digest"))


def complete(
    transport: Transport, here: str, completion: CompleteUpload, where: ObjectUri, size: int
) -> StoredObject:
    """Have the upload at the path ``here`` become an object of ``size`` bytes.

    Raises:
        CloudMlError: As ``Transport.json``.
    """
    try:
        document = transport.json(repeatable_post(f"{here}/complete", completion))
    except NotFound:
        # An answer that was lost, or somebody with the same file: if what is there is ours, all is
        # well.
        path = f"{PATH}/{segment(where.bucket)}/{key_path(where.key)}"
        etag, found = digest_of(transport, path)
        if found != completion.sha256:
            raise
        with transport.send(Request("HEAD", path)) as answer:
            answer.read()
        modified = time_of(answer.headers.get("last-modified"))
        return StoredObject(
            bucket=where.bucket,
            key=where.key,
            size=size,
            modified=modified,
            etag=etag.strip('"'),
            sha256=found,
        )
    return codec.decode(StoredObject, document, ignore_unknown=True)


def part_request(here: str, number: int, body: bytes) -> Request:
    """The upload of a part. A repeat is harmless: others who send to this upload send the same
    file.
    """
    return Request(
        "PUT", f"{here}/parts/{number}", body=body, read_timeout_s=UPLOAD_TIMEOUT_S, same_twice=True
    )


def repeatable_post(path: str, content: BeginUpload | CompleteUpload) -> Request:
    """A POST that may be repeated: to begin the same again is to go on, and a second completion
    is noticed.
    """
    return Request(
        "POST",
        path,
        body=json.dumps(codec.encode(content)).encode(),
        headers={"Content-Type": "application/json"},
        idempotency_key=secrets.token_hex(16),
        read_timeout_s=UPLOAD_TIMEOUT_S,
    )


def give_up(transport: Transport, here: str) -> None:
    """Have the server forget the upload at the path ``here``, if it can be reached."""
    with (
        contextlib.suppress(CloudMlError),
        transport.send(Request("DELETE", here, same_twice=True)) as answer,
    ):
        answer.read()


def unreadable(path: Path, error: OSError) -> InvalidRequest:
    """The error for a file that cannot be read."""
    return InvalidRequest(f"{path} cannot be read: {error.strerror}", field="file", value=str(path))


def file_status(path: Path) -> os.stat_result:
    """The status of a file that is to be sent.

    Raises:
        InvalidRequest: It cannot be read.
    """
    try:
        return path.stat()
    except OSError as error:
        raise unreadable(path, error) from error


def has_changed(source: Path, before: os.stat_result) -> bool:
    """Whether a file was written since ``before``."""
    now = file_status(source)
    return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)


def source_changed(source: Path) -> InvalidRequest:
    """The error for a file that is another one than it was when it was first read."""
    return InvalidRequest(
        f"{source} changed while it was sent", field="file", value=str(source), hint="send it again"
    )


def _blocks(source: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of exactly ``size``, but for the last one; a pipe gives less at a time."""
    while True:
        block = bytearray()
        while len(block) < size and (piece := source.read(size - len(block))):
            block += piece
        if not block:
            return
        yield bytes(block)


def file_body(path: Path, progress: Progress | None = None) -> FileBody:
    """The content of ``path``, digested, ready to be signed and sent; ``progress`` is told of the
    sending.

    Raises:
        InvalidRequest: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileBody(path, file.tell(), digest, progress)
    except OSError as error:
        raise unreadable(path, error) from error
