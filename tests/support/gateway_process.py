"""A real gateway process without a server: a test tells it its routes and asks it for figures."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from cloud_ml.domain.services.routes import SOCKET, CallingKey, Route
from cloud_ml.gateway.config import SOCKET_NAME, TOKEN_NAME
from cloud_ml.models import codec

TESTS = Path(__file__).parents[1]


class GatewayProcess:
    """A gateway in a folder. Use as a context.

    Args:
        folder: An empty folder with a short path.
        config: What differs from the defaults of ``GatewayConfig``.
    """

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self._config = {
            "folder": str(folder),
            "version": "test",
            "host": "127.0.0.1",
            "job_sockets": str(folder),
            **config,
        }
        self._log = (folder / "log").open("w+b")
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "cloud_ml.gateway.main"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self.folder,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._config).encode())
        self._process.stdin.close()
        assert self._process.stdout.readline() == b"ready\n", self.log()
        self._line = socket.socket(socket.AF_UNIX)
        self._line.settimeout(30)
        self._line.connect(str(self.folder / SOCKET_NAME))
        self._reader = self._line.makefile("rb")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._line is not None:
            self._reader.close()
            self._line.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of the gateway to its server."""
        assert self._line is not None
        token = (self.folder / TOKEN_NAME).read_text("ascii")
        self._line.sendall(json.dumps({"token": token, **request}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._reader.readline())
        assert answer["ok"], answer
        return answer

    def tell(
        self,
        routes: dict[str, Route],
        drop: tuple[str, ...] = (),
        keys: dict[str, CallingKey] | None = None,
    ) -> None:
        """Serve these as well, and those no more."""
        document: dict[str, Any] = {
            "routes": {uid: codec.encode(route) for uid, route in routes.items()},
            "drop": drop,
        }
        if keys is not None:
            document["keys"] = {
                name: {"org": key.org, "key": key.key, "expires": key.expires}
                for name, key in keys.items()
            }
        answer = self.ask({"tell": document})
        assert not answer["unbound"], answer

    def figures(self, uid: str) -> dict[str, Any]:
        """What it counted for a service."""
        found: dict[str, Any] = self.ask({"figures": True})["figures"][uid]
        return found

    def memory(self, kind: str = "VmRSS") -> int:
        """Bytes that the process has in memory now, or had at most (``VmHWM``)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{kind}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    def forget_peak(self) -> None:
        """Have ``VmHWM`` begin again."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def log(self) -> str:
        self._log.flush()
        return (self.folder / "log").read_text(errors="replace")


@contextlib.contextmanager
def honest_replica(folder: Path) -> Iterator[None]:
    """A process that answers every call at the socket in a ``replica_folder`` with the call's
    body.
    """
    command = [sys.executable, "-m", "support.honest_replica", str(folder / SOCKET)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS, env=environment())
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def environment() -> dict[str, str]:
    """The environment of a process that imports ``support``."""
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{before}" if before else str(TESTS)}


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port
