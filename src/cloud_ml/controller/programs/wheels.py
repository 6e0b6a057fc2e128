"""Packages of ours as wheels, in the folder of packages: what runs in a tenant's sandbox."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import cloud_ml
from cloud_ml.controller.programs.packages import is_used_again
from cloud_ml.engines.gang import TrainerSource

_EPOCH = (1980, 1, 1, 0, 0, 0)


def store_wheel(
    folder: Path, name: str, rooms: Sequence[str], needed: Sequence[str]
) -> TrainerSource:
    """Make a wheel in the folder of packages, unless it is there. Safe from several threads.

    Args:
        folder: The folder of packages.
        name: The name of the distribution.
        rooms: The rooms of ``cloud_ml`` in it; no other file of ours is.
        needed: The packages that it requires.
    """
    content = _wheel(name, rooms, needed)
    file_name = f"{name.replace('-', '_')}-{cloud_ml.__version__}-py3-none-any.whl"
    digest = hashlib.sha256(content).hexdigest()
    target = folder / digest / file_name
    if not is_used_again(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{file_name}.{id(content)}")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # it is not made again while there is one
        draft.chmod(0o644)
        draft.replace(target)
    return TrainerSource(digest, file_name)


def _wheel(name: str, rooms: Sequence[str], needed: Sequence[str]) -> bytes:
    """The same bytes every time."""
    info = f"{name.replace('-', '_')}-{cloud_ml.__version__}.dist-info"
    members = {f"cloud_ml/{path}": content for path, content in _files(rooms)}
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {cloud_ml.__version__}\n"
    members[f"{info}/METADATA"] = (
        head + "".join(f"Requires-Dist: {each}\n" for each in needed)
    ).encode()
    members[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: cloud-ml\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    members[f"{info}/RECORD"] = "".join(
        f"{member},,\n" for member in [*members, f"{info}/RECORD"]
    ).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member, _EPOCH), content)
    return made.getvalue()


def _files(rooms: Sequence[str]) -> list[tuple[str, bytes]]:
    root = Path(str(resources.files(cloud_ml)))
    every = (path for room in rooms for path in (root / room).rglob("*"))
    found = sorted(path for path in every if path.is_file() and "__pycache__" not in path.parts)
    return [("__init__.py", (root / "__init__.py").read_bytes())] + [
        (path.relative_to(root).as_posix(), path.read_bytes()) for path in found
    ]
