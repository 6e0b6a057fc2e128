"""Whether the module that a job names is there, before anything starts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.trainers import source_files, wheels

_SHOWN, _COMPARED = 8, 1000
_RUNNABLE = re.compile(r"\w[\w-]*", re.ASCII)
"""A part of what ``python -m`` runs, though ``import`` may not name it."""
_LOADED_FIRST = frozenset(
    {
        *sys.builtin_module_names,
        "abc",
        "codecs",
        "collections",
        "contextlib",
        "encodings",
        "functools",
        "genericpath",
        "importlib",
        "io",
        "keyword",
        "operator",
        "os",
        "posixpath",
        "reprlib",
        "runpy",
        "site",
        "stat",
        "types",
        "warnings",
        "zipimport",
    }
)
"""Modules that Python has loaded before it looks for the one to run: no file of that name takes
their place.
"""


def check(
    module: str | None, sent: Sequence[Path], built: Sequence[Path], layers: Iterable[Path]
) -> None:
    """Refuse a module that is surely nowhere, or that one of Python's own would hide.

    What import hooks could make is given a chance.

    Args:
        module: What ``python -m`` is to run.
        sent: Folders of the working directory that are on the path, before Python's own modules.
        built: Folders that hold what was built of the trainer.
        layers: Folders that hold what it requires.

    Raises:
        EnvironmentFailed: ``TrainerInvalid``; the message names what there is.
    """
    own = [*sent, *built]
    if not module or any(source_files.has_name(folder, suffix=".pth") for folder in own):
        return
    parts = module.split(".")
    if parts[0] in (_LOADED_FIRST if sent else sys.stdlib_module_names):
        # Python would run its own module and say nothing.
        if any(_is_there(folder, parts[:1]) for folder in own):
            raise EnvironmentFailed(
                "TrainerInvalid",
                f"Python has a module {parts[0]} of its own, which hides the trainer's: "
                "rename that one",
            )
        return
    if parts[0] in sys.stdlib_module_names:
        return
    place = next((folder for folder in (*own, *layers) if _is_there(folder, parts)), None)
    if place is None:
        raise EnvironmentFailed(
            "TrainerInvalid",
            f"the trainer has no module {module}, which module_name (-m) asks for"
            f"{_of_command(module, built) or _offer(own, module)}",
        )
    package = place.joinpath(*parts) / "__init__.py"
    if (
        place in own
        and _is_file(place, package)
        and not source_files.has_name(package.parent, prefix="__main__.")
    ):
        raise EnvironmentFailed(
            "TrainerInvalid",
            f"the module {module} is a package without a __main__.py, so it cannot be "
            f"run{_offer(own)}",
        )


def _of_command(name: str, built: Sequence[Path]) -> str:
    """What to run where the name is that of a command of the trainer's ``pyproject.toml``."""
    found = (each for site in built for each in wheels.console_scripts(site) if each[0] == name)
    for _, module, attribute in found:
        return (
            f"; {name} is a command, which calls {attribute}() of the module {module}: name that "
            "module, and have it call the function under if __name__ == '__main__'"
        )
    return ""


def _offer(folders: Sequence[Path], wrong: str = "") -> str:
    """What there is, and what of several modules is most like the ``wrong`` one."""
    names = dict.fromkeys(name for folder in folders for name in _modules(folder))
    # a package below src is built, and is beside that a folder of the working directory
    found = [one for one in names if one.removeprefix("src.") == one or one[4:] not in names]
    if not found:
        return "; it has no module at all"
    shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    near = _nearest(wrong, found[:_COMPARED]) if wrong and len(found) > 1 else ""
    return f"; it has {shown}" + (f"; did you mean {near}?" if near else "")


def _nearest(wrong: str, names: Sequence[str]) -> str:
    """The module that ends as ``wrong`` does, or is spelled nearly so; empty if none is."""
    last = wrong.rpartition(".")[2]
    same = [one for one in names if one.rpartition(".")[2] == last]
    if len(same) == 1:
        return same[0]
    from difflib import get_close_matches  # noqa: PLC0415 - only refusals need it

    return next(iter(get_close_matches(wrong, same or names, n=1)), "")


def _modules(site: Path) -> Iterator[str]:
    """Names of the modules below ``site`` that may be run, packages of the trainer's before all
    else.
    """
    for file in sorted(source_files.python_files(site), key=lambda path: (path.count("/"), path)):
        parts = file.removesuffix(".py").split("/")
        if parts[-1] not in ("__init__", "setup") and all(map(_RUNNABLE.fullmatch, parts)):
            yield ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


def _is_there(site: Path, parts: list[str]) -> bool:
    place = site.joinpath(*parts)
    if _is_inside(site, place) and place.is_dir():
        return True
    return _is_inside(site, place.parent) and source_files.has_name(
        place.parent, prefix=f"{place.name}."
    )


def _is_file(site: Path, place: Path) -> bool:
    return _is_inside(site, place) and place.is_file()


def _is_inside(site: Path, place: Path) -> bool:
    """Whether no link leads from the tenant's ``site`` to the machine's other folders."""
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(site))
