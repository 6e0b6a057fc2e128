"""What a folder of sources is: a project with a build, or plain modules."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from cloud_ml.text_encoding import decode_text

_NOISE = frozenset({"__MACOSX", ".DS_Store", "pax_global_header", "PaxHeader"})
_LEGACY = "setuptools.build_meta:__legacy__"


@dataclass(frozen=True)
class Project:
    """How to build: the backend's hook object, what it needs, and where it may lie in the
    sources.
    """

    backend: str = _LEGACY
    requires: tuple[str, ...] = ("setuptools",)
    backend_path: tuple[str, ...] = ()


def find_root(folder: Path, module: str | None) -> Path:
    """The folder of the sources below an unpacked archive.

    An archive often wraps everything into one folder; that one is entered unless it is ``src``, the
    package that ``module`` names, or any package.
    """
    entries = [
        entry
        for entry in folder.iterdir()
        if entry.name not in _NOISE and not entry.name.startswith("._")
    ]
    if is_project(folder) or len(entries) != 1 or not entries[0].is_dir():
        return folder
    inner = entries[0]
    if is_project(inner) or any(
        (inner / name).is_file() for name in ("requirements.txt", "pyproject.toml")
    ):
        return inner
    is_package = (inner / "__init__.py").exists() or inner.name in (
        "src",
        (module or "").split(".")[0],
    )
    return folder if is_package else inner


def is_sdist(unpacked: Path, name: str) -> bool:
    """Whether an unpacked archive is a source distribution: a tar with one top folder that has a
    ``PKG-INFO``.
    """
    entries = list(unpacked.iterdir())
    if name.endswith(".zip") or len(entries) != 1 or not (entries[0] / "PKG-INFO").is_file():
        return False
    return any((entries[0] / file).is_file() for file in ("setup.py", "pyproject.toml"))


def is_project(folder: Path) -> bool:
    """Whether ``folder`` has a build: a ``setup.py``, or a ``pyproject.toml`` that asks for one.

    One that only lists dependencies, as of an application, does not: the code runs from its folder.
    """
    if (folder / "setup.py").is_file():
        return True
    table = _pyproject(folder)
    project = table.get("project")
    if "build-system" in table or not isinstance(project, dict):
        return "build-system" in table
    dynamic = project.get("dynamic")
    needs_build = {"scripts", "gui-scripts", "entry-points"} & set(project)
    return bool(needs_build) or (isinstance(dynamic, list) and "dependencies" in dynamic)


def read_project(folder: Path) -> Project:
    """How to build the project in ``folder``; without a word about it, as setuptools always did.

    Raises:
        ValueError: ``pyproject.toml`` is wrong.
    """
    system = _pyproject(folder, strict=True).get("build-system")
    if system is None:
        return Project()
    if not isinstance(system, dict):
        raise ValueError("pyproject.toml: build-system is no table")  # noqa: TRY004 - the file is wrong, not the caller
    requires = system.get("requires", ["setuptools"])
    path = system.get("backend-path", [])
    backend = system.get("build-backend", _LEGACY)
    if not (_strings(requires) and _strings(path) and isinstance(backend, str)):
        raise ValueError(
            "pyproject.toml: [build-system] must have lists of strings and the name of a backend"
        )
    return Project(backend, tuple(requires), tuple(path))


def has_src_layout(root: Path) -> bool:
    """Whether modules lie in ``src``: for a project always, for other code where only that
    folder holds any.
    """
    inner = root / "src"
    if not inner.is_dir() or (inner / "__init__.py").exists():
        return False
    return is_project(root) or not (any(root.glob("*.py")) or any(root.glob("*/__init__.py")))


def _strings(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _pyproject(folder: Path, *, strict: bool = False) -> dict[str, dict[str, object]]:
    try:
        return tomllib.loads(decode_text((folder / "pyproject.toml").read_bytes()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        if strict:
            raise ValueError(f"pyproject.toml: {error}") from error
        return {"build-system": {}}
