"""A Git repository behind a web server on loopback, as ``git http-backend`` serves it."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUIET = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"]}
_NAMES = {
    f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


class GitServer(http.server.ThreadingHTTPServer):
    """Serves the repositories below ``root``; ``redirects`` leads paths on."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.redirects: dict[str, str] = {}
        self.seen: list[str] = []

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_port}{path}"

    def commit(self, name: str, files: dict[str, str], *, tag: str = "") -> str:
        """Add files to the repository ``name``, which is made if absent; returns the commit."""
        work = self.root / name
        work.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        git(work, "init", "--quiet", "--initial-branch=main")
        git(work, "config", "uploadpack.allowReachableSHA1InWant", "true")
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "--allow-empty", "-m", "x")
        if tag:
            git(work, "tag", tag)
        return git(work, "rev-parse", "HEAD").strip()


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; returns what it says."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=_QUIET | _NAMES, capture_output=True, text=True, check=True
    )
    return done.stdout


class _Handler(http.server.BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        path, _, query = self.path.partition("?")
        if (target := self.server.redirects.get(path)) is not None:
            self.send_response(301)
            self.send_header("Location", f"{target}?{query}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environment = {
            **_QUIET,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving_git(root: Path) -> Iterator[GitServer]:
    """A server that runs in a thread."""
    with GitServer(root) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
