"""Disk limits that the kernel keeps. ``tests/project_quotas/run.sh`` runs this on a kernel that has project quotas."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk import project_quotas
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import probe
from cloud_ml.models.common import format_memory
from cloud_ml.settings import EngineSettings
from support import gangs
from support.gangs import gang_of, run
from support.machine import end_engine

pytestmark = pytest.mark.anyio

PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)
MIB = 2**20
LIMIT = int(os.environ.get("CLOUDML_TEST_DISK_LIMIT_MIB", "64")) * MIB
FOLDERS = [
    Path(each) for each in os.environ.get("CLOUDML_TEST_PROJECT_QUOTAS", "").split(":") if each
]
"""Folders on file systems that are mounted with ``prjquota``."""
WRITES = """
import os, time
f = open({name!r}, 'wb', 0)
try:
    while True: f.write(b'x' * {step})
finally:
    print('written', f.tell(), flush=True)
"""
CHANGES = """
import fcntl, os, struct
folder = os.open('.', os.O_RDONLY)
facts = bytearray(fcntl.ioctl(folder, 0x801c581f, bytes(28)))
print('project', struct.unpack_from('=I', facts, 12)[0])
facts[12:16] = bytes(4)
try: fcntl.ioctl(folder, 0x401c5820, bytes(facts))
except OSError as error: print('refused', error)
else: print('changed')
"""


@pytest.fixture(params=FOLDERS or [None], ids=lambda folder: folder.name if folder else "none")
async def bounded(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[LocalEngine]:
    """An engine whose jobs the kernel holds to their limits."""
    monkeypatch.setattr(gangs, "LIMIT_S", 600.0)  # an emulated machine is slow
    if request.param is None:
        pytest.skip("no file system with project quotas is named in CLOUDML_TEST_PROJECT_QUOTAS")
    root = request.param / uuid.uuid4().hex
    Ledger(root).create()
    settings = EngineSettings(project_id_base=1_600_000_000, disk_reserve="")
    found = probe(
        settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=Path("uv")
    )
    assert found.config.project_id_base, found.missing
    engine = LocalEngine(found)
    await engine.start()
    yield engine
    await engine.close()
    end_engine(found.config)


@pytest.mark.parametrize("name", ["f", "/tmp/f"])
@pytest.mark.parametrize("step", [MIB, 65_537])
async def test_a_job_writes_no_byte_beyond_its_limit(
    bounded: LocalEngine, name: str, step: int
) -> None:
    """Where limits are measured, it may pass its limit by 128 MiB."""
    gang = gang_of(PYTHON, "-c", WRITES.format(name=name, step=step), disk_bytes=LIMIT)
    seen, log = await run(bounded, gang)
    written = [int(line.split()[1]) for line in log.splitlines() if line.startswith("written")]
    print(seen.message, "written", written)
    assert seen.reason is Reason.DISK_QUOTA, (seen, log)
    assert seen.message == f"DiskQuotaExceeded: {format_memory(LIMIT)} exceeded"
    assert all(LIMIT - 2 * MIB < size <= LIMIT for size in written), log
    jobs = bounded._ledger.jobs
    project = project_quotas.project_of(bounded._ledger.work_folder(gang.key.job_uid))
    assert project >= 1_600_000_000
    quota = project_quotas.quota_of(jobs, project)
    print("used", quota.used, "of", quota.limit)
    assert quota.limit == LIMIT
    assert quota.used <= LIMIT


async def test_a_job_cannot_leave_its_project(bounded: LocalEngine) -> None:
    """An owner outside of a user namespace can, and has no limit then."""
    seen, log = await run(bounded, gang_of(PYTHON, "-c", CHANGES, disk_bytes=LIMIT))
    assert seen.reason is Reason.COMPLETED, (seen, log)
    assert "project 16" in log
    assert "refused" in log


async def test_the_number_of_a_deleted_job_is_free_again(bounded: LocalEngine) -> None:
    """Also where the supervisor was killed in between: a number belongs to a folder."""
    ledger = bounded._ledger
    gang = gang_of(PYTHON, "-c", "open('f', 'w').write('x' * 5000)", disk_bytes=LIMIT)
    await run(bounded, gang)
    project = project_quotas.project_of(ledger.work_folder(gang.key.job_uid))
    noted = ledger.root / "projects" / str(project)
    assert str(noted.readlink()) == gang.key.job_uid
    ledger.forget(gang.key.job_uid)
    assert not noted.is_symlink()
    assert project_quotas.quota_of(ledger.jobs, project).limit == 0
