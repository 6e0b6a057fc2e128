"""What environments of jobs are made of: uv, interpreters, frameworks, the indexes of packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

from cloud_ml.bootstrap.programs import find_pythons, find_uv
from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.doctor.reach import Unreachable, reach
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.runtime import BadRuntime
from cloud_ml.errors import CloudMlError
from cloud_ml.fetching import git
from cloud_ml.fetching.task import FetchFailed
from cloud_ml.settings import Settings

_AREA = Area("runtimes")
_USUAL_INDEX = "https://pypi.org/simple"
_UV_TIMEOUT_S = 20.0


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at what jobs may ask for, and at where packages would come from."""
    yield _uv()
    if settings.trainers.urls != "none":
        yield _git()
    pythons = find_pythons(settings)
    yield _AREA.ok("interpreters", ", ".join(pythons))
    try:
        offered = Catalog.load(settings.runtimes_dir, tuple(pythons)).listing()
    except BadRuntime as error:
        yield _AREA.problem(
            "frameworks", str(error), f"correct or remove the file in {settings.runtimes_dir}"
        )
    else:
        yield _AREA.ok("frameworks", ", ".join(offered))
    yield from _indexes(pipconfig.read())


def _uv() -> Finding:
    try:
        program = find_uv()
        completed = subprocess.run(  # noqa: S603
            [str(program), "--version"],
            capture_output=True,
            text=True,
            timeout=_UV_TIMEOUT_S,
            check=True,
        )
    except CloudMlError as error:
        return _AREA.problem("uv", error.message, error.hint or "")
    except (OSError, subprocess.SubprocessError) as error:
        return _AREA.problem("uv", f"it cannot be run: {error}", "pip install --force-reinstall uv")
    return _AREA.ok("uv", f"{completed.stdout.strip().removeprefix('uv ')}, {program}")


def _git() -> Finding:
    """Trainers from Git need a program that connects to the address that was checked, and no
    other.
    """
    try:
        program, version = git.find_git()
    except (FetchFailed, OSError, subprocess.SubprocessError) as error:
        message = (
            f"{str(error).partition(';')[0]}: trainers from git+https:// fail; all others work"
        )
        return _AREA.warning(
            "git", message, "install git 2.37 or newer, or set trainers.urls to none"
        )
    return _AREA.ok("git", f"{version}, {program}")


def _indexes(config: pipconfig.PipConfig) -> Iterator[Finding]:
    """Each index is asked once; addresses are shown without credentials."""
    for folder in config.find_links:
        yield _AREA.ok("find-links", pipconfig.without_credentials(folder))
    if config.no_index:
        yield _AREA.ok("index", "none: pip is set to use no index")
        return
    default_index = (
        config.kept.get("UV_DEFAULT_INDEX")
        or config.kept.get("UV_INDEX_URL")
        or config.index
        or _USUAL_INDEX
    )
    for url in (default_index, *config.extra_indexes):
        shown = pipconfig.without_credentials(url)
        try:
            reach(url, os.environ)
        except Unreachable as error:
            remedy = "packages that are not here yet cannot be had; see pip's index-url and proxy settings"
            yield _AREA.warning("index", f"{shown}: {error}", remedy)
        else:
            yield _AREA.ok("index", f"{shown} answers")
