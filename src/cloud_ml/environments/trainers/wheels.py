"""Wheels by hand: reading what one says of itself and laying it out as an installed
distribution.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.trainers.source_files import read_text

if TYPE_CHECKING:  # who lays wheels out inside a sandbox does without
    from cloud_ml.environments.interpreter import Interpreter

# Valid in both languages: sh reads ''' as an empty string before 'exec', and Python as the start
# of a string that ends in the third line.
LAUNCH = b"#!/bin/sh\n'''exec' \"${VIRTUAL_ENV:-/env}/bin/python\" \"$0\" \"$@\"\n' '''\n"
"""The first lines of a script that runs under the interpreter of whichever job it is called in."""


_TEXT_BYTES = 1 << 20
"""Of a file that describes a wheel, and of a script."""
_SCRIPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class Distribution:
    """What a distribution says of itself in its ``METADATA``."""

    name: str
    version: str
    requires: tuple[str, ...]


def layout(unpacked: Path, site: Path) -> Distribution:
    """Move a wheel that lies unpacked in ``unpacked`` into ``site``, its scripts into ``site/bin``.

    Raises:
        EnvironmentFailed: It is no wheel.
    """
    infos = list(unpacked.glob("*.dist-info"))
    if len(infos) != 1 or not (infos[0] / "METADATA").is_file():
        raise EnvironmentFailed(
            "TrainerInvalid", "the wheel holds no single .dist-info folder with its METADATA"
        )
    # The format knows no links, and one that stays inside here may lead out from where it is moved
    # to.
    if link := next((entry for entry in unpacked.rglob("*") if entry.is_symlink()), None):
        raise EnvironmentFailed(
            "TrainerInvalid", f"the wheel holds a link: {link.relative_to(unpacked)}"
        )
    distribution = read_metadata(_text(infos[0] / "METADATA"))
    data = next(iter(unpacked.glob("*.data")), None)
    if data is not None:
        for part in sorted(data.iterdir()):
            _merge(
                part,
                site / "bin" if part.name == "scripts" else site / _DATA.get(part.name, "share"),
            )
        shutil.rmtree(data)
    _merge(unpacked, site)
    (site / infos[0].name / "INSTALLER").write_text("cloud-ml\n")
    make_scripts(site)
    return distribution


_DATA = {"purelib": ".", "platlib": ".", "data": ".", "headers": "include"}


def _text(file: Path) -> str:
    try:
        return read_text(file, _TEXT_BYTES)
    except ValueError as error:
        raise EnvironmentFailed("TrainerInvalid", f"the wheel cannot be read: {error}") from error


def _merge(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        place = target / entry.name
        if entry.is_dir() and not entry.is_symlink() and place.is_dir():
            _merge(entry, place)
        else:
            entry.rename(place)


def read_metadata(text: str) -> Distribution:
    """Name, version and requirements of a ``METADATA`` or ``PKG-INFO`` text."""
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.strip():
            break
        key, separator, value = line.partition(":")
        if separator and not line[0].isspace():
            fields.setdefault(key.lower(), []).append(value.strip())
    first = {key: values[0] for key, values in fields.items()}
    return Distribution(
        first.get("name", "trainer"),
        first.get("version", "0"),
        tuple(fields.get("requires-dist", ())),
    )


def make_scripts(site: Path) -> None:
    """Write ``bin`` anew: entry points of every distribution in ``site``, and scripts of Python
    made portable.
    """
    folder = site / "bin"
    for script in sorted(folder.glob("*")) if folder.is_dir() else ():
        _make_portable(script)
    for name, module, attribute in console_scripts(site):
        folder.mkdir(exist_ok=True)
        _write_script(
            folder / name,
            f"import sys\nfrom {module} import "
            f"{attribute.split('.')[0]}\nsys.exit({attribute}())\n".encode(),
        )


def console_scripts(site: Path) -> Iterator[tuple[str, str, str]]:
    """Name, module and function of each command that a distribution in ``site`` defines."""
    for entry_points in sorted(site.glob("*.dist-info/entry_points.txt")):
        yield from _console_scripts(_text(entry_points))


def _make_portable(script: Path) -> None:
    if script.is_symlink() or not script.is_file():
        return
    with script.open("rb") as file:
        first = file.readline(512)
        if not (first.startswith(b"#!") and b"python" in first):
            return
        body = file.read(_TEXT_BYTES + 1)
    if len(body) > _TEXT_BYTES:
        return
    _write_script(script, body)


def _write_script(place: Path, body: bytes) -> None:
    place.unlink(missing_ok=True)  # never through a link into a shared cache
    place.write_bytes(LAUNCH + body)
    place.chmod(0o755)


def _console_scripts(text: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        if line.startswith("["):
            section = line.strip("[] ")
        elif section in ("console_scripts", "gui_scripts") and "=" in line:
            name, _, target = (part.strip() for part in line.partition("="))
            module, _, attribute = target.split("[", 1)[0].strip().partition(":")
            if (
                attribute
                and _SCRIPT.fullmatch(name)
                and (module + attribute).replace(".", "").isidentifier()
            ):
                yield name, module, attribute


def check_tags(name: str, interpreter: Interpreter) -> None:
    """Refuse a wheel that was built for another interpreter or another system.

    A wheel without compiled parts is taken whatever version of Python its name says: old tools
    wrote ``py2`` for code that runs everywhere.

    Raises:
        EnvironmentFailed: Its compiled parts cannot be loaded here.
    """
    parts = name.removesuffix(".whl").split("-")
    if len(parts) < 5:
        raise EnvironmentFailed(
            "TrainerInvalid", f"{name!r} is no name of a wheel (name-version-python-abi-platform)"
        )
    python, abi, platform = parts[-3:]
    if abi == "none" and platform == "any":
        return
    fits_python = (
        interpreter.tag in python.split(".") or "py3" in python.split(".") or abi == "abi3"
    )
    if not (fits_python and "linux" in platform):
        raise EnvironmentFailed(
            "TrainerInvalid",
            f"{name} is built for {python}/{platform}, this is {interpreter.tag}/linux",
        )
