"""What ``jobs submit`` takes for granted: a job's name and module, from the code that it is
given.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import tempfile
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import suggestions
from cloud_ml.models.common import refuse
from cloud_ml.models.paths.local import local_path
from cloud_ml.text_encoding import decode_text

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".whl", ".py", ".ipynb", ".git")
_JOB_FILES = (".yaml", ".yml", ".toml", ".json")
_VERSION = re.compile(r"-v?\d+(\.\w+)*([-+.].*)?$")
_USUAL = ("main", "train", "task")
_NO_TRAINERS = ("tests", "test", "docs")
_NOT_RUN = re.compile(r"(setup|conftest|noxfile|tasks|__init__|__main__|test_.*|.*_test)\.py")
_PARTS = re.compile(r"[^\W\d]\w*", re.ASCII)
_RUNNABLE = re.compile(r"\w[\w-]*", re.ASCII)
"""A script that ``python -m`` runs, though ``import`` may not name it."""
_MOST_SHOWN = 8
_MOST_ENTRIES = 1000


def looks_like_code(word: str) -> bool:
    """Whether a word on the command line names code rather than a job or a module: a URI, a
    path, an archive.
    """
    return (
        "://" in word
        or "/" in word
        or word in (".", "..")
        or word.endswith(_ARCHIVES)
        or word.startswith("~")
    )


def name_for(trainer_uri: str) -> str:
    """A name for a job: that of the folder or file, without version and ending, spelled as names
    are.

    Raises:
        InvalidRequest: Nothing is left of it.
    """
    if "://" in trainer_uri:
        last = _without_ref(trainer_uri).rstrip("/").rpartition("/")[2]
    else:
        last = local_path(trainer_uri).resolve().name
    bare = next((last.removesuffix(ending) for ending in _ARCHIVES if last.endswith(ending)), last)
    bare = _VERSION.sub("", bare) if bare != last else bare
    name = suggestions.name(bare)[:50].rstrip("-")
    if not name:
        raise InvalidRequest(
            f"no name for the job can be made of {last!r}",
            field="job_name",
            hint="Give one: --job_name NAME.",
        )
    return name


def _without_ref(uri: str) -> str:
    """A URI without the commit of a repository; its folder, if it names one, instead of the
    repository.
    """
    if not uri.startswith("git+"):
        return uri
    address, _, folder = uri.partition("#subdirectory=")
    base, _, ref = address.rpartition("@")
    return folder or (
        base if "://" in base and "/" in base.partition("://")[2] and ref else address
    )


def module_for(trainer_uri: str) -> str:
    """The module to run, if it is unambiguous.

    That is: the script itself; of a folder or an archive ``trainer.task``, its one package with a
    ``__main__.py``, its one script, or the one among its scripts that is called main, train or
    task.

    Raises:
        InvalidRequest: There are several, none, or nothing to look at; names what was found.
    """
    if "://" in trainer_uri:
        raise _unclear(f"which module of {trainer_uri} is to run?", [])
    place = local_path(trainer_uri)
    if not place.exists():
        raise refuse(
            "trainer_uri", trainer_uri, "fds://bucket/path, or a file or folder that exists"
        )
    if place.suffix == ".ipynb":
        from cloud_ml.sdk.trainers.packaging import refuse_notebook

        raise refuse_notebook(place)
    if place.is_dir():
        from cloud_ml.sdk.trainers.packaging import check_is_code

        check_is_code(place)
        found = _candidates(place.resolve())
    elif place.suffix == ".py":
        return _module_of_file(place, trainer_uri)
    elif _is_shell_script(place):
        raise _shell_script(place, trainer_uri)
    else:
        found = _candidates_in_archive(place)
    if not found:
        raise _without_module(place, trainer_uri)
    if len(found) > 1:
        raise _unclear(f"{trainer_uri} holds several modules that could be run", found)
    return found[0]


def _module_of_file(script: Path, trainer_uri: str) -> str:
    if _RUNNABLE.fullmatch(script.stem):
        return script.stem
    plain = suggestions.name(script.stem).replace("-", "_").lstrip("0123456789_")
    renamed = shlex.quote(str(script.with_name(f"{plain}.py")))
    raise InvalidRequest(
        f"{script.name} cannot be run as a module: in its name are other characters than "
        "letters of English, digits, - and _",
        field="trainer_uri",
        value=trainer_uri,
        allowed="a name such as train.py",
        hint=f"Rename it: mv {shlex.quote(str(script))} {renamed}"
        if plain
        else "Rename it, say to train.py.",
    )


def _shell_script(script: Path, trainer_uri: str) -> InvalidRequest:
    return InvalidRequest(
        f"{script.name} is a shell script, and jobs run Python",
        field="trainer_uri",
        value=trainer_uri,
        allowed="a Python file, or a folder with one",
        hint="Submit the Python file that it runs. What comes before it goes to "
        "--prepare_command 'LINE', and variables to --env NAME=VALUE.",
    )


def _without_module(place: Path, trainer_uri: str) -> InvalidRequest:
    """The error for a folder or a file that holds nothing to run."""
    if place.is_dir():
        if notebook := next(iter(sorted(place.glob("*.ipynb"))), None):
            from cloud_ml.sdk.trainers.packaging import refuse_notebook

            return refuse_notebook(notebook)
        return _folder_without_module(place, trainer_uri)
    if place.suffix in _JOB_FILES:
        return InvalidRequest(
            f"{place.name} is not Python code",
            field="trainer_uri",
            value=trainer_uri,
            allowed="a Python file, or a folder with one",
            hint=f"If it is a job file: cloudml jobs submit -f {shlex.quote(trainer_uri)}",
        )
    return _unclear(f"which module of {place.name} is to run?", [])


def _folder_without_module(place: Path, trainer_uri: str) -> InvalidRequest:
    from cloud_ml.sdk.trainers.packaging import TRAINER_NEEDS

    if not next(place.iterdir(), None):
        return InvalidRequest(
            f"the folder {trainer_uri} is empty",
            field="trainer_uri",
            value=trainer_uri,
            hint=TRAINER_NEEDS,
        )
    error = _unclear(f"no module to run was found in {trainer_uri}", [])
    if way := _way_to_run_command(place):
        error.hint = way
    elif below := _folder_with_scripts(place):
        error.hint = f"{error.hint} Or submit the folder of the code, such as {below}"
    elif not next(itertools.chain(place.glob("*.py"), place.glob("*/*.py")), None):
        error.hint = f"{TRAINER_NEEDS} For a module of a package: -m MODULE."
    return error


def _way_to_run_command(place: Path) -> str:
    """What to do with the first command of a project whose module runs nothing by itself; empty if
    there is none.
    """
    for name, (module, function) in _commands(place).items():
        if file := _file_of(place, module):
            called = f"{function}() of {module}" if function else module
            return (
                f"The command {name} of pyproject.toml calls {called}. Call it in "
                f"{file.relative_to(place)} under if __name__ == '__main__': and give -m {module}."
            )
    return ""


def _folder_with_scripts(place: Path) -> str:
    """A folder in ``place`` with Python files of its own; empty if there is none. Users submit the
    folder above their code.
    """
    entries = sorted(itertools.islice(place.iterdir(), _MOST_ENTRIES))
    own = [one for one in entries if not one.name.startswith(".") and one.is_dir()]
    found = (one for one in own if not _is_package(one) and next(one.glob("*.py"), None))
    below = next(found, None)
    return (
        "" if below is None else shlex.quote(f"./{below}" if len(below.parts) == 1 else str(below))
    )


def _is_shell_script(place: Path) -> bool:
    with place.open("rb") as file:
        first = file.readline(100)
    return place.suffix in (".sh", ".bash") or (first.startswith(b"#!") and b"sh" in first)


def module_of_script(trainer_uri: str, module: str) -> str:
    """``train`` for ``train.py``, as people type who run ``python train.py`` in the folder; else
    what was given.
    """
    if "://" in trainer_uri or not module.endswith(".py"):
        return module
    name, folder = module.removeprefix("./"), local_path(trainer_uri)
    is_script = _RUNNABLE.fullmatch(name.removesuffix(".py")) and (folder / name).is_file()
    return name.removesuffix(".py") if is_script else module


def check_module_in(trainer_uri: str, module: str) -> None:
    """Refuse a module that local code cannot hold: a file's name, or a part that its package lacks.

    What is not there at all may come from a requirement, and what a build makes of a project is not
    guessed.

    Raises:
        InvalidRequest: It is not there; names what may have been meant.
    """
    if "://" in trainer_uri or not (folder := local_path(trainer_uri)).is_dir():
        return
    if module.endswith(".py") and (folder / module).is_file():
        raise refuse(
            "module_name",
            module,
            "the name of a module, not of a file",
            suggestion=suggestions.module(module),
        )
    parts = module.split(".")
    if not all(map(_RUNNABLE.fullmatch, parts)):
        return  # whoever reads the field refuses it
    if not all(map(_PARTS.fullmatch, parts)):  # nobody can import it: it must be a script
        if not folder.joinpath(*parts).with_suffix(".py").is_file():
            raise refuse(
                "module_name",
                module,
                f"a module that {trainer_uri} holds",
                suggestion=_near_module(folder, module),
            )
        return
    root = folder / parts[0]
    if _is_project(folder) or not (root / "__init__.py").is_file():
        return
    place = folder.joinpath(*module.split("."))
    if not place.with_name(place.name + ".py").is_file() and not place.is_dir():
        package = ".".join(parts[:-1])
        there = sorted(one.stem for one in place.parent.glob("*.py") if one.stem != "__init__")
        near = get_close_matches(place.name, there, n=1)
        held = ", ".join(f"{package}.{name}" for name in there[:_MOST_SHOWN])
        raise refuse(
            "module_name",
            module,
            f"a module that {trainer_uri} holds" + (f", such as {held}" if held else ""),
            suggestion=f"{package}.{near[0]}" if near else "",
        )


def _near_module(folder: Path, module: str) -> str:
    """The module that the command of this name calls, or one that is written like it but for its
    dashes; or nothing.
    """
    if called := _commands(folder).get(module):
        return called[0]
    for other in (module.replace("-", "."), module.replace("-", "_")):
        if folder.joinpath(*other.split(".")).with_suffix(".py").is_file():
            return other
    return ""


def _candidates_in_archive(archive: Path) -> list[str]:
    from cloud_ml.cli.jobs.archive_outline import write_outline

    with tempfile.TemporaryDirectory(prefix="cloudml-") as outline:
        try:
            write_outline(archive, Path(outline))
        except (OSError, ValueError):  # a file where another member has a folder, an odd name
            return []
        return _candidates(Path(outline))


def _candidates(folder: Path) -> list[str]:
    """Modules that may be meant: by the first of the usual ways that the folder follows."""
    packages = _find_packages(folder)
    if tasks := _trainer_tasks(packages):
        return tasks
    scripts = [] if folder in packages else _scripts(folder)
    return _runnable(packages, scripts) or _usual_modules(packages) or _modules_of_commands(folder)


def _find_packages(folder: Path) -> list[Path]:
    """Packages that are sent with a folder: itself, or those in it and in its ``src``."""
    if _is_package(folder) and not _is_project(folder):
        packages = [folder]  # the folder is sent as the package itself
    else:
        packages = _packages_in(folder)
        if (folder / "src").is_dir():
            packages += _packages_in(folder / "src")
    return [one for one in packages if _PARTS.fullmatch(one.name) and one.name not in _NO_TRAINERS]


def _packages_in(folder: Path) -> list[Path]:
    return [one for one in sorted(folder.iterdir()) if _is_package(one)]


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _trainer_tasks(packages: Sequence[Path]) -> list[str]:
    """``trainer.task``, as examples of the original tool have it."""
    return [
        f"{one.name}.task"
        for one in packages
        if one.name == "trainer" and (one / "task.py").is_file()
    ]


def _runnable(packages: Sequence[Path], scripts: Sequence[str]) -> list[str]:
    """Packages that run by ``python -m``, and scripts; of scripts alone, the one usual name."""
    runnable = [one.name for one in packages if (one / "__main__.py").is_file()]
    usual = [one for one in scripts if one in _USUAL]
    if not runnable and len(usual) == 1:
        return usual
    return [*runnable, *scripts]


def _usual_modules(packages: Sequence[Path]) -> list[str]:
    return [
        f"{one.name}.{name}"
        for one in packages
        for name in _USUAL
        if (one / f"{name}.py").is_file()
    ]


def _modules_of_commands(folder: Path) -> list[str]:
    """The modules that the commands of a project call, if they run by themselves, too."""
    called = dict.fromkeys(module for module, _function in _commands(folder).values())
    return [module for module in called if _runs_by_itself(folder, module)]


def _commands(folder: Path) -> dict[str, tuple[str, str]]:
    """The commands of a ``pyproject.toml``, each with its module and the function in it."""
    import tomllib

    try:
        project = tomllib.loads(decode_text((folder / "pyproject.toml").read_bytes()))
        commands = project.get("project", {}).get("scripts", {}).items()
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    parts = {name: str(target).partition(":") for name, target in commands}
    return {name: (module.strip(), rest.strip()) for name, (module, _, rest) in parts.items()}


def _runs_by_itself(folder: Path, module: str) -> bool:
    with contextlib.suppress(OSError):
        file = _file_of(folder, module)
        return file is not None and b"__main__" in file.read_bytes()
    return False


def _file_of(folder: Path, module: str) -> Path | None:
    """The file of a module that lies in the folder or in its ``src``."""
    parts = module.split(".")
    if not all(map(_PARTS.fullmatch, parts)):
        return None
    files = (root.joinpath(*parts).with_suffix(".py") for root in (folder, folder / "src"))
    return next((file for file in files if file.is_file()), None)


def _scripts(folder: Path) -> list[str]:
    """The scripts that may be meant: modules, or if there is none, others such as
    ``train-model.py``.
    """
    files = [one for one in sorted(folder.glob("*.py")) if not _NOT_RUN.fullmatch(one.name)]
    modules = [one.stem for one in files if _PARTS.fullmatch(one.stem)]
    return modules or [one.stem for one in files if _RUNNABLE.fullmatch(one.stem)]


def _is_project(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() or (folder / "setup.py").is_file()


def _unclear(what: str, found: list[str]) -> InvalidRequest:
    shown = ", ".join(found[:_MOST_SHOWN]) + (", …" if len(found) > _MOST_SHOWN else "")
    return InvalidRequest(
        what + (f": {shown}" if found else ""),
        field="module_name",
        allowed=shown or "the name of a Python module, such as trainer.task",
        hint=f"Say which: -m {found[0] if found else 'trainer.task'}.",
    )
