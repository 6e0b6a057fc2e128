"""A commit of a Git repository as a tar: asked for by ``git``, which connects to a judged address
only.

``git`` gets the repository's real place from us. We follow its redirects ourselves, hop by hop, and
tell ``git`` the address that the host of the last one leads to (``http.curloptResolve``). It
follows no redirect, no alternate and no submodule, and runs no hook, filter or helper.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from cloud_ml.fetching.task import FetchFailed, Task, redact_url

_ADVERTISED = "application/x-git-upload-pack-advertisement"
_REFS = "/info/refs?service=git-upload-pack"
_BLOCK = 64 * 1024
_WORDS = 2000
_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
OLDEST = (2, 37)
"""Which brought ``http.curloptResolve``."""

Locate = Callable[[str], "tuple[str, str, str]"]
"""Asks a URL; gives the URL that it leads to, the type of the answer, and the address of its
host.
"""


def fetch(task: Task, out: BinaryIO, *, locate: Locate) -> int:
    """Write the files of the commit as a tar; returns its size.

    Args:
        task: What to fetch: a repository, a name of a commit, and a folder of it.
        out: Where the tar goes.
        locate: Follows redirects to judged addresses.

    Raises:
        FetchFailed: It cannot be had, or must not be.
    """
    program, _ = find_git()
    place, kind, address = locate(task.url.rstrip("/") + _REFS)
    # Only the smart protocol: with the older one, files of the host name further places to ask
    # (``objects/info/http-alternates``).
    if kind.partition(";")[0].strip() != _ADVERTISED or not place.endswith(_REFS):
        raise FetchFailed(
            f"{redact_url(task.url)} is not a Git repository, or not one that everybody may read"
        )
    repository, folder = place.removesuffix(_REFS), Path(task.folder)
    run = _Git(program, folder, _settings(repository, address))
    run("init", "--quiet", "--bare", str(folder / "repository"), what="preparing")
    what = f"the commit {task.ref}" if task.ref else "the commit"
    run("fetch", "--quiet", "--depth=1", "--no-tags", repository, task.ref or "HEAD", what=what)
    return _archive(run, task, out)


class _Git:
    """Runs ``git`` with settings of ours and nothing of the machine's."""

    def __init__(self, program: str, folder: Path, settings: Sequence[str]) -> None:
        self._line = [program, *settings]
        self._folder = folder
        self._messages_file = folder / "said"
        kept = {
            name: value
            for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")
            if (value := os.environ.get(name))
        }
        self.environment: Mapping[str, str] = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_DIR": str(folder / "repository"),
            "GIT_ATTR_NOSYSTEM": "1",
            **({"GIT_SSL_CAINFO": kept["SSL_CERT_FILE"]} if "SSL_CERT_FILE" in kept else {}),
            **kept,
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that runs; its output is piped, and its messages go to a file of bounded
        size.
        """
        with self._messages_file.open("wb") as file:
            return subprocess.Popen(  # noqa: S603 - our own command line
                [*self._line, *words], env=dict(self.environment), cwd=self._folder,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip

    def __call__(self, *words: str, what: str) -> None:
        process = self.start(*words)
        try:
            process.communicate()
        finally:
            _end(process)
        if process.returncode:
            raise FetchFailed(f"{what} cannot be fetched: {self.reason()}")

    def reason(self) -> str:
        """The last thing that git said, as one line."""
        with self._messages_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _WORDS, 0))
            lines = [
                line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()
            ]
        last = lines[-1] if lines else "git does not say why"
        return redact_url(last.removeprefix("fatal: ").removeprefix("error: "))


def _archive(run: _Git, task: Task, out: BinaryIO) -> int:
    below = task.subdirectory.strip("/")
    name = below.rpartition("/")[2] or task.name
    tree = f"FETCH_HEAD:{below}" if below else "FETCH_HEAD"
    process = run.start("archive", "--format=tar", f"--prefix={name}/", tree)
    size = 0
    try:
        assert process.stdout is not None
        while block := process.stdout.read(_BLOCK):
            size += len(block)
            if size > task.size_limit:
                raise FetchFailed(f"it has more than {task.size_limit} bytes")
            out.write(block)
        process.wait()
    finally:
        _end(process)
    if process.returncode:
        missing = f"there is no folder {redact_url(below)} in it" if below else ""
        raise FetchFailed(missing or f"its files cannot be read: {run.reason()}")
    return size


def _settings(repository: str, address: str) -> list[str]:
    parts = urlsplit(repository)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    bracketed = f"[{address}]" if ":" in address else address
    values = {
        # The connection goes to the address that was judged, whatever the name leads to now (DNS
        # rebinding).
        "http.curloptResolve": f"{parts.hostname}:{port}:{bracketed}",
        "http.followRedirects": "false",
        "http.proxy": "",
        "http.lowSpeedLimit": "1",
        "http.lowSpeedTime": "30",
        # `ext::` runs a command, and `file://` reads the server's disk.
        "protocol.allow": "never",
        f"protocol.{parts.scheme}.allow": "always",
        "credential.helper": "",
        # The program `true` says nothing, so a host that asks for a password gets an empty one.
        "core.askPass": "true",
        "core.hooksPath": os.devnull,
        "fetch.fsckObjects": "true",
        "fetch.recurseSubmodules": "false",
        # A host may name other places for packs and bundles, whose addresses nobody would judge.
        "fetch.uriProtocols": "",
        "transfer.bundleURI": "false",
        "transfer.unpackLimit": "1",  # always one pack, which the bound of a file's size holds for
        "gc.auto": "0",
        "maintenance.auto": "false",
        "pack.threads": "1",
        "tar.umask": "0022",
    }
    return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]


def find_git() -> tuple[str, str]:
    """The program and its version.

    Raises:
        FetchFailed: There is none, or it is too old.
    """
    program = shutil.which("git", path=_PROGRAMS)
    if program is None:
        raise FetchFailed(
            "git is not installed on the server; upload the code, or give the URL of an archive"
        )
    completed = subprocess.run(  # noqa: S603
        [program, "--version"], capture_output=True, check=False, timeout=30, env={}
    )
    words = completed.stdout.decode("ascii", "replace").split()
    version = words[2] if len(words) > 2 else ""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise FetchFailed(
            f"git {version or 'of the server'} is too old; from 2.37 on it connects to a "
            "given address"
        )
    return program, version


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
