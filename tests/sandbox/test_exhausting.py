"""What a job tries to use up, and to hide from whoever counts: the disk, files, processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.disk import measuring
from cloud_ml.engines.local.disk import watch as disk
from cloud_ml.engines.local.disk.kept_disk import KeptDisk
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.processes import proctree
from cloud_ml.settings import EngineSettings
from support.attacks import PYTHON
from support.gangs import gang_of, run, when

pytestmark = pytest.mark.anyio

MIB = 1 << 20
_REST = "\nimport time\ntime.sleep(600)"
_BEYOND = "DiskQuotaExceeded: 16M exceeded"
_HIDING = {
    "a file that is only mapped": (
        "import mmap\nf = open('f', 'wb+', 0); os.unlink('f'); f.truncate(64 * MIB)\n"
        "m = mmap.mmap(f.fileno(), 64 * MIB); f.close()\n"
        "for at in range(0, 64 * MIB, 4096): m[at] = 1\n",
        _BEYOND,
    ),
    "a file that only a thread with descriptors of its own has open": (
        "import ctypes, threading\n"
        "libc = ctypes.CDLL(None); f = open('f', 'wb', 0); os.unlink('f')\n"
        "for _ in range(64): f.write(b'x' * MIB)\n"
        "STACK = ctypes.create_string_buffer(MIB)\n"
        "FLAGS = 0x100 | 0x200 | 0x800 | 0x10000\n"  # VM, FS, SIGHAND, THREAD, but not FILES
        "libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.byref(STACK, MIB - 64), "
        "FLAGS, None)\n"
        "f.close()\n",
        _BEYOND,
    ),
    "folders nested deeper than any path": (
        "for _ in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "f = open('f', 'wb', 0)\n"
        "for _ in range(64): f.write(b'x' * MIB)\n"
        "os.fsync(f.fileno())\n",
        "DiskQuotaExceeded: the job's files cannot be measured: its folders are nested deeper "
        "than any path",
    ),
}


@pytest.fixture
def engine_settings() -> EngineSettings:
    return EngineSettings(disk_period_s=0.1, max_files=500, max_processes=200)


async def test_what_is_hidden_from_the_measure_counts(engine: LocalEngine) -> None:
    gangs = {
        way: gang_of(PYTHON, "-c", _start(program) + _REST, disk_bytes=16 * MIB, wall_time_s=60)
        for way, (program, _) in _HIDING.items()
    }
    for gang in gangs.values():
        await engine.ensure(gang)
    for way, (_, message) in _HIDING.items():
        seen = await when(engine, gangs[way].key, lambda found: found.state.over)
        assert (seen.reason, seen.message) == (Reason.DISK_QUOTA, message), way


async def test_a_great_many_empty_files_end_where_the_limit_is(engine: LocalEngine) -> None:
    many = gang_of(
        PYTHON, "-c", "for n in range(20_000): open(f'f{n}', 'x').close()" + _REST, wall_time_s=60
    )
    allowed = gang_of(
        PYTHON, "-c", "for n in range(400): open(f'f{n}', 'x').close()", disk_bytes=64 * MIB
    )
    await engine.ensure(allowed)
    seen, _ = await run(engine, many)
    assert (seen.reason, seen.message) == (
        Reason.DISK_QUOTA,
        "DiskQuotaExceeded: more than 500 files and folders",
    )
    seen = await when(engine, allowed.key, lambda found: found.state.over)
    assert seen.reason is Reason.COMPLETED


@pytest.mark.parametrize("engine_settings", [EngineSettings(kept_disk="16M")])
async def test_ended_jobs_of_an_organisation_keep_no_more_than_their_limit(
    engine: LocalEngine,
) -> None:
    """Files and output of each job stay within its limits; of many jobs they would fill the disk
    of everybody.
    """
    files = gang_of(PYTHON, "-c", f"open('result', 'wb').write(b'x' * {10 * MIB})")
    talk = gang_of(PYTHON, "-c", f"print('x' * {10 * MIB})")
    for gang in (files, talk):
        assert (await run(engine, gang))[0].reason is Reason.COMPLETED
    seen, log = await run(engine, gang_of(PYTHON, "-c", "print('ran')"))
    assert seen.reason is Reason.DISK_QUOTA
    assert seen.message.startswith("DiskQuotaExceeded: ended jobs of the organisation keep 20")
    assert "more than 16M" in seen.message
    assert "cloudml jobs delete" in log
    for allowed in (
        gang_of(PYTHON, "-c", "print('ran')", tenant=2),
        gang_of(PYTHON, "-c", "1", serves=True),
    ):
        assert (await run(engine, allowed))[0].reason is Reason.COMPLETED
    again = gang_of(PYTHON, "-c", "print('ran')", uid=files.key.job_uid, attempt=2)
    assert (await run(engine, again))[0].reason is Reason.COMPLETED, (
        "what its earlier attempt keeps does not count"
    )
    await engine.forget(talk.key.job_uid)
    assert (await run(engine, gang_of(PYTHON, "-c", "print('ran')")))[0].reason is Reason.COMPLETED


def test_what_ended_jobs_may_keep_is_as_much_as_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gibibyte = 2**30
    jobs = tmp_path / "jobs"
    kept = KeptDisk(tmp_path / "kept", jobs, boot="this")
    for uid in ("a", "b"):
        (jobs / uid / "work").mkdir(parents=True)
        kept.note(1, uid, at_least=2 * gibibyte)
    kept.note(1, "b", at_least=3 * gibibyte)
    assert (kept.total(1), kept.total(1, "b", gibibyte), kept.total(2)) == (
        5 * gibibyte,
        4 * gibibyte,
        0,
    )
    monkeypatch.setattr(KeptDisk, "_free", lambda _: 4 * gibibyte)
    assert "keep 5G on the server's disk, more than 4G, as much as is free now" in kept.excess(
        1, "c", -1
    )
    assert kept.excess(1, "b", -1, allowance=3 * gibibyte) == ""
    assert "keep 4.5G" in kept.excess(1, "b", -1, allowance=gibibyte // 2), (
        "output of a job that starts again and again"
    )
    assert kept.excess(1, "c", 0) == ""
    monkeypatch.setattr(KeptDisk, "_free", lambda _: 0)
    kept.drop("b")
    kept.drop("b")
    assert "keep 2G on the server's disk, more than 1G" in kept.excess(1, "c", -1)
    kept.drop("a")
    kept.note(1, "b", at_least=gibibyte)
    assert kept.excess(1, "c", -1) == "", "a nearly full disk stops nobody who keeps little"


def _start(program: str) -> str:
    return f"import os\nMIB = 1 << 20\n{program}"


def test_a_folder_that_is_closed_to_its_own_user_is_told(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is closed to root")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(measuring.Hidden, match="closed to its own user"):
        disk.measure_use([tmp_path], [])


def test_measuring_a_great_many_files_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(disk, "_SLICE_S", 0.0)  # no time at all: what is due is done by and by
    monkeypatch.setattr(disk, "_STEPS", 10)
    monkeypatch.setattr(disk.DiskWatch, "_count_on", _a_few)
    watch = disk.DiskWatch([tmp_path], limit=1 << 40, reserve=0, period_s=0.0, files=400)
    looks, verdict = 0, None
    while verdict is None:
        verdict = watch.look(list)
        looks += 1
    assert "more than 400 files" in verdict.message
    assert looks == 41


def _a_few(watch: disk.DiskWatch, until: float) -> bool:
    del until
    assert watch._counting is not None
    return all(next(watch._counting, "over") is None for _ in range(10)) is False


# ---- processes


@pytest.mark.parametrize("engine_settings", [EngineSettings(cgroups="none", max_processes=60)])
async def test_a_fork_bomb_without_control_groups(engine: LocalEngine, findings: Findings) -> None:
    if os.geteuid() != 0 or not findings.config.bwrap:
        pytest.skip("it is counted for a user, who must not be the one of these tests")
    bomb = "import os, signal\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
    seen, log = await run(
        engine, gang_of(PYTHON, "-c", f"{bomb}except BlockingIOError: print('held')\nprint(n < 60)")
    )
    assert (seen.reason, log) == (Reason.COMPLETED, "held\nTrue\n")


def test_a_chain_of_any_length_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proctree, "children", lambda pid: [pid + 1] if pid < 20_000 else [])
    assert list(proctree.descendants(0)) == list(range(1, 20_001))
