"""``-r FILE`` and ``--install PACKAGE`` of ``jobs submit``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cloud_ml.cli.completion.candidates import files
from cloud_ml.models.paths.local import local_path
from cloud_ml.text_encoding import decode_text

if TYPE_CHECKING:
    from cloud_ml.models.jobs.train_job import TrainJob

F = TypeVar("F", bound=Callable[..., Any])
_COMMENT = re.compile(r"(^|\s)#.*$")
_NAMED_FILE = re.compile(r"(?:-r|--requirement)(?:\s+|=)?(\S.*)")
_OPTION_BEHIND = re.compile(r"\s--\w.*$")
_MOST_FILES = 20
_UNREAD = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "Pipfile")


def requirement_options(command: F) -> F:
    """Add the two options to a command; see ``given_requirements``."""
    file = click.option(
        "-r",
        "--requirement",
        "requirement_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        shell_complete=files,
        help="Install what this file lists, beside what the code requires.",
    )
    package = click.option(
        "--install",
        "packages",
        multiple=True,
        metavar="PACKAGE",
        help='Install this package, such as "numpy>=2".',
    )
    return file(package(command))


def given_requirements(
    fields: dict[str, Any], requirement_files: Sequence[Path], packages: Sequence[str]
) -> dict[str, Any]:
    """The field ``requirements``, with what the options add to that of ``fields``; nothing without
    options.

    Raises:
        UsageError: A file cannot be read, names too many others, or holds an option that is not
            taken.
    """
    if not requirement_files and not packages:
        return {}
    lines = [line for file in requirement_files for line in read_requirements(file)]
    return {"requirements": [*(fields.get("requirements") or []), *lines, *packages]}


def read_requirements(file: Path) -> list[str]:
    """The requirements of a file, and of those that it names with ``-r``."""
    found: list[str] = []
    waiting, seen = [file], set[Path]()
    while waiting:
        current = waiting.pop(0).absolute()
        if current in seen:
            continue
        seen.add(current)
        if len(seen) > _MOST_FILES:
            raise click.UsageError(f"{file} leads to more than {_MOST_FILES} files")
        for line in _lines(current):
            if named := _NAMED_FILE.fullmatch(line):
                waiting.append(current.parent / named[1].strip())
            elif line.startswith("-"):
                option = re.split(r"[ =]", line)[0]
                raise click.UsageError(
                    f"{current.name} has the option {option}, which is not taken; allowed are "
                    "packages and -r FILE"
                )
            else:
                found.append(line)
    return found


def _lines(file: Path) -> list[str]:
    try:
        text = decode_text(file.read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    bare = (_COMMENT.sub("", line).strip() for line in text.replace("\\\n", " ").splitlines())
    return [_OPTION_BEHIND.sub("", line).strip() for line in bare if line]


def unread_requirements(job: TrainJob) -> str:
    """What to say about code that lists its packages only where they are not read."""
    from cloud_ml.sdk.trainers.script_files import REQUIREMENT_FILES

    if "://" in job.trainer_uri or job.requirements:
        return ""
    folder = local_path(job.trainer_uri)
    if any((folder / name).is_file() for name in (*REQUIREMENT_FILES, "setup.py")):
        return ""
    unread = next((name for name in _UNREAD if (folder / name).is_file()), "")
    return f"Note: {unread} is not read; list its packages in requirements.txt" if unread else ""
