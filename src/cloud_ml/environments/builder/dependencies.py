"""What the code that was sent requires, read from the files in which people say it.

===========================================  ====================================================
file                                         what counts
===========================================  ====================================================
``pylock.toml``, else ``uv.lock``            exact versions; the two files below are not read then
``requirements.txt``                         its lines, and those of files it names with ``-r``
``pyproject.toml`` of code without a build   ``project.dependencies``
the script that runs (PEP 723)               ``dependencies`` of its ``# /// script`` block
===========================================  ====================================================

Of a project with a build, the metadata of what was built counts, too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml.environments.builder import locks
from cloud_ml.environments.packages.requirements import BadRequirement, from_file_text, parse
from cloud_ml.environments.trainers.source_files import read_text

_BYTES, _LOCK_BYTES = 1 << 20, 16 << 20
_NESTED = 20
"""Files of requirements that one may name."""
_LOCKS: dict[str, Callable[[str], tuple[list[str], list[str]]]] = {
    "pylock.toml": locks.from_pylock,
    "uv.lock": locks.from_uv_lock,
}


@dataclass
class Declared:
    """Requirements, sentences for the log, and specifiers of Python's version, each with the
    file that says it.
    """

    requires: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    pythons: list[tuple[str, str]] = field(default_factory=list)


def read(root: Path, module: str | None, *, built: bool) -> Declared:
    """What the files below ``root`` say that the code requires.

    Args:
        root: The folder of the code.
        module: The module that will run.
        built: Whether the project is built, so that its metadata says what it requires.

    Raises:
        BadRequirement: A file cannot be read, or has a line that is not taken; the message begins
            with its name.
    """
    declared = Declared()
    project = _project(root)
    if python := _string(project, "requires-python"):
        declared.pythons.append(("pyproject.toml", python))
    lock = next((name for name in _LOCKS if (root / name).is_file()), None)
    if lock is not None:
        with _errors_of(lock):
            _add(declared, *_LOCKS[lock](_text(root, lock, _LOCK_BYTES)))
        if (root / "requirements.txt").is_file():
            declared.notices.append(
                f"requirements.txt is not read, because {lock} has the exact versions"
            )
    else:
        _add_requirements(declared, root, "requirements.txt")
        if not built:
            with _errors_of("pyproject.toml"):
                _add(declared, _list_requirements(project), [])
    script = _script(root, module)
    if script:
        _add_script(declared, root, script)
    return declared


def script_metadata(text: str) -> dict[str, Any]:
    """The content of the ``# /// script`` block of a script (PEP 723); empty without one.

    Raises:
        BadRequirement: There are two, or one that is not valid TOML.
    """
    blocks = list(_blocks(text.splitlines()))
    if not blocks:
        return {}
    if len(blocks) > 1:
        raise BadRequirement("it has several '# /// script' blocks")
    return locks.parse_toml("\n".join(blocks[0]))


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """The content of each block: lines of comments between its first line and the last that ends
    it.
    """
    number = 0
    while number < len(lines):
        number += 1
        if lines[number - 1].rstrip() != "# /// script":
            continue
        end, content = 0, []
        while number < len(lines) and (lines[number] == "#" or lines[number].startswith("# ")):
            content.append(lines[number][2:])
            number += 1
            if content[-1].rstrip() == "///":
                end = len(content)
        if end:
            yield content[: end - 1]


def _add_script(declared: Declared, root: Path, script: str) -> None:
    with _errors_of(script):
        metadata = script_metadata(_text(root, script))
        _add(declared, _list_requirements(metadata), [])
    if python := _string(metadata, "requires-python"):
        declared.pythons.append((script, python))


def _script(root: Path, module: str | None) -> str:
    """The file that ``python -m module`` runs, relative to ``root``; empty if it is not there."""
    path = (module or "").replace(".", "/")
    names = [
        f"{below}{path}{ending}" for below in ("", "src/") for ending in (".py", "/__main__.py")
    ]
    return next((name for name in names if path and (root / name).is_file()), "")


def _add_requirements(declared: Declared, root: Path, name: str) -> None:
    """Add the lines of a file, and of those that it names, which must lie in the folder."""
    waiting, seen = [name], set[str]()
    while waiting:
        file = waiting.pop(0)
        if file in seen or (file == name and not (root / file).is_file()):
            continue
        seen.add(file)
        if len(seen) > _NESTED:
            raise BadRequirement(f"{name} leads to more than {_NESTED} files")
        with _errors_of(file):
            named, rest = _named_files(_text(root, file))
            lines, notices = from_file_text(rest)
            _add(
                declared, lines, [notice.replace("requirements.txt", file, 1) for notice in notices]
            )
        waiting += [os.path.normpath(os.path.join(os.path.dirname(file), one)) for one in named]  # noqa: PTH118, PTH120


def _named_files(text: str) -> tuple[list[str], str]:
    """The files of ``-r`` lines, and the text without these lines."""
    named, rest = [], []
    for line in text.splitlines():
        words = (
            line.split("#", 1)[0]
            .replace("--requirement=", "-r ")
            .replace("--requirement ", "-r ")
            .strip()
        )
        if words.startswith("-r") and words[2:].strip():
            named.append(words[2:].strip())
        else:
            rest.append(line)
    return named, "\n".join(rest)


def _text(root: Path, name: str, limit_bytes: int = _BYTES) -> str:
    """The text of a file that really lies in ``root``: a link may lead to another file there."""
    path, top = (root / name).resolve(), root.resolve()
    if not path.is_relative_to(top):
        raise BadRequirement("it is not in the folder that was sent")
    # By the path that was given: who reads may have no way through the folders above it.
    return read_text(root / path.relative_to(top), limit_bytes)


def _project(root: Path) -> dict[str, Any]:
    if not (root / "pyproject.toml").is_file():
        return {}
    with _errors_of("pyproject.toml"):
        table = locks.parse_toml(_text(root, "pyproject.toml")).get("project")
    return table if isinstance(table, dict) else {}


def _list_requirements(table: dict[str, Any]) -> list[str]:
    lines = table.get("dependencies", [])
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadRequirement("dependencies is not a list of texts")
    for line in lines:
        parse(line)
    return lines


def _string(table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _add(declared: Declared, lines: list[str], notices: list[str]) -> None:
    declared.requires += lines
    declared.notices += notices
    if len(declared.requires) > locks.MOST_PACKAGES:
        raise BadRequirement(f"there are more than {locks.MOST_PACKAGES} requirements")


@contextlib.contextmanager
def _errors_of(file: str) -> Iterator[None]:
    """Let errors begin with the name of the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadRequirement(f"{file}: it was not sent with the code") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadRequirement(f"{file}: {why}") from error
