"""Processes of a data folder that outlive the server: how one is started, and the line on which it
is told things.

A request is a JSON document on a line and carries the folder's token; the answer is a line too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml import open_files
from cloud_ml.errors import Unavailable

_START_S = 30.0
_LEAST_ROOM_BYTES = 64 << 10
"""A disk with less free space than this counts as full."""


@dataclass(frozen=True)
class Resident:
    """Where one lives, and what it is called.

    ``module`` is its program; ``refuses`` begins the sentence of a refusal.
    """

    name: str
    module: str
    folder: Path
    socket: str
    log: str
    refuses: str
    line_bytes: int
    answer_s: float

    async def open(self, token: str) -> DaemonConnection:
        """A line to the one that runs.

        Raises:
            OSError: None does.
        """
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:  # a socket's path is limited to about a hundred bytes
            reader, writer = await asyncio.open_unix_connection(
                f"/proc/self/fd/{folder}/{self.socket}", limit=self.line_bytes
            )
        finally:
            os.close(folder)
        return DaemonConnection(self, token, reader, writer)

    def start(self, config: str) -> None:
        """Start one with this configuration and wait until it listens. Blocking.

        Raises:
            Unavailable: It did not start; with the reason.
        """
        log = self.folder / self.log
        with log.open("ab") as words:
            # -I: neither the working directory nor PYTHON* variables decide what is imported. A
            # session of its own: Ctrl-C in the server's terminal does not reach it.
            process = subprocess.Popen(  # noqa: S603 - a program of ours
                [sys.executable, "-I", "-m", self.module],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        open_files.restore_limit(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.write(config.encode())
            process.stdin.close()
            poll = select.poll()  # ``select`` cannot watch a descriptor beyond 1,023
            poll.register(process.stdout, select.POLLIN)
            if not poll.poll(1000 * _START_S) or process.stdout.readline() != b"ready\n":
                process.kill()
                process.wait()
                raise self._not_started(log, process.returncode)
        process.returncode = (
            0  # it outlives us on purpose: no warning about a child that still runs
        )
        _bury(process.pid)

    def _not_started(self, log: Path, code: int) -> Unavailable:
        """Why it did not start. On a full disk it cannot write the reason into its log."""
        room = os.statvfs(self.folder)
        lines = log.read_bytes()[-4096:].decode(errors="replace").split("\n")
        texts = [line for line in lines if line.strip()]
        if room.f_bavail * room.f_frsize < _LEAST_ROOM_BYTES:
            reason, hint = f"the disk of {self.folder} is full", "Free some space, then try again."
        else:
            ended = f"it was killed by signal {-code}" if code < 0 else f"it ended with code {code}"
            reason, hint = texts[-1] if texts else ended, f"See {log}."
        return Unavailable(f"the {self.name} did not start: {reason}", hint=hint)


_started: set[int] = set()


def _bury(child: int) -> None:
    """Hear of the ends of those that were started before; one that was replaced would stay a
    zombie for ever.
    """
    _started.add(child)
    for pid in list(_started):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _started.discard(pid)


@dataclass(frozen=True)
class DaemonConnection:
    """A connection to a resident. One exchange at a time is the caller's affair."""

    resident: Resident
    token: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask, and hear the answer.

        Raises:
            EOFError: The connection was closed.
            Unavailable: The resident refuses.
            TimeoutError: It does not answer in time.
        """
        self.writer.write(
            json.dumps({**request, "token": self.token}, separators=(",", ":")).encode() + b"\n"
        )
        # After a timeout the caller must close the connection. Otherwise a late answer would be
        # read as the next one.
        async with asyncio.timeout(self.resident.answer_s):
            line = await self.reader.readline()
        if not line:
            raise EOFError("the connection was closed")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise Unavailable(f"{self.resident.refuses}: {answer['error']}")
        return answer

    @property
    def broken(self) -> bool:
        """Whether the resident has ended, or hung up."""
        return self.reader.at_eof() or self.reader.exception() is not None

    def close(self) -> None:
        """Hang up."""
        self.writer.close()
