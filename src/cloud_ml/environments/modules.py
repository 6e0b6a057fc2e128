"""Whether the module that a job names is there, before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cloud_ml.environments import source_files
from cloud_ml.environments.base import EnvironmentFailed

_SHOWN = 8


def check(module: str | None, site: Path, layers: Iterable[Path]) -> None:
    """Refuse a module that is surely nowhere, or that one of Python's own would hide.

    What import hooks could make is given a chance.

    Raises:
        EnvironmentFailed: ``TrainerInvalid``; the message names what there is.
    """
    if not module or source_files.has_name(site, suffix=".pth"):
        return
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names:
        if _is_there(site, parts[:1]):  # Python would run its own without a word
            raise EnvironmentFailed(
                "TrainerInvalid",
                f"Python has a module {parts[0]} of its own, which hides the trainer's: rename that one",
            )
        return
    if not any(_is_there(folder, parts) for folder in (site, *layers)):
        raise EnvironmentFailed("TrainerInvalid", f"the trainer has no module {module}{_offer(site)}")
    folder = site.joinpath(*parts)
    if (folder / "__init__.py").is_file() and not source_files.has_name(folder, prefix="__main__."):
        raise EnvironmentFailed(
            "TrainerInvalid",
            f"the module {module} is a package without a __main__.py, so it cannot be run{_offer(site)}",
        )


def _offer(site: Path) -> str:
    found = list(_modules(site))
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    return f"; it has {shown}" if found else "; it has no module at all"


def _modules(site: Path) -> Iterator[str]:
    """Names of the modules below ``site`` that may be run, packages of the trainer's before all else."""
    for file in sorted(source_files.python_files(site), key=lambda path: (path.count("/"), path)):
        parts = file.removesuffix(".py").split("/")
        if parts[-1] not in ("__init__", "setup") and all(part.isidentifier() for part in parts):
            yield ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


def _is_there(site: Path, parts: list[str]) -> bool:
    place = site.joinpath(*parts)
    return place.is_dir() or source_files.has_name(place.parent, prefix=f"{place.name}.")
