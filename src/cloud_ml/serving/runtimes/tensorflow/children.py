"""Programs that import TensorFlow in the server's stead, and what they made: kept by what it was
made of.
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_RESULT = "result.json"


def digest(folder: Path, packages: Sequence[str]) -> str:
    """A name for what a folder and the packages that read it are."""
    made = hashlib.sha256()
    for name in packages:
        made.update(f"{name} {_version(name)}\0".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        made.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            made.update(hashlib.file_digest(content, "sha256").digest())
    return made.hexdigest()


def result(kept: Path) -> dict[str, Any] | None:
    """What a program has told of its work, or None where it did not come to an end."""
    try:
        found: dict[str, Any] = json.loads((kept / _RESULT).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def tell(out: Path, *, fit: bool, why: str) -> None:
    """The last thing that such a program does."""
    (out / _RESULT).write_text(json.dumps({"fit": fit, "why": why}), "utf-8")


def run(program: str, folder: Path, kept: Path, seconds: float) -> dict[str, Any]:
    """Run ``python -m PROGRAM FOLDER OUT`` and keep ``OUT`` as ``kept``, whole or not at all;
    its result.
    """
    kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".making-") as work:
        made = Path(work) / "made"
        made.mkdir()
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                [sys.executable, "-m", program, str(folder), str(made)],
                timeout=seconds,
                capture_output=True,
                text=True,
                check=False,
                # TensorFlow takes nearly all memory of each GPU that it sees.
                env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
            )
        except subprocess.TimeoutExpired:
            return {"fit": False, "why": f"converting took longer than {seconds:g} s"}
        report = result(made)
        if report is None:
            log.warning("converting %s failed:\n%s", folder, done.stderr[-4000:])
            return {"fit": False, "why": f"converting ended with {done.returncode}"}
        if not kept.exists():
            try:
                made.rename(kept)
            except OSError:
                if result(kept) is None:  # nobody else was quicker
                    raise
        return report


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # such as tensorflow, whose distribution may be tensorflow-cpu
        return ""
