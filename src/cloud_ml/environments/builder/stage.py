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

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.builder import backend, dependencies, source, sources, wheel
from cloud_ml.environments.files import is_real_folder
from cloud_ml.environments.packages.requirements import BadRequirement
from cloud_ml.environments.removing import remove
from cloud_ml.environments.trainers import detect, wheels
from cloud_ml.environments.trainers.unpacking import unpack


def main(arguments: list[str]) -> int:
    """``stage archive name out module layer…``, ``wheel archive name out`` or ``scripts site``;
    returns the exit code.

    ``wheel`` lays a wheel out (see ``wheel.stage``). ``scripts`` makes the scripts of an installed
    folder portable. ``stage`` leaves ``out/report.json``.

    The report holds what was found, or ``needs`` (requirements of the build that the layers lack),
    or ``error`` with a reason and a sentence; the words of the build went to standard output.
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
    """Fill ``out/folder`` with the files that were sent, ``out/site`` with what was built; return
    the report.

    A source distribution has no ``out/folder``, and sources without a build have no ``out/site``.
    """
    try:
        report = _lay_out(archive, name, out, module)
    except backend.Missing as missing:
        return {"needs": missing.requirements}
    except EnvironmentFailed as failure:
        return _error(failure.reason, failure.message)
    except BadRequirement as error:
        return _error("TrainerInvalid", str(error))
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
    plain = sources.lay_out(archive, name, out, module)
    if plain is not None:
        return plain
    folder, unpacked = out / sources.FOLDER, out / sources.UNPACKED
    root = source.find_root(unpacked, module)
    if source.is_sdist(unpacked, name):
        declared = dependencies.read(root, None, built=True)
        return sources.report_built(_build(root, out), declared)
    root.rename(folder)
    in_src = source.has_src_layout(folder)
    declared = dependencies.read(folder, module, built=True)
    remove(unpacked)  # the build gets files of its own: what it leaves behind was not sent
    unpack(archive, name, unpacked)
    distribution = _build(source.find_root(unpacked, module), out)
    _add_built_files(out / "site", folder / "src" if in_src else folder)
    return sources.report_built(distribution, declared) | {"src": in_src}


def _build(root: Path, out: Path) -> wheels.Distribution:
    built = backend.build_wheel(root, source.read_project(root), _make_folder(out / "dist"))
    unpack(built, built.name, out / "wheel")
    return wheels.layout(out / "wheel", _make_folder(out / "site"))


def _add_built_files(site: Path, root: Path) -> None:
    """Put what a build has added to a package beside its sources, as a build in place does.

    The sources come first on the path, so that compiled modules of their packages would not be
    found otherwise.
    """
    for package in [
        entry for entry in site.iterdir() if entry.is_dir() and is_real_folder(root / entry.name)
    ]:
        for folder, _, files in os.walk(package):
            target = root / Path(folder).relative_to(site)
            for name in files:
                if not os.path.lexists(target / name):
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(Path(folder, name), target / name, follow_symlinks=False)


def _error(reason: str, message: str) -> dict[str, Any]:
    return {"error": {"reason": reason, "message": message}}


def _sentence(error: BaseException) -> str:
    words = str(error).strip().splitlines()
    return f"{type(error).__name__}: {words[0][:300]}" if words else type(error).__name__


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder
