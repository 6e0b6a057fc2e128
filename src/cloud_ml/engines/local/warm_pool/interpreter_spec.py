"""What an interpreter has to be for a job to be able to use it, and which jobs can."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields

from cloud_ml.engines.gang import Gang, ProcessPlan
from cloud_ml.environments.base import Prepared
from cloud_ml.environments.files import digest_of

_OWN = ("CLOUDML_", "MLFLOW_TRACKING_")
"""What the platform tells each job. Nothing that is imported ahead reads these variables."""
_RUN_BY_SITE = frozenset({"sitecustomize", "usercustomize"})


@dataclass(frozen=True)
class InterpreterSpec:
    """An interpreter with its imports. Two jobs for which this is the same could not tell theirs
    apart.

    ``binds`` are (source, target) pairs; ``environment`` is complete but for what the platform
    tells each job. Nothing in it is of a job's own.
    """

    tenant: int
    network: str
    preload: tuple[str, ...]
    python: str
    prefix: str
    version: str
    sites: tuple[str, ...]
    binds: tuple[tuple[str, str], ...]
    environment: Mapping[str, str]

    @property
    def key(self) -> str:
        """The same for orders that are the same."""
        return digest_of({field.name: getattr(self, field.name) for field in fields(self)})


def of(gang: Gang, prepared: Prepared, variables: Mapping[str, str]) -> InterpreterSpec | None:
    """What the gang's only process could start from; ``None`` if it has to start the ordinary way.

    Libraries read variables when they are imported, and nobody knows which: a job that brings
    variables of its own starts the ordinary way, as does one whose prepare command may change what
    there is to import, that gets secrets, or that is to have no network.

    Args:
        gang: Who asks.
        prepared: Its environment.
        variables: The platform's, without the environment's.
    """
    base = prepared.base
    if (
        base is None
        or not prepared.preload
        or gang.has_tasks
        or gang.prepare_command
        or gang.secrets
        or gang.offline
    ):
        return None
    plan = gang.processes[0]
    if plan.command[:2] != ("python", "-m") or any(
        not name.startswith(_OWN) for name in plan.environment
    ):
        return None
    cores = threads(plan, prepared.threads)
    job_variables = {name: value for name, value in variables.items() if not name.startswith(_OWN)}
    return InterpreterSpec(
        tenant=gang.tenant,
        network=gang.network,
        preload=tuple(prepared.preload),
        python=base.python,
        prefix=base.prefix,
        version=base.version,
        sites=tuple(base.sites),
        binds=tuple((bind.source, bind.target) for bind in base.binds),
        environment={**job_variables, **base.environment, **cores},
    )


def threads(plan: ProcessPlan, names: Collection[str]) -> dict[str, str]:
    """Variables that hold a process with a limit to as many threads as it has cores: libraries
    count the machine's.
    """
    return dict.fromkeys(names, str(max(1, -(-plan.cpu_millis // 1000)))) if plan.cpu_millis else {}


def hint(gang: Gang) -> str:
    """The same for gangs that are likely to need the same, which is known before their
    environment is.
    """
    plan, first = gang.environment, gang.processes[0]
    name = plan.trainer.name if plan.trainer else ""
    requirements = (plan.framework, plan.framework_version, plan.module, name, plan.requires)
    return digest_of(gang.tenant, gang.network, requirements, first.cpu_millis)


def find_shadowed(loaded: Collection[str], folders: Iterable[str]) -> str:
    """What a job would import from one of its own ``folders`` where the interpreter has imported it
    elsewhere.

    Raises:
        OSError: One of them cannot be listed, or is a link, which the job may have made.
    """
    names = {*loaded, *_RUN_BY_SITE}
    for folder in folders:
        for entry in _list_folder(folder):
            if entry.partition(".")[0] in names or entry.endswith(".pth"):
                return entry
    return ""


def _list_folder(folder: str) -> list[str]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.listdir(descriptor)  # noqa: PTH208
    finally:
        os.close(descriptor)
