"""Downloads that go on where they were interrupted, are checked, and appear when they are
complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cloud_ml.errors import Conflict, InvalidRequest, TransportError
from cloud_ml.sdk.answers import Answer
from cloud_ml.sdk.messages import Request
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.digests import BackgroundDigest
from cloud_ml.sdk.storage.transfers import digest_of
from cloud_ml.sdk.storage.uris import repr_digest
from cloud_ml.sdk.transport import Transport

_BLOCK = 1 << 20
_VERSION_BYTES = 1024
_MOST_NAME_BYTES, _SHOWN_BYTES = 200, 160
_CHANGES = 5
"""How often an object may be replaced while it is fetched before we give up."""


def fetch(transport: Transport, path: str, target: Path, *, progress: Progress | None) -> int:
    """Write the object at a path of the API to a file. Returns its size in bytes.

    What was fetched of this version of the object before, also by another process, lies beside the
    target under a hidden name and is not fetched again.

    Raises:
        InvalidRequest: The file cannot be written.
        TransportError: The connection broke and could not be made again, or what came is damaged.
        CloudMlError: As ``Transport.send``.
    """
    try:
        for _ in range(_CHANGES):
            with contextlib.suppress(
                Conflict
            ):  # replaced meanwhile: its new version, from the beginning
                return _fetch_version(transport, path, target, progress)
    except OSError as error:
        raise InvalidRequest(
            f"{target} cannot be written: {error.strerror}", field="file", value=str(target)
        ) from error
    raise TransportError(f"{target.name} is replaced all the time and cannot be fetched as a whole")


def _fetch_version(transport: Transport, path: str, target: Path, progress: Progress | None) -> int:
    # With something to go on with, the version is asked for first: a body would be on its way for
    # nothing.
    head_only = _read_version(target) is not None
    answer = transport.send(Request("HEAD", path)) if head_only else _get(transport, path)
    etag, length = answer.headers.get("etag", ""), answer.headers.get("content-length", "")
    total = int(length) if length.isdigit() else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(answer))
        file, draft = stack.enter_context(_draft(target, etag))
        digest, done = stack.enter_context(contextlib.closing(BackgroundDigest())), 0
        if (
            total is not None and os.fstat(file.fileno()).st_size > total
        ):  # what is no beginning of it
            file.truncate(0)
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
        first = None if done or head_only else answer
        done = _receive(transport, path, first, file, digest, done, total, etag, progress)
        file.flush()
        expected = repr_digest(answer.headers.get("repr-digest"))
        # The digest must be that of the version received: the object may have been replaced since.
        if expected is None and etag:
            again, expected = digest_of(transport, path)
            expected = expected if again == etag else None
        if expected is not None and expected != digest.hexdigest():
            draft.unlink(missing_ok=True)
            raise TransportError(
                f"{target.name} was damaged in transit: its digest differs from the server's"
            )
        # While the lock is held: who takes it afterwards sees in ``_open`` that the name is gone or
        # another file's.
        draft.replace(target)
    return done


def _receive(  # noqa: PLR0917
    transport: Transport,
    path: str,
    first: Answer | None,
    file: IO[bytes],
    digest: BackgroundDigest,
    done: int,
    total: int | None,
    etag: str,
    progress: Progress | None,
) -> int:
    """Write what is left, over as many connections as it takes; each must bring something."""
    failures, current = 0, first
    if progress is not None:
        progress(done, total)
    while True:
        try:
            if current is None:
                if done == total:
                    return done
                # Without ``If-Range`` (RFC 9110, section 13.1.5) the rest of another version could
                # be appended.
                rest = {"Range": f"bytes={done}-", "If-Range": etag} if done else {"If-Match": etag}
                current = _get(transport, path, rest)
                if done and (current.status != 206 or current.headers.get("etag") != etag):
                    # another version by now, or somebody on the way who knows no ``If-Range``
                    current.close()
                    raise Conflict("the object is another one by now")
            with contextlib.closing(current):
                for chunk in current:
                    file.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    failures = 0
                    if progress is not None:
                        progress(done, total)
        except TransportError:
            failures += 1
            if not etag or failures >= transport.retry.attempts:
                raise
            transport.sleep(transport.retry.backoff(failures, random.random()))  # noqa: S311 - guards nothing
            current = None
        else:
            return done


def _get(transport: Transport, path: str, headers: dict[str, str] | None = None) -> Answer:
    return transport.send(Request("GET", path, headers={"Accept": "*/*", **(headers or {})}))


@contextlib.contextmanager
def _draft(target: Path, etag: str) -> Iterator[tuple[IO[bytes], Path]]:
    """The file beside ``target`` that grows, held by one process at a time; beside it stands of
    which version it is.

    It stays when a download is interrupted, unless nothing can be done with it later.
    """
    draft, version = _draft_of(target), _version_of(target)
    file = _open(draft) if etag else None
    kept = file is not None
    if file is None:  # no version to go on with, or another process fetches the same
        draft = _beside(target, f"{os.urandom(8).hex()}.part")
        file = draft.open("x+b")
    elif _read_version(target) != etag:
        file.truncate()
        # After the old bytes are gone: a process killed in between must not leave them under the
        # new version.
        _write_version(version, etag)
    try:
        with file:
            yield file, draft
            if kept:
                version.unlink(missing_ok=True)
    except BaseException:
        if not kept or not draft.exists() or not draft.stat().st_size:
            draft.unlink(missing_ok=True)
            if kept:
                version.unlink(missing_ok=True)
        raise


def _read_version(target: Path) -> str | None:
    """Of which version the draft is; ``None`` where there is none, or a link stands in its
    place.
    """
    try:
        descriptor = os.open(
            _version_of(target), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_VERSION_BYTES).decode("utf-8", "replace")


def _write_version(version: Path, etag: str) -> None:
    """Note it in a new file, which takes the place of whatever stood there: a link is not
    followed.
    """
    fresh = version.with_name(f".{os.urandom(8).hex()}.cloudml-version")
    with fresh.open("x", encoding="utf-8") as file:
        file.write(etag)
    fresh.replace(version)


def _draft_of(target: Path) -> Path:
    return _beside(target, "cloudml-part")


def _version_of(target: Path) -> Path:
    return _beside(target, "cloudml-version")


def _beside(target: Path, ending: str) -> Path:
    """A hidden file of the target's. A long name gives way to its digest: names have at most 255
    bytes.
    """
    name = target.name
    if len(os.fsencode(name)) > _MOST_NAME_BYTES:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        name = f"{os.fsencode(name)[:_SHOWN_BYTES].decode('utf-8', 'ignore')}~{digest}"
    return target.with_name(f".{name}.{ending}")


def _open(draft: Path) -> IO[bytes] | None:
    """The draft, locked; ``None`` if somebody else has it, or has just made it the target."""
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    file = os.fdopen(descriptor, "r+b")
    try:
        # Never waited for: the other process may be a download of hours, and this one can use a
        # draft of its own.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between the opening and the lock, the owner may have renamed the file to the target, which
        # must not be written to any more.
        if draft.stat().st_ino == os.fstat(descriptor).st_ino:
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None
