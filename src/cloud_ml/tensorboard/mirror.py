"""Copies of the files that TensorBoard shows, where their folders cannot be mounted.

TensorBoard reads a local tree only. Copies are made while somebody looks, of what has changed: of a
file that has grown, what is new. While nobody looks, nothing is asked for.

The server connects to a Unix socket in the working folder, and then answers requests on it. So this
needs no network, no address and no key. A request is a line of JSON. The answer is a line of JSON
too; the bytes of a file follow it.

```
{"list": 0, "after": ""}                     {"objects": [["a/events.out.tfevents.1", 88, "etag"]], "next": null}
{"read": 0, "path": "a/events…", "start": 8} {"size": 88, "etag": "etag", "length": 80} and 80 bytes
```
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOCKET = "mirror.sock"
"""Where the server finds a TensorBoard that copies, in its working folder."""
LOOK_S = 5.0
"""How often changes are asked for: as often as TensorBoard reads its folder."""
ATTENTION_S = 60.0
"""Somebody looks for so long after a request: pages that renew themselves do it every 30 s."""
OVERLAP = 4096
"""So many bytes of a copy are compared before more are added: another file may have its name now."""
_ANSWER_S = 60.0
_LONGEST_LINE = 8 << 20
_ENDINGS = (".tsv", ".bytes", "projector_config.pbtxt")


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
        self._used = 0
        self._etags: dict[tuple[int, str], str] = {}
        self._is_full = False
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
        """Go on with the copies of an earlier attempt. Nobody knows their versions any more, so the
        end of each is read and compared.
        """
        self._etags.clear()
        self._used = 0
        for source in range(self._sources):
            self.folder(source).mkdir(parents=True, exist_ok=True)
            for folder, _, names in os.walk(self.folder(source)):
                for name in names:
                    path = Path(folder, name)
                    self._etags[source, str(path.relative_to(self.folder(source)))] = ""
                    self._used += size_of(path)

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
                    self._follow(Server(connection))
                except ConnectionError:
                    pass
                except Exception:
                    traceback.print_exc()

    def _follow(self, server: Server) -> None:
        with contextlib.closing(server):
            while True:
                self._wait_until_somebody_looks()
                self.update(server)
                time.sleep(LOOK_S)

    def _wait_until_somebody_looks(self) -> None:
        while True:
            self._requested.clear()  # first: a request that comes after the look sets it again
            if time.monotonic() - self._last_request <= ATTENTION_S:
                return
            self._requested.wait()

    def update(self, server: Server) -> None:
        """Copy what has changed since the last time.

        Raises:
            OSError: The server does not answer.
            ValueError: What it answers is no answer.
        """
        for source in range(self._sources):
            there = {one.path: one for one in server.files(source) if is_shown(one.path)}
            for number, path in [key for key in self._etags if key[0] == source]:
                if path not in there:
                    self._remove(number, path)
            for file in there.values():
                if self._etags.get((source, file.path)) != file.etag:
                    # One whose name is too long, or is that of a folder; a full disk.
                    with contextlib.suppress(LocalError):
                        self._copy(server, source, file)

    def _copy(self, server: Server, source: int, file: RemoteFile) -> None:
        target = self.folder(source) / file.path
        before = size_of(target)
        if self._used - before + file.size > self._limit:
            self._say_full()
            return
        self._used -= before
        try:
            self._copy_rest(server, source, file.path, target)
        finally:
            self._used += size_of(target)

    def _copy_rest(self, server: Server, source: int, path: str, target: Path) -> None:
        have, begun_anew = size_of(target), False
        while True:
            start = max(0, have - OVERLAP)
            piece = server.read(source, path, start)
            if piece is None:  # deleted since it was listed
                return
            known = tail(target, start, have)
            if piece.size < have or not piece.content.startswith(known):
                if begun_anew:  # it changes all the time; the next look tries again
                    return
                remove(target)
                have, begun_anew = 0, True
                continue
            more = piece.content[len(known) :]
            if self._used + have + len(more) > self._limit:
                self._say_full()
                return
            append(target, more)
            have += len(more)
            is_complete = have >= piece.size
            self._etags[source, path] = piece.etag if is_complete else ""
            if is_complete or not more:
                return

    def _remove(self, source: int, path: str) -> None:
        target = self.folder(source) / path
        del self._etags[source, path]
        self._used -= size_of(target)
        with contextlib.suppress(LocalError):
            remove(target)
        self._used += size_of(target)

    def _say_full(self) -> None:
        if not self._is_full:
            self._is_full = True
            sys.stdout.write(
                f"copies of event files take {self._limit} bytes, which is the limit "
                "(applications.mirror_bytes): what is new is not shown\n"
            )
            sys.stdout.flush()


@dataclass(frozen=True)
class RemoteFile:
    """A file of a source. ``size`` in bytes."""

    path: str
    size: int
    etag: str


@dataclass(frozen=True)
class Piece:
    """Bytes of a file, and what is known of the whole. ``size`` in bytes."""

    size: int
    etag: str
    content: bytes


class Server:
    """Asks the server, on a connection that it has made."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rwb")

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._file.close()

    def files(self, source: int) -> Iterator[RemoteFile]:
        """All files of a source.

        Raises:
            OSError, ValueError: See ``Mirror.update``.
        """
        after: str | None = ""
        while after is not None:
            answer = self._ask({"list": source, "after": after})
            for path, size, etag in answer.get("objects", ()):
                yield RemoteFile(str(path), int(size), str(etag))
            after = answer.get("next")

    def read(self, source: int, path: str, start: int) -> Piece | None:
        """What follows ``start`` in a file, or the beginning of that; ``None`` if it is gone.

        Raises:
            OSError, ValueError: See ``Mirror.update``.
        """
        answer = self._ask({"read": source, "path": path, "start": start})
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


class LocalError(Exception):
    """A copy cannot be read or written here."""


def is_shown(path: str) -> bool:
    """Whether TensorBoard or one of its plug-ins reads a file of that path."""
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in [*folders, name]):
        return False
    return "tfevents" in name or "plugins" in folders or name.endswith(_ENDINGS)


def size_of(path: Path) -> int:
    """The bytes that a copy has; 0 without one."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail(path: Path, start: int, end: int) -> bytes:
    """The bytes of a copy from ``start`` to ``end``.

    Raises:
        LocalError: It cannot be read.
    """
    if start == end:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)
    except OSError as error:
        raise LocalError from error


def remove(path: Path) -> None:
    """Remove a copy, if there is one.

    Raises:
        LocalError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise LocalError from error


def append(path: Path, content: bytes) -> None:
    """Add bytes to a copy, or make it.

    Raises:
        LocalError: The disk is full, or the path cannot be had.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        raise LocalError from error
