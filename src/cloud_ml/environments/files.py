"""Folders that come into being whole, once, whoever else wants them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cloud_ml.environments.packages import settled
from cloud_ml.environments.removing import remove

_LIMIT = 16 * 1024 * 1024


def digest_of(*parts: object) -> str:
    """A name for ``parts``: equal ones give the same, whatever the order of keys."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of_file(path: Path) -> str:
    """SHA-256 of the bytes of ``path``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def hold_lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock at ``path`` against every other process; the system frees it if this one dies.

    ``waiting`` is called once if somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(
    target: Path,
    make: Callable[[Path], None],
    *,
    locks: Path,
    waiting: Callable[[], None] | None = None,
) -> Path:
    """The folder ``target``, made by ``make`` in a temporary place if it is not there yet.

    It appears whole or not at all. What a crash left behind is cleared by the next one who holds
    the lock.
    """
    if target.is_dir():
        return target
    with hold_lock(locks / target.name, waiting):
        # Another process may have made it while this one waited for the lock.
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        work = target.parent / f".{target.name}.making"
        remove(work)
        work.mkdir()
        try:
            settled.mark(target)
            make(work)
            settled.mark(target)  # it may have settled meanwhile, without what was written last
            work.rename(target)
        finally:
            remove(work)
    return target


def clear_leftovers(home: Path) -> None:
    """Remove what crashes left below ``home``; work in progress of living processes is let be.

    Whoever needs the same folder clears it anyway; this is for what nobody asks for again.
    """
    for work in (*home.glob("*/.*.making"), *home.glob("tenants/*/*/.*.making")):
        name = work.name.removeprefix(".").removesuffix(".making")
        with (work.parent.parent / "locks" / name).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            remove(work)
    for scratch in home.glob("tenants/*/scratch/*"):
        if not Path("/proc", scratch.name.partition("-")[0]).exists():
            remove(scratch)


def write_json(path: Path, document: Any) -> None:
    """Replace ``path`` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(f".{path.name}.{os.getpid()}")
    work.write_text(json.dumps(document))
    work.replace(path)


def read_json(path: Path, limit_bytes: int = _LIMIT) -> Any:
    """The document at ``path``; None if it is absent, damaged, over ``limit_bytes``, or not a plain
    file.

    Safe on a folder that a tenant could write to: links are not followed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit_bytes:
            return None
        try:
            return json.loads(file.read(facts.st_size))
        except (ValueError, RecursionError):
            return None


def is_real_folder(path: Path) -> bool:
    """Whether ``path`` is a folder and no link to one: what a tenant's build leaves may be
    anything.
    """
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
