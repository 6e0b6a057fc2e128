"""The programs that environments of jobs are made with: uv, and the interpreters."""

from __future__ import annotations

import shutil
from pathlib import Path

from cloud_ml.environments import interpreter
from cloud_ml.errors import Unavailable
from cloud_ml.settings import Settings


def find_pythons(settings: Settings) -> dict[str, str]:
    """Version → program of every interpreter that jobs may ask for; no program where uv is to
    fetch it.
    """
    found = {
        version: str(one.path)
        for version, one in interpreter.find_installed(settings.environments_home).items()
    }
    return dict.fromkeys(settings.pythons, "") | found


def find_uv() -> Path:
    """The ``uv`` program: the one installed beside us, else the machine's.

    Raises:
        Unavailable: There is none.
    """
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - only here, and optional

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise Unavailable(
                "uv, which makes the environments of jobs, is not installed",
                hint="pip install 'cloud-ml[server]'",
            ) from None
        return Path(found)
