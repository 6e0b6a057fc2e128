"""Sources that need no build of their own: laid out and described. None of their code runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.builder import dependencies, source, static_setup
from cloud_ml.environments.builder.dependencies import Declared
from cloud_ml.environments.packages.requirements import BadRequirement
from cloud_ml.environments.trainers import bytecode, detect, wheels
from cloud_ml.environments.trainers.unpacking import unpack

FOLDER, SITE, UNPACKED = "folder", "site", "src"
NEEDS_SANDBOX = {"sandbox": True}
"""The report of ``stage`` on what it leaves to the tenant's sandbox."""


def stage(archive: int, name: str, module: str | None, out: Path) -> None:
    """Fill ``out/folder`` from an open file, and write ``out/report.json``.

    A project whose ``setup.py`` is only read fills ``out/site``, too. The report holds what was
    found, or ``error``. It is ``NEEDS_SANDBOX`` where the code has a build that must run, is much,
    or is not understood: what fails there is told in full.
    """
    try:
        report = _describe(archive, name, module, out)
    except EnvironmentFailed as failure:
        report = {"error": {"reason": failure.reason, "message": failure.message}}
    except BadRequirement as error:
        report = {"error": {"reason": "TrainerInvalid", "message": str(error)}}
    except Exception:
        report = NEEDS_SANDBOX
    (out / "report.json").write_text(json.dumps(report))


def _describe(archive: int, name: str, module: str | None, out: Path) -> dict[str, Any]:
    report, folder = lay_out(archive, name, out, module), out / FOLDER
    if report is None or not bytecode.is_little(folder):
        return NEEDS_SANDBOX
    bytecode.compile_modules(folder, changes=True)
    if (out / SITE).is_dir():
        bytecode.compile_modules(out / SITE)
    return report | {"findings": asdict(detect.read(folder))}


def lay_out(archive: Path | int, name: str, out: Path, module: str | None) -> dict[str, Any] | None:
    """Fill ``out/folder`` with the files that were sent and return the report on them.

    ``None`` if their build must run, or they are a source distribution: then they lie in
    ``out/src``, as they were packed.

    Raises:
        EnvironmentFailed: It is no archive, or breaks a rule.
        BadRequirement: What the files require cannot be read.
    """
    folder, unpacked = out / FOLDER, out / UNPACKED
    if name.endswith(".py"):
        folder.mkdir()
        with (
            open(archive, "rb", closefd=not isinstance(archive, int)) as sent,
            (folder / name).open("wb") as file,
        ):
            shutil.copyfileobj(sent, file)
        found = dependencies.read(folder, name.removesuffix(".py"), built=False)
        return report_of("script", name, "", found)
    unpack(archive, name, unpacked)
    root = source.find_root(unpacked, module)
    if source.is_sdist(unpacked, name):
        return None
    if source.is_project(root):
        return _lay_out_static_project(root, out, module)
    root.rename(folder)
    found = dependencies.read(folder, module, built=False)
    return report_of("tree", name, "", found) | {"src": source.has_src_layout(folder)}


def _lay_out_static_project(root: Path, out: Path, module: str | None) -> dict[str, Any] | None:
    """Fill ``out/site``, too, if ``setup.py`` need not run for that."""
    setup = static_setup.read(root)
    if setup is None:
        return None
    folder, wheel, site = out / FOLDER, out / "wheel", out / SITE
    root.rename(folder)
    found = dependencies.read(folder, module, built=True)
    static_setup.lay_out(folder, setup, wheel)
    site.mkdir()
    return report_built(wheels.layout(wheel, site), found)


def report_built(distribution: wheels.Distribution, declared: Declared) -> dict[str, Any]:
    """What is told of a project with a build."""
    declared.requires[:0] = distribution.requires
    return report_of("project", distribution.name, distribution.version, declared)


def report_of(kind: str, name: str, version: str, declared: Declared) -> dict[str, Any]:
    """What is told of a trainer of a ``kind``."""
    return {"kind": kind, "name": name, "version": version, **asdict(declared)}
