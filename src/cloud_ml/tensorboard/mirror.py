"""Copies of the files that TensorBoard shows, where their folders cannot be mounted.

TensorBoard reads a local tree only. Copies are made while somebody looks, of what has changed: of an
event file that has grown, what is new. While nobody looks, nothing is asked for.

The server connects to a Unix socket in the working folder, and then answers requests on it. So this
needs no network, no address and no key. A request is a line of JSON. The answer is a line of JSON
too; the bytes of a file follow it. Times are in milliseconds since 1970.

```
{"list": 0, "after": ""}                     {"objects": [["a/events…", 88, "etag", 1764460800000]], "next": null}
{"read": 0, "path": "a/events…", "start": 8} {"size": 88, "etag": "etag", "length": 80} and 80 bytes
```
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml.tensorboard.copies import Copies, FileKey, LocalError

SOCKET = "mirror.sock"
"""Where the server finds a TensorBoard that copies, in its working folder."""
LOOK_S = 5.0
"""How often changes are asked for: as often as TensorBoard reads its folder. So long is copied
before they are asked for again."""
ATTENTION_S = 60.0
"""Somebody looks for so long after a request: pages that renew themselves do it every 30 s."""
OVERLAP = 4096
"""So many bytes of a copy are compared before more are added: another file may have its name now."""
_RETRY_S = 60.0
"""A file that could not be written here is left alone for so long."""
_SAVE_S = 60.0
_ANSWER_S = 60.0
_LONGEST_LINE = 32 << 20


class Mirror:
    """Keeps a copy of each source in a folder of its own, named by the number of the source.

    Args:
        root: The folder of the copies.
        sources: How many there are.
        limit: Bytes that all copies may have.
    """

    def __init__(self, root: Path, sources: int, limit: int) -> None:
        self._root = root
        self._sources = sources
        self._limit = limit
        self._copies = Copies(root)
        self._retry_at: dict[FileKey, float] = {}
        self._is_full = False
        self._deadline = 0.0
        self._requested = threading.Event()
        self._last_request = time.monotonic()

    def folder(self, source: int) -> Path:
        """Where the copies of a source are."""
        return self._root / str(source)

    def start(self, socket_name: str = SOCKET) -> None:
        """Listen for the server, and copy in a thread."""
        Path(socket_name).unlink(missing_ok=True)  # of an earlier attempt
        self.find_copies()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(socket_name)
        listener.listen()
        threading.Thread(target=self._run, args=(listener,), name="mirror", daemon=True).start()

    def find_copies(self) -> None:
        """Go on with the copies of an earlier attempt, unless they are more than there may be."""
        self._copies.find(self._sources)
        if self._copies.used > self._limit:
            shutil.rmtree(self._root, ignore_errors=True)
            self._copies.find(self._sources)

    def note_request(self) -> None:
        """Somebody looks."""
        self._last_request = time.monotonic()
        self._requested.set()

    def _run(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            # A server that has gone is noticed at the next request; then the next one is accepted.
            with connection:
                connection.settimeout(_ANSWER_S)
                try:
                    self._follow(ServerConnection(connection))
                except ConnectionError:
                    pass
                except Exception:
                    traceback.print_exc()

    def _follow(self, server: ServerConnection) -> None:
        with contextlib.closing(server):
            while True:
                self._wait_until_somebody_looks()
                if self.update(server):
                    time.sleep(LOOK_S)

    def _wait_until_somebody_looks(self) -> None:
        while True:
            self._requested.clear()  # first: a request that comes after the look sets it again
            if self._somebody_looks():
                return
            self._copies.save()
            self._requested.wait()

    def _somebody_looks(self) -> bool:
        return time.monotonic() - self._last_request <= ATTENTION_S

    def _has_to_stop(self) -> bool:
        """Whether changes have to be asked for again, or nobody looks any more."""
        return time.monotonic() > self._deadline or not self._somebody_looks()

    def update(self, server: ServerConnection) -> bool:
        """Copy what has changed, the newest files first. Returns whether that was all; what is left
        waits for the next call, so that changes of the others are noticed.

        Raises:
            OSError: The server does not answer.
            ValueError: What it answers is no answer.
        """
        self._deadline, changed = time.monotonic() + LOOK_S, list[RemoteFile]()
        for source in range(self._sources):
            changed += self._find_changed(source, server)
        for file in sorted(changed, key=lambda one: one.modified, reverse=True):
            if self._has_to_stop():
                return False
            try:
                self._copy(server, file)
            except LocalError:  # a full disk; a path that cannot be had here
                self._retry_at[file.key] = time.monotonic() + _RETRY_S
        self._copies.save(every_s=_SAVE_S)
        return not self._has_to_stop()  # the last file may not be whole

    def _find_changed(self, source: int, server: ServerConnection) -> list[RemoteFile]:
        """The files of which there is no copy of this version. Copies of files that are gone go."""
        there = {one.key: one for one in server.files(source) if is_safe(one.path)}
        for key in self._copies.of(source):
            if key not in there:
                self._copies.remove(key)
        now = time.monotonic()
        self._retry_at = {key: at for key, at in self._retry_at.items() if at > now}
        return [
            one
            for key, one in there.items()
            if self._copies.etag(key) != one.etag and key not in self._retry_at
        ]

    def _copy(self, server: ServerConnection, file: RemoteFile) -> None:
        have = self._copies.size(file.key)
        if self._copies.used - have + file.size > self._limit:
            self._say_full()
        elif is_appended_to(file.path):
            self._copy_rest(server, file.key, have)
        else:
            self._copy_whole(server, file.key)

    def _copy_rest(self, server: ServerConnection, key: FileKey, have: int) -> None:
        """Add what is new. Of another file under that name, everything is new."""
        begun_anew = False
        while True:
            start = max(0, have - OVERLAP)
            piece = server.read(key, start)
            if piece is None:  # deleted since it was listed
                return
            known = self._copies.read(key, start, have)
            if piece.size < have or not piece.content.startswith(known):
                if begun_anew:  # it changes all the time; the next look tries again
                    return
                self._copies.remove(key)
                have, begun_anew = 0, True
                continue
            more = piece.content[len(known) :]
            if self._copies.used + len(more) > self._limit:
                self._say_full()
                return
            self._copies.append(key, more)
            have += len(more)
            if have >= piece.size:
                self._copies.complete(key, piece.etag)
                return
            if not more or self._has_to_stop():
                return

    def _copy_whole(self, server: ServerConnection, key: FileKey) -> None:
        """Copy a file that is written anew when it changes, and put it in the place of the old one."""
        etag, room = "", self._limit - self._copies.used + self._copies.size(key)
        with contextlib.closing(self._copies.draft()) as draft:
            while True:
                piece = server.read(key, draft.size)
                if piece is None or etag not in ("", piece.etag):  # the next look tries again
                    return
                etag = piece.etag
                if draft.size + len(piece.content) > room:
                    self._say_full()
                    return
                draft.write(piece.content)
                if draft.size >= piece.size or not piece.content:
                    break
        self._copies.take_draft(key, etag)

    def _say_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            sys.stdout.write(
                f"copies of event files may take {self._limit} bytes "
                "(applications.mirror_bytes, or most of the job's disk limit): not all are shown\n"
            )
            sys.stdout.flush()


@dataclass(frozen=True)
class RemoteFile:
    """A file of a source. ``size`` in bytes, ``modified`` in milliseconds since 1970."""

    source: int
    path: str
    size: int
    etag: str
    modified: int

    @property
    def key(self) -> FileKey:
        """Which file it is."""
        return FileKey(self.source, self.path)


@dataclass(frozen=True)
class Piece:
    """Bytes of a file, and what is known of the whole. ``size`` in bytes."""

    size: int
    etag: str
    content: bytes


class ServerConnection:
    """Asks the server, on a connection that it has made."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rwb")

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._file.close()

    def files(self, source: int) -> Iterator[RemoteFile]:
        """The files of a source that TensorBoard reads.

        Raises:
            OSError, ValueError: See ``Mirror.update``.
        """
        after: str | None = ""
        while after is not None:
            answer = self._ask({"list": source, "after": after})
            for path, size, etag, modified in answer.get("objects", ()):
                yield RemoteFile(source, str(path), int(size), str(etag), int(modified))
            after = answer.get("next")

    def read(self, key: FileKey, start: int) -> Piece | None:
        """What follows ``start`` in a file, or the beginning of that; ``None`` if it is gone.

        Raises:
            OSError, ValueError: See ``Mirror.update``.
        """
        answer = self._ask({"read": key.source, "path": key.path, "start": start})
        if "length" not in answer:
            return None
        length = int(answer["length"])
        content = self._file.read(length)
        if len(content) < length:
            raise ConnectionError("the server has gone")
        return Piece(int(answer["size"]), str(answer["etag"]), content)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        line = self._file.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the server has gone")
        answer: dict[str, Any] = json.loads(line)
        return answer


def is_safe(path: str) -> bool:
    """Whether a path stays in its folder."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def is_appended_to(path: str) -> bool:
    """Whether a file only grows. Each event file holds the times of its values, so two of them do
    not agree at the end and differ before.
    """
    return "tfevents" in path.rpartition("/")[2]
