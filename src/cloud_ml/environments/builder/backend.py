"""Calling a project's own build, the way PEP 517 says, in this process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from cloud_ml.environments.builder import setuptools_speedups
from cloud_ml.environments.builder.source import Project
from cloud_ml.environments.packages.requirements import BadRequirement, parse
from cloud_ml.environments.packages.versions import satisfies


class Missing(Exception):
    """The build needs distributions that are not on the path."""

    def __init__(self, requirements: list[str]) -> None:
        super().__init__(", ".join(requirements))
        self.requirements = requirements


def build_wheel(root: Path, project: Project, target: Path) -> Path:
    """Build the wheel of the project in ``root`` into ``target`` and return its path.

    Raises:
        Missing: Something has to be installed first.
        Exception: Whatever the project's own code raises, ``SystemExit`` included.
    """
    _need(project.requires)
    setuptools_speedups.install()
    os.chdir(root)
    sys.path[:0] = [str(root / entry) for entry in project.backend_path]
    sys.argv[:] = ["setup.py"]
    module, _, attribute = project.backend.partition(":")
    hooks: Any = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        hooks = getattr(hooks, name)
    if hasattr(hooks, "get_requires_for_build_wheel") and _may_need_more(root, module):
        _need(hooks.get_requires_for_build_wheel({}))
    file: str = hooks.build_wheel(str(target), {}, None)
    return target / file


def _may_need_more(root: Path, module: str) -> bool:
    """Whether to ask the backend for further needs: with setuptools that runs ``setup.py`` once
    more.
    """
    if module != "setuptools.build_meta":
        return True
    files = (root / name for name in ("setup.py", "setup.cfg"))
    return any(b"setup_requires" in file.read_bytes() for file in files if file.is_file())


def _need(requirements: Iterable[str]) -> None:
    missing = [text for text in requirements if not _is_there(text)]
    if missing:
        raise Missing(missing)


def _is_there(text: str) -> bool:
    try:
        requirement = parse(text)
        return not requirement.url and satisfies(
            metadata.version(requirement.name), requirement.specifier
        )
    except (BadRequirement, metadata.PackageNotFoundError):
        return False
