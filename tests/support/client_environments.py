"""Environments of clients of others, as they are published. They stay for the next run."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from support.environments import environment_home

ROOT = Path(__file__).parents[2]
OURS = "this checkout"


def client_environment(name: str, *requirements: str) -> Path:
    """The ``bin`` folder of an environment with these packages.

    ``OURS`` with extras, such as ``this checkout[tensorboard]``, is this checkout itself.
    """
    versions = "-".join(one.replace("==", "-") for one in requirements if OURS not in one)
    folder = environment_home().with_name(name) / versions
    folder.mkdir(parents=True, exist_ok=True)
    programs = folder / "venv" / "bin"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
            pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
            others = [one for one in requirements if OURS not in one]
            ours = [one.replace(OURS, str(ROOT)) for one in requirements if OURS in one]
            editable = [word for one in ours for word in ("-e", one)]
            subprocess.run([*pip, "install", "-q", *others, *editable], check=True)
            (folder / "ready").touch()
    return programs
