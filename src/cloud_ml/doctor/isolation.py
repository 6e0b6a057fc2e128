"""What stands between jobs and the machine, and between jobs and each other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.bootstrap.programs import find_uv
from cloud_ml.controller.placement.scheduler import most_jobs
from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cleanup import orphans
from cloud_ml.engines.local.probe import in_force, probe
from cloud_ml.engines.local.processes.process_share import kernel_limit, process_limit
from cloud_ml.errors import CloudMlError
from cloud_ml.settings import Settings

_AREA = Area("isolation")


def examine(settings: Settings) -> Iterator[Finding]:
    """Put up each fence once, as the start of a server does, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="cloudml-doctor-") as folder:
        root = Path(folder)
        # who may pass through the data folder matters to the user that jobs get
        home = settings.data_dir if settings.data_dir.exists() else root
        try:
            found = probe(
                settings.engine, root=root, environments_home=home, runtimes_dir=root, uv=find_uv()
            )
        except CloudMlError as error:
            yield _AREA.problem("required", error.message, error.hint or "")
            return
        if (hierarchy := cgroups.restore(dict(found.config.cgroups))) is not None:
            hierarchy.remove()  # it was made to see whether it can be
        for fence, stands in in_force(found.config).items():
            yield _AREA.ok(fence.replace("_", " "), stands)
        yield _processes(settings)
        for orphan in orphans.find(orphans.group_folders(dict(found.config.cgroups))):
            message = f"a server whose data folder is gone has left {orphan}"
            by_hand = f", or: {orphan.commands}" if orphan.commands else ""
            yield _AREA.warning(
                "left over", message, f"the next start of a server as root removes it{by_hand}"
            )
        for sentence in found.missing:
            message, _, remedy = sentence.partition("; ")
            yield _AREA.warning("missing", message, remedy)


def _processes(settings: Settings) -> Finding:
    """How many processes each job may have."""
    configured, places = settings.engine.max_processes, most_jobs(settings.controller)
    limit = process_limit(configured, places)
    message = f"each job may have {limit} processes and threads"
    if limit == configured:
        return _AREA.ok("processes", message)
    why = f"{places} jobs may take half of the {kernel_limit()} that the kernel can have"
    return _AREA.ok(
        "processes",
        f"{message}, fewer than engine.max_processes ({configured}): {why}; sysctl kernel.pid_max",
    )
