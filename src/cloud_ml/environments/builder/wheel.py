"""A trainer that is a wheel: laid out and described. None of its code runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.removing import remove
from cloud_ml.environments.trainers import detect, wheels
from cloud_ml.environments.trainers.bytecode import compile_modules
from cloud_ml.environments.trainers.unpacking import unpack


def stage(archive: Path | int, name: str, out: Path) -> None:
    """Fill ``out/site`` from the wheel and write ``out/report.json``; ``archive`` is a file, or
    open.

    The report holds what the wheel says of itself and what its code imports, or ``error``.
    """
    try:
        report = _lay_out(archive, name, out)
    except EnvironmentFailed as failure:
        report = {"error": {"reason": failure.reason, "message": failure.message}}
    except (MemoryError, RecursionError):
        message = f"{name} cannot be read within the memory that reading a trainer may take"
        report = {"error": {"reason": "TrainerInvalid", "message": message}}
    (out / "report.json").write_text(json.dumps(report))


def _lay_out(archive: Path | int, name: str, out: Path) -> dict[str, Any]:
    unpack(archive, name, out / "wheel")
    (out / "site").mkdir()
    distribution = wheels.layout(out / "wheel", out / "site")
    remove(out / "wheel")
    compile_modules(out / "site")
    return asdict(distribution) | {"notices": [], "findings": asdict(detect.read(out / "site"))}
