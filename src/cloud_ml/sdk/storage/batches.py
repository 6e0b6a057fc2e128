"""Many small files to and from a bucket, in few requests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_ml.errors import CloudMlError, InvalidRequest, TooLarge, TransportError
from cloud_ml.models import codec
from cloud_ml.models.storage import batches
from cloud_ml.models.storage.objects import BatchOutcomes, ReadObjects, StoredObject
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.failures import AlreadyCarriedOut, error_of_document
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.storage.transfers import unreadable
from cloud_ml.sdk.storage.uris import PATH, UPLOAD_TIMEOUT_S
from cloud_ml.sdk.transport import Transport

SMALL_BYTES = 128 << 10
"""Files up to this size go together with others."""
LARGEST_BYTES = 1 << 20
"""More than that is neither sent nor taken as one of many: a file may have grown since somebody
looked.
"""
BATCH_FILES = 128
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class BucketFile:
    """A file and the key of the object that it becomes, or comes from."""

    path: Path
    key: str


def send_files(
    transport: Transport, bucket: str, files: Sequence[BucketFile]
) -> list[StoredObject | CloudMlError]:
    """Store small files, each under its key; returns for each its object, or the error that kept it
    out.

    Raises:
        CloudMlError: As ``Transport.json``; nothing is known of any of them then.
    """
    found: list[StoredObject | CloudMlError | None] = [None] * len(files)
    body: list[bytes] = []
    sent: list[tuple[int, str]] = []
    for place, file in enumerate(files):
        try:
            with file.path.open("rb") as source:
                content = source.read(LARGEST_BYTES + 1)
        except OSError as error:
            found[place] = unreadable(file.path, error)
            continue
        if len(content) > LARGEST_BYTES:
            found[place] = TooLarge(
                f"{file.path} is too large to go with others", field="file", hint="send it alone"
            )
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        body += [batches.Entry(file.key, len(content), sha256).line(), content]
        sent.append((place, sha256))
    if sent:
        outcomes = _send(transport, bucket, b"".join(body))
        for (place, sha256), outcome in zip(sent, outcomes.items, strict=True):
            if outcome.error is not None:
                found[place] = error_of_document(outcome.error)
            elif outcome.object is not None:
                found[place] = replace(outcome.object, sha256=sha256)
    if None in found:
        raise _garbled_answer()
    return [one for one in found if one is not None]


def _send(transport: Transport, bucket: str, body: bytes) -> BatchOutcomes:
    request = Request(
        "POST",
        f"{PATH}/-/batch/{segment(bucket)}",
        body=body,
        headers={"Content-Type": batches.MEDIA_TYPE},
        read_timeout_s=UPLOAD_TIMEOUT_S,
        once=True,
    )
    try:
        return codec.decode(BatchOutcomes, transport.json(request), ignore_unknown=True)
    except AlreadyCarriedOut as error:
        raise TransportError(
            "some files were sent, but the answer was lost",
            hint="Give the command again, with --update if there is one.",
        ) from error


def fetch_files(
    transport: Transport, bucket: str, files: Sequence[BucketFile]
) -> list[int | CloudMlError]:
    """Write small objects to files, each of which appears when it is complete and checked.

    Returns for each its size in bytes, or the error that kept it out.

    Raises:
        CloudMlError: As ``Transport.send``; files that were written already are complete.
    """
    found: list[int | CloudMlError] = []
    failures = 0
    while len(found) < len(files):
        known = len(found)
        try:
            _fetch(transport, bucket, files[known:], found)
        except TransportError:  # what has come is complete; the rest is asked for again
            failures = failures + 1 if len(found) == known else 1
            if failures >= transport.retry.attempts:
                raise
            transport.sleep(transport.retry.backoff(failures, random.random()))  # noqa: S311 - guards nothing
    return found


def _fetch(
    transport: Transport, bucket: str, files: Sequence[BucketFile], found: list[int | CloudMlError]
) -> None:
    """Ask once, and add to ``found`` what becomes of each file."""
    body = json.dumps(codec.encode(ReadObjects(keys=[file.key for file in files]))).encode()
    request = Request(
        "POST",
        f"{PATH}/-/read/{segment(bucket)}",
        body=body,
        headers={"Content-Type": "application/json", "Accept": "*/*"},
        read_timeout_s=UPLOAD_TIMEOUT_S,
        same_twice=True,
    )
    come = 0
    with transport.send(request) as answer:
        for (entry, content), file in zip(_objects(answer), files, strict=False):
            if entry.key != file.key:
                raise _garbled_answer()
            found.append(_write_entry(file.path, entry, content))
            come += 1
    if come != len(files):
        raise _garbled_answer()


def _objects(answer: Answer) -> Iterator[tuple[batches.Entry, bytes]]:
    """Each object of an answer, with all of its bytes."""
    reader, entry, content = batches.EntryReader(), None, list[bytes]()
    try:
        for chunk in answer:
            for read in reader.feed(chunk):
                if isinstance(read, bytes):
                    content.append(read)
                    continue
                if entry is not None:
                    yield entry, b"".join(content)
                if read.size > LARGEST_BYTES:
                    raise _garbled_answer()
                entry, content = read, []
        reader.end()
    except InvalidRequest:
        raise _garbled_answer() from None
    if entry is not None:
        yield entry, b"".join(content)


def _write_entry(target: Path, entry: batches.Entry, content: bytes) -> int | CloudMlError:
    if entry.error is not None:
        return error_of_document(entry.error)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        return TransportError(
            f"{target.name} was damaged in transit: its digest differs from the server's"
        )
    draft = target.with_name(f".{os.urandom(8).hex()}.cloudml-part")
    try:
        with draft.open("xb") as file:
            file.write(content)
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        return InvalidRequest(
            f"{target} cannot be written: {error.strerror}", field="file", value=str(target)
        )
    return len(content)


def _garbled_answer() -> TransportError:
    return TransportError(
        "the server answered about other objects than requested", hint="Try again."
    )
