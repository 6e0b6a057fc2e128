"""From a trainer as it was uploaded to a folder for the path, and a report on it."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloud_ml.environments import detect, wheels
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.builder import backend, source, wheel
from cloud_ml.environments.files import is_real_folder
from cloud_ml.environments.removing import remove
from cloud_ml.environments.requirements import BadRequirement, from_file_text
from cloud_ml.environments.source_files import read_text
from cloud_ml.environments.unpacking import unpack

_REQUIREMENTS_BYTES = 1 << 20


def main(arguments: list[str]) -> int:
    """``stage archive name out module layer…``, ``wheel archive name out`` or ``scripts site``; returns the exit code.

    ``wheel`` lays a wheel out (see ``wheel.stage``). ``scripts`` makes the scripts of an installed folder
    portable. ``stage`` leaves ``out/report.json``.

    The report holds what was found, or ``needs`` (requirements of the build that the layers lack), or
    ``error`` with a reason and a sentence; the words of the build went to standard output.
    """
    os.umask(0o022)
    task, *rest = arguments
    if task == "scripts":
        wheels.make_scripts(Path(rest[0]))
        return 0
    if task == "wheel":
        wheel.stage(Path(rest[0]), rest[1], Path(rest[2]))
        return 0
    archive, name, out, module, *layers = rest
    sys.path.extend(layers)
    report = stage(Path(archive), name, Path(out), module or None)
    (Path(out) / "report.json").write_text(json.dumps(report))
    return 0


def stage(archive: Path, name: str, out: Path, module: str | None) -> dict[str, Any]:
    """Fill ``out/folder`` with the files that were sent, ``out/site`` with what was built; return the report.

    A source distribution has no ``out/folder``, and sources without a build have no ``out/site``.
    """
    try:
        report = _lay_out(archive, name, out, module)
    except backend.Missing as missing:
        return {"needs": missing.requirements}
    except EnvironmentFailed as failure:
        return _error(failure.reason, failure.message)
    except BadRequirement as error:
        return _error("TrainerInvalid", f"requirements.txt: {error}")
    except MemoryError:
        raise
    except BaseException as error:  # a project's build may raise anything, SystemExit included
        traceback.print_exc(file=sys.stdout)
        return _error("EnvironmentFailed", f"the trainer's build failed: {_sentence(error)}")
    finally:
        sys.stdout.flush()
    made = [folder for folder in (out / "folder", out / "site") if folder.is_dir()]
    for folder in made:
        compileall.compile_dir(folder, quiet=2, workers=1)
    return report | {"findings": asdict(detect.read(made[0]))}


def _lay_out(archive: Path, name: str, out: Path, module: str | None) -> dict[str, Any]:
    folder = out / "folder"
    if name.endswith(".py"):
        (_made(folder) / name).write_bytes(archive.read_bytes())
        return _report("script", name, "")
    sources = out / "src"
    unpack(archive, name, sources)
    root = source.find_root(sources, module)
    requirements, notices = _requirements(root)
    if source.is_sdist(sources, name) and source.is_project(root):
        distribution = _build(root, out)
    else:
        root.rename(folder)
        below = source.has_src_layout(folder)
        if not source.is_project(folder):
            return _report("tree", name, "", requirements, notices) | {"src": below}
        remove(sources)  # the build gets files of its own: what it leaves behind was not sent
        unpack(archive, name, sources)
        distribution = _build(source.find_root(sources, module), out)
        _add_built_files(out / "site", folder / "src" if below else folder)
    needed = [*distribution.requires, *requirements]
    report = _report("project", distribution.name, distribution.version, needed, notices)
    return report | {"src": folder.is_dir() and below}


def _build(root: Path, out: Path) -> wheels.Distribution:
    built = backend.build_wheel(root, source.read_project(root), _made(out / "dist"))
    unpack(built, built.name, out / "wheel")
    return wheels.layout(out / "wheel", _made(out / "site"))


def _add_built_files(site: Path, root: Path) -> None:
    """Put what a build has added to a package beside its sources, as a build in place does.

    The sources come first on the path, so that compiled modules of their packages would not be found otherwise.
    """
    for package in [entry for entry in site.iterdir() if entry.is_dir() and is_real_folder(root / entry.name)]:
        for folder, _, files in os.walk(package):
            target = root / Path(folder).relative_to(site)
            for name in files:
                if not os.path.lexists(target / name):
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(Path(folder, name), target / name, follow_symlinks=False)


def _requirements(root: Path) -> tuple[list[str], list[str]]:
    file = root / "requirements.txt"
    if not file.is_file():
        return [], []
    try:
        return from_file_text(read_text(file.resolve(), _REQUIREMENTS_BYTES))
    except ValueError as error:
        raise BadRequirement(str(error)) from error


def _report(
    kind: str, name: str, version: str, requires: list[str] | None = None, notices: list[str] | None = None
) -> dict[str, Any]:
    return {"kind": kind, "name": name, "version": version, "requires": requires or [], "notices": notices or []}


def _error(reason: str, message: str) -> dict[str, Any]:
    return {"error": {"reason": reason, "message": message}}


def _sentence(error: BaseException) -> str:
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0][:300]}" if words else type(error).__name__


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
