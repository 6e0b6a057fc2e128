"""Virtual environments with a framework and the model server, made once and kept."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.original import find_interpreter

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "model-environments"
_UNREACHABLE = (
    "No matching distribution",
    "Could not fetch",
    "Temporary failure",
    "Connection refused",
)


def environment(*packages: str) -> Path:
    """The Python of an environment with these packages and the model server as it lies here, or
    a skip.
    """
    requirements = [*_own_needs(), *packages]
    folder = _made(sys.executable, requirements)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "cloud_ml.pth").write_text(str(ROOT / "src"), "utf-8")
    return folder / "bin" / "python"


def client_environment(*packages: str) -> Path:
    """The Python of an environment with these packages and nothing of ours, or a skip."""
    return _made(sys.executable, packages) / "bin" / "python"


def older_environment(version: str, *packages: str) -> Path:
    """The Python of an environment of another version, without anything of ours, or a skip."""
    if (interpreter := find_interpreter((version,))) is None:
        pytest.skip(
            f"{' '.join(packages)} needs Python {version}; there is none on PATH or in PYENV_ROOT"
        )
    return _made(interpreter, packages) / "bin" / "python"


def _made(interpreter: str, requirements: Sequence[str]) -> Path:
    python_version = sys.version if interpreter == sys.executable else interpreter
    folder = (
        KEPT / hashlib.sha256("\n".join([python_version, *requirements]).encode()).hexdigest()[:16]
    )
    python = folder / "bin" / "python"
    done = folder / ".done"
    if not done.exists():
        subprocess.run([interpreter, "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
        installed = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *requirements],
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        if installed.returncode:
            if any(word in installed.stderr for word in _UNREACHABLE):
                pytest.skip(
                    f"{' '.join(requirements)} cannot be installed here: "
                    f"{installed.stderr.splitlines()[-1][:200]}"
                )
            raise AssertionError(installed.stderr)
        done.touch()
    return folder


def _own_needs() -> list[str]:
    """What the extra ``serve`` asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs: list[str] = project["optional-dependencies"]["serve"]
    return needs
