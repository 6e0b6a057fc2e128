"""From a request to an environment that is ready: the one door of this package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cloud_ml.environments.base import EnvironmentRequest, Prepared, Sandbox
from cloud_ml.environments.catalog import Catalog

VENV_TARGET = "/env"


def prepare(
    request: EnvironmentRequest,
    *,
    home: Path,
    venv: Path,
    uv: Path,
    catalog: Catalog,
    sandbox: Sandbox,
    log: Callable[[bytes], None],
    python: Path | None = None,
    timeout_s: float = 1800.0,
) -> Prepared:
    """Make the environment of a gang, or find it made, and fill ``venv`` for this job.

    A request that was met before starts no process and takes a few milliseconds. Whatever takes long
    (a download, a build) is done once: other jobs that need the same wait for it.

    Args:
        request: What is wanted.
        home: The folder of all environments, owned by the platform: layers, caches, trainers of tenants.
        venv: A folder of this job (made if absent), which becomes its virtual environment: a handful of
            small files and links. The caller gives it to the job's user and binds it *writable* at
            ``VENV_TARGET``, since a prepare command may install into it; it is not among ``binds``.
        uv: The ``uv`` program.
        catalog: The runtimes that are offered.
        sandbox: Runs what executes or unpacks the tenant's code.
        log: Takes the words of the tools, as they come.
        python: The interpreter of runtimes that do not ask for another; the platform's own by default.
        timeout_s: Bounds every single call of a tool, in seconds.

    Returns:
        What the engine must bind (read-only) and set. ``python`` is ``/env/bin/python`` for an isolated
        sandbox, otherwise the one below ``venv``, and no bind is needed. ``environment`` holds a
        complete ``PATH`` beside ``VIRTUAL_ENV`` and the runtime's variables.

    Raises:
        EnvironmentFailed: With the reason ``TrainerNotFound``, ``TrainerInvalid`` or ``EnvironmentFailed``.
    """
    raise NotImplementedError
