"""How objects travel: the settings, and uploads that go on where they were interrupted."""

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
from cloud_ml.models.storage import BeginUpload, CompleteUpload, StoredObject, UploadInParts, UploadPart
from cloud_ml.sdk.messages import FileBody, Request, key_path, segment
from cloud_ml.sdk.places import PATH, UPLOAD_TIMEOUT_S, repr_digest, time_of
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.transport import Transport

_MOST_PARTS = 10_000
_BLOCK = 1 << 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Transfers:
    """How objects travel. Sizes in bytes.

    Attributes:
        in_parts_from: Files from this size on are sent in parts, which may be interrupted.
        part_size: Of each part; more where a file would have too many of them.
        parallel: Files under way at once, where there are many.
    """

    in_parts_from: int = 32 * _MIB
    part_size: int = 16 * _MIB
    parallel: int = 4

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Transfers:
        """``CLOUDML_TRANSFER_IN_PARTS_FROM``, ``_PART_SIZE`` and ``_PARALLEL``, as far as they are set.

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


def send_in_parts(
    transport: Transport,
    source: Path,
    where: ObjectUri,
    *,
    transfers: Transfers,
    only_if_absent: bool,
    progress: Progress | None,
) -> StoredObject:
    """Send a file in parts. What has arrived of the same file before, also from another process, is not sent again.

    Raises:
        InvalidRequest: The file cannot be read, or changes meanwhile.
        CloudMlError: As ``Transport.json``.
    """
    before = _status(source)
    size = before.st_size
    part_size = transfers.part_size_for(size)
    whole, wanted = _digests(source, size, part_size)
    path = f"{PATH}/-/uploads/{segment(where.bucket)}"
    begin = BeginUpload(key=where.key, size=size, sha256=whole, part_size=part_size)
    upload = codec.decode(UploadInParts, transport.json(repeatable_post(path, begin)), ignore_unknown=True)
    kept = {(part.number, part.sha256) for part in upload.parts}
    for part in wanted:
        start = (part.number - 1) * part_size
        if progress is not None:
            progress(start, size)
        if (part.number, part.sha256) not in kept:
            body = FileBody(source, part.size, part.sha256, _shifted(progress, start, size), start)
            _put_part(transport, f"{path}/{upload.id}", part.number, body, source, before)
    if progress is not None:
        progress(size, size)
    said = CompleteUpload(sha256=whole, parts=wanted, only_if_absent=only_if_absent)
    return _complete(transport, f"{path}/{upload.id}", said, where)


def send_stream(
    transport: Transport, source: IO[bytes], where: ObjectUri, *, transfers: Transfers, progress: Progress | None
) -> StoredObject:
    """Send what can be read only once, such as a pipe. Parts are held in memory one at a time.

    Raises:
        CloudMlError: As ``Transport.json``.
    """
    path = f"{PATH}/-/uploads/{segment(where.bucket)}"
    upload = codec.decode(
        UploadInParts, transport.json(repeatable_post(path, BeginUpload(key=where.key))), ignore_unknown=True
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
        return _complete(transport, here, CompleteUpload(sha256=whole.hexdigest(), parts=sent), where)
    except BaseException:
        _give_up(transport, here)
        raise


def digest_of(transport: Transport, path: str) -> tuple[str, str | None]:
    """ETag and SHA-256 of the object at a path of the API; the server may have to read it.

    Raises:
        CloudMlError: As ``Transport.send``.
    """
    wanted = Request("HEAD", path, headers={"Want-Repr-Digest": "sha-256=1"}, read_timeout_s=UPLOAD_TIMEOUT_S)
    with transport.send(wanted) as answer:
        answer.read()
    return answer.headers.get("etag", ""), repr_digest(answer.headers.get("repr-digest"))


def _complete(transport: Transport, here: str, said: CompleteUpload, where: ObjectUri) -> StoredObject:
    try:
        document = transport.json(repeatable_post(f"{here}/complete", said))
    except NotFound:
        # An answer that was lost, or somebody with the same file: if what is there is ours, all is well.
        path = f"{PATH}/{segment(where.bucket)}/{key_path(where.key)}"
        etag, found = digest_of(transport, path)
        if found != said.sha256:
            raise
        size = sum(part.size for part in said.parts or ())
        with transport.send(Request("HEAD", path)) as answer:
            answer.read()
        modified = time_of(answer.headers.get("last-modified"))
        return StoredObject(
            bucket=where.bucket, key=where.key, size=size, modified=modified, etag=etag.strip('"'), sha256=found
        )
    return codec.decode(StoredObject, document, ignore_unknown=True)


def _put_part(  # noqa: PLR0917
    transport: Transport, here: str, number: int, body: FileBody, source: Path, before: os.stat_result
) -> None:
    try:
        transport.json(part_request(here, number, body))
    except CloudMlError:
        now = _status(source)
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise InvalidRequest(
                f"{source} changed while it was sent", field="file", value=str(source), hint="send it again"
            ) from None
        raise


def part_request(here: str, number: int, body: bytes | FileBody) -> Request:
    """The upload of a part. A repeat is harmless: others who send to this upload send the same file."""
    return Request("PUT", f"{here}/parts/{number}", body=body, read_timeout_s=UPLOAD_TIMEOUT_S, same_twice=True)


def repeatable_post(path: str, wanted: BeginUpload | CompleteUpload) -> Request:
    """A POST that may be repeated: to begin the same again is to go on, and a second completion is noticed."""
    return Request(
        "POST",
        path,
        body=json.dumps(codec.encode(wanted)).encode(),
        headers={"Content-Type": "application/json"},
        idempotency_key=secrets.token_hex(16),
        read_timeout_s=UPLOAD_TIMEOUT_S,
    )


def _give_up(transport: Transport, here: str) -> None:
    with contextlib.suppress(CloudMlError), transport.send(Request("DELETE", here, same_twice=True)) as answer:
        answer.read()


def _digests(source: Path, size: int, part_size: int) -> tuple[str, list[UploadPart]]:
    """The digests of the whole and of each part, in one reading."""
    whole, parts = hashlib.sha256(), list[UploadPart]()
    try:
        with source.open("rb") as file:
            for number in range(1, -(-size // part_size) + 1):
                left = length = min(part_size, size - (number - 1) * part_size)
                digest = hashlib.sha256()
                while left and (block := file.read(min(left, _BLOCK))):
                    left -= len(block)
                    whole.update(block)
                    digest.update(block)
                if left:
                    raise InvalidRequest(f"{source} changed while it was read", field="file", value=str(source))
                parts.append(UploadPart(number=number, size=length, sha256=digest.hexdigest()))
    except OSError as error:
        raise unreadable(source, error) from error
    return whole.hexdigest(), parts


def unreadable(path: Path, error: OSError) -> InvalidRequest:
    """The error for a file that cannot be read."""
    return InvalidRequest(f"{path} cannot be read: {error.strerror}", field="file", value=str(path))


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise unreadable(path, error) from error


def _blocks(source: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of exactly ``size``, but for the last one; a pipe gives less at a time."""
    while True:
        block = bytearray()
        while len(block) < size and (piece := source.read(size - len(block))):
            block += piece
        if not block:
            return
        yield bytes(block)


def _shifted(progress: Progress | None, start: int, size: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(start + done, size)
