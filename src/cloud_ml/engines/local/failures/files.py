"""What a job may have meant by a file that is not there: what was sent with it, and names like it.

The folders belong to the job, which may have replaced any of them by a link: they are walked by
descriptor, links are never followed, and the walk is bounded.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath

MOST_ENTRIES = 2000
"""Entries of all folders together that are looked at."""
MOST_DEPTH = 8
_SHOWN = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COMPARED = 200
"""Longer names are not compared by their spelling."""
_COMPARISONS = 500_000
"""Pairs of characters that are compared in all, about a tenth of a second: 800 names of 25
characters.
"""
_SKIPPED = ("__pycache__", "node_modules")
_STORAGE, _FDS = "/storage/", "/fds/"
_WITHOUT_SANDBOX = re.compile(r"/.*/jobs/[0-9a-f]{32}(?=/(?:storage|fds)/)")
"""What stands before these where a job sees the folders of the machine."""
_SECRET = re.compile(r"/run/secrets/([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?)")
_ELSEWHERE = re.compile(
    r"(?:/home/|/Users/|/content/|/kaggle/|/mnt/|/data/|/root/|/scratch/|/lustre/|/gpfs/|/nfs/|"
    r"/datasets?/|/workspace/|~|[A-Za-z]:[\\/])"
)
_WITH_VARIABLE = re.compile(r"\$(?:[A-Z]|\{[A-Z])")
NOT_REPLACED = "variables in arguments are not replaced: read them in the code, with os.environ"
_NOT_SENT = re.compile(r"\.\./|/tmp/")
"""Paths of files that the job may have written itself, or that are on the user's machine only."""
_QUOTED = re.compile(r"(?:No such file or directory|unable to open file)[^']{0,40}'([^']{1,1000})'")
_NOT_FOUND = re.compile(
    r"(?:\[Errno 2\] )?(?:File )?'?([^\s'][^']{0,500}?)'? (?:not found|does not exist)\b"
)


@dataclass(frozen=True)
class CodeFolder:
    """A folder of the job's code: where it lies on this machine, and where the job sees it."""

    source: str
    target: str


def user_file(path: str, folders: Sequence[CodeFolder]) -> str:
    """The name of a file of the user's code, below its innermost folder; empty for a file of
    somebody else.
    """
    targets = [folder.target.rstrip("/") + "/" for folder in folders]
    inside = [target for target in targets if path.startswith(target)]
    return path[len(max(inside, key=len)) :] if inside else ""


def missing_path(detail: str) -> str:
    """The path in the message of a ``FileNotFoundError``; empty if it names none."""
    match = _QUOTED.search(detail[:2000]) or _NOT_FOUND.match(detail[:2000])
    return match[1] if match else ""


def advice(detail: str, working_folder: str, folders: Sequence[CodeFolder]) -> str:
    """Where the missing file was looked for, what was sent, and which names are like it."""
    path = _WITHOUT_SANDBOX.sub("", missing_path(detail), count=1)
    if path.startswith("fds://"):
        return "open() takes no URI: hand it to the code as an argument, which becomes a path"
    if _WITH_VARIABLE.search(path):
        return NOT_REPLACED
    if path.startswith((_STORAGE, _FDS)):
        return _storage_advice(path)
    if secret := _SECRET.fullmatch(path):
        return f"the job has no secret of this name: submit it with --secret {secret[1]}; cloudml secret list shows all"
    sent = list(sent_files(folders))
    near = _similar_files(path, sent)
    if not near and _ELSEWHERE.match(path):  # first: messages are cut at their end
        return (
            "the path is of another machine: send the file with the code, or put it into a bucket; "
            f"the working directory is {working_folder}"
        )
    if not near and _NOT_SENT.match(path):
        is_above = path.startswith("..")
        why = "nothing above the folder is sent" if is_above else "the job has a /tmp of its own"
        return (
            f"{why}: put the file into the folder of the code, or into a bucket with cloudml "
            f"storage cp; the working directory is {working_folder}"
        )
    parts = [f"the working directory is {working_folder}", _sent_sentence(sent)]
    if near:
        parts.append(f"did you mean {' or '.join(near)}?")
    return "; ".join(parts)


def _storage_advice(path: str) -> str:
    """The command that lists the bucket; ``/fds`` is the one that the job names by
    ``fds_bucket``.
    """
    inside = (
        path.removeprefix(_STORAGE)
        if path.startswith(_STORAGE)
        else f"BUCKET/{path.removeprefix(_FDS)}"
    )
    bucket, _, key = inside.partition("/")
    folder = key.rpartition("/")[0]
    return f"see what is there: cloudml storage ls fds://{bucket}/{folder}" + (
        "/" if folder else ""
    )


def sent_files(folders: Sequence[CodeFolder]) -> Iterator[str]:
    """Names of the files in ``folders``, each once, without what is hidden or made by Python."""
    seen: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in _files(os.open(folder.source, _FOLDER)):
                if name not in seen:
                    seen.add(name)
                    yield name


def _files(root: int) -> Iterator[str]:
    """Files below ``root``, which is closed at the end. Breadth first: the user's own lie high
    up.
    """
    waiting, left = [("", root, 0)], MOST_ENTRIES
    try:
        while waiting and left > 0:
            below, descriptor, depth = waiting.pop(0)
            try:
                entries = _entries(descriptor, left)
                left -= len(entries)
                for name, is_folder in entries:
                    if not is_folder:
                        yield f"{below}{name}"
                    elif (
                        depth < MOST_DEPTH
                        # Each waiting folder holds an open descriptor.
                        and len(waiting) < 100
                        and (inner := _open_inside(descriptor, name))
                    ):
                        waiting.append((f"{below}{name}/", inner, depth + 1))
            finally:
                os.close(descriptor)
    finally:
        for _, descriptor, _ in waiting:
            os.close(descriptor)


def _entries(descriptor: int, most: int) -> list[tuple[str, bool]]:
    try:
        with os.scandir(descriptor) as entries:
            looked_at = list(itertools.islice(entries, most))
            own = [one for one in looked_at if not _is_skipped(one.name) and not one.is_symlink()]
            return sorted((one.name, one.is_dir(follow_symlinks=False)) for one in own)
    except OSError:
        return []


def _is_skipped(name: str) -> bool:
    return (
        name.startswith(".")
        or name in _SKIPPED
        or name.endswith((".pyc", ".dist-info", ".egg-info"))
    )


def _open_inside(descriptor: int, name: str) -> int | None:
    try:
        return os.open(name, _FOLDER, dir_fd=descriptor)
    except OSError:
        return None


def _sent_sentence(sent: Sequence[str]) -> str:
    if not sent:
        return "no file was sent with the code"
    ordered = sorted(sent, key=lambda name: (name.count("/"), name))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"sent with the code: {', '.join(ordered[:_SHOWN])}{more}{_folder_hint(ordered)}"


def _folder_hint(sent: Sequence[str]) -> str:
    """Whoever submits a script alone may not know that what lies beside it stays behind."""
    scripts = [name for name in sent if name.endswith(".py")]
    if len(scripts) != 1 or any("/" in name or not name.endswith((".py", ".txt")) for name in sent):
        return ""
    return (
        f"; a script is sent alone: to send the files beside it, submit its folder, as in "
        f"cloudml jobs submit NAME {scripts[0].removesuffix('.py')} FOLDER"
    )


def _similar_files(path: str, sent: Sequence[str]) -> list[str]:
    """Files of the same name elsewhere, else those whose path or name is spelled like it."""
    sent = [one for one in sent if len(one) <= _COMPARED]
    short_path = path.removeprefix("./")[-_COMPARED:]
    name = PurePosixPath(short_path.replace("\\", "/")).name
    if not name:
        return []
    same = [one for one in sent if PurePosixPath(one).name == name and one != short_path]
    if same:
        return same[:2]
    if near := get_close_matches(short_path, _comparable(short_path, sent), n=2, cutoff=0.75):
        return near
    names = {PurePosixPath(one).name: one for one in sent}
    return [
        names[one] for one in get_close_matches(name, _comparable(name, names), n=2, cutoff=0.75)
    ]


def _comparable(path: str, names: Iterable[str]) -> list[str]:
    """The shortest of the names, as many as may be compared with ``path``."""
    left, taken = _COMPARISONS, list[str]()
    for name in sorted(names, key=len):
        if (left := left - len(path) * len(name)) < 0:
            break
        taken.append(name)
    return taken
