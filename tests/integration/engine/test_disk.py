"""Limits of the disk, kept against programs that write as fast as they can."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk.watch import DiskWatch, measure_use
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.environments.tools import ToolSandbox
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import default_disk_bytes, probe
from cloud_ml.engines.local.processes.launch import Fence
from cloud_ml.environments.base import Bind
from cloud_ml.settings import EngineSettings
from support.gangs import gang_of, run, when
from support.machine import end_engine
from support.server import eventually

pytestmark = pytest.mark.anyio

PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)
MIB = 2**20
OVERSHOOT = 1024 * MIB
"""What a program may write beyond its limit while whoever watches it waits for a processor. How
far it comes when the watch gets its turns is in tests/unit/engine/test_disk_watch.py.
"""
FAST = {
    "one file": "f = open('f', 'wb', 0)\nwhile True: f.write(block)",
    "four threads": "import threading\n"
    "def write(name):\n  f = open(name, 'wb', 0)\n  while True: f.write(block)\n"
    "for name in 'abcd': threading.Thread(target=write, args=(name,)).start()",
    "allocated at once": "import os\nn = 0\nwhile True:\n  f = open(f'f{n}', 'wb', 0); n += 1\n"
    "  try: os.posix_fallocate(f.fileno(), 0, 1 << 29)\n  except OSError: f.write(block)",
}


@pytest.mark.parametrize("limit", [256 * MIB, 1024 * MIB], ids=["256M", "1G"])
@pytest.mark.parametrize("kind", FAST)
async def test_a_job_that_writes_as_fast_as_it_can_hardly_passes_its_limit(
    engine: LocalEngine, kind: str, limit: int
) -> None:
    """It passed 1 GiB by 1,792 MiB when it was looked at every second."""
    if shutil.disk_usage(engine._root).free < 8 * limit:
        pytest.skip("there is too little room on the disk of this machine")
    gang = gang_of(PYTHON, "-c", f"block = b'x' * (8 << 20)\n{FAST[kind]}", disk_bytes=limit)
    work = engine._ledger.work_folder(gang.key.job_uid)
    try:
        seen, _ = await run(engine, gang)
        assert seen.reason is Reason.DISK_QUOTA, seen
        size = measure_use([work], [])
        assert limit * 0.9 < size <= limit + OVERSHOOT, f"{(size - limit) / MIB:.0f} MiB beyond"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tools() -> ToolSandbox:
    fence = Fence(bwrap="", init="", seat="", filter=None, user=None)

    def watch(folders: Sequence[Path]) -> DiskWatch:
        return DiskWatch(folders, limit=64 * MIB, reserve=0, period_s=5.0)

    return ToolSandbox(fence, Exposure(needed=False), None, "", watch=watch)


def _run_tool(folder: Path, program: str) -> tuple[int, bytes]:
    """Exit code and output of a tool, run by a process of its own: when it ends, all descendants
    of its caller end.
    """
    output: list[bytes] = []

    def run() -> None:
        code = _tools().run(
            [PYTHON, "-c", program],
            read_only=[],
            writable=[Bind(str(folder), str(folder))],
            environment={},
            network=False,
            timeout_s=60,
            output=output.append,
        )
        ours.send((code, b"".join(output)))

    theirs, ours = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    ours.close()
    with theirs:
        found: tuple[int, bytes] = theirs.recv()
    child.join()
    return found


def test_a_build_that_fills_the_disk_is_ended(tmp_path: Path) -> None:
    """It runs before the job and had no limit."""
    code, words = _run_tool(tmp_path, f"block = b'x' * (8 << 20)\n{FAST['one file']}")
    assert code == -9
    assert b"DiskQuotaExceeded: 64M exceeded" in words
    assert measure_use([tmp_path], []) <= 64 * MIB + OVERSHOOT
    guard = _tools().guard([tmp_path])
    assert (
        eventually(guard, "the guard of a tool of the platform's own objects")
        == "DiskQuotaExceeded: 64M exceeded"
    )
    (tmp_path / "f").unlink()
    assert _tools().guard([tmp_path])() is None
    assert _run_tool(tmp_path, "print('small')")[0] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400m,mode=755", "cloudml-test", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
async def crowded(small_disk: Path) -> AsyncIterator[LocalEngine]:
    root = small_disk / "engine"
    Ledger(root).create()
    settings = EngineSettings(disk_reserve="150M", disk_period_s=0.5, default_disk="none")
    found = probe(
        settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=Path("uv")
    )
    engine = LocalEngine(found)
    await engine.start()
    yield engine
    await engine.close()
    end_engine(found.config)


_GROWS_UNTIL_GO = """
import os, time
for _ in range(90):
    f.write(block)
while not os.path.exists("go"):
    f.write(block[: 1 << 15])
    time.sleep(0.05)
"""
"""Just beyond the reserve, then on and on, slowly: a job that stops growing takes nobody's room."""


async def test_the_reserve_is_taken_from_whoever_is_furthest_beyond_their_share(
    crowded: LocalEngine,
) -> None:
    """A job of another organisation, which had written 30 MiB, was ended for one that had taken
    760 and rested.
    """
    block = "block = b'x' * (1 << 20)\nf = open('f', 'wb', 0)\n"
    rests = gang_of(
        PYTHON,
        "-c",
        f"{block}for _ in range(170): f.write(block)\nimport time\ntime.sleep(600)",
        tenant=1,
    )
    grows = gang_of(
        PYTHON,
        "-c",
        f"{block}{_GROWS_UNTIL_GO}",
        tenant=2,
    )
    await crowded.ensure(rests)
    work = crowded._ledger.work_folder(rests.key.job_uid)
    while not (work / "f").exists() or (work / "f").stat().st_size < 170 * MIB:
        await crowded.observed(rests.key.job_uid)
    await crowded.ensure(grows)
    ended = await when(crowded, rests.key, lambda g: g.state is GangState.EXITED)
    assert ended.reason is Reason.DISK_QUOTA
    assert "less than 150M is left on the server's disk" in ended.message
    assert "the most beyond its share" in ended.message
    assert not work.exists(), "its room is what others wait for"
    (crowded._ledger.work_folder(grows.key.job_uid) / "go").touch()
    done = await when(crowded, grows.key, lambda g: g.state is GangState.EXITED)
    assert done.reason is Reason.COMPLETED, done


def test_the_default_limit_is_a_quarter_of_what_is_free(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert default_disk_bytes(EngineSettings(), tmp_path / "not" / "yet") == pytest.approx(
        free / 4, rel=0.05
    )
    assert default_disk_bytes(EngineSettings(default_disk="none"), tmp_path) == 0
    assert default_disk_bytes(EngineSettings(default_disk=""), tmp_path) == 0
    assert default_disk_bytes(EngineSettings(default_disk="3G"), tmp_path) == 3 * 2**30
