"""How a job tries to outlive its end: in the sandbox, behind Landlock, and with nothing but
control groups.
"""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.settings import EngineSettings
from support.attacks import PYTHON
from support.gangs import gang_of, printed, run, when

pytestmark = pytest.mark.anyio

_LOCK = """
import fcntl, os, signal, sys, time
lock = os.open('lock', os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
def wait():
    while os.path.exists('lock'): time.sleep(0.05)
    os._exit(0)
"""
_COMET = """
if os.fork(): wait()
generation = 0
while os.path.exists('lock'):
    if os.fork(): os._exit(0)
    os.setsid()
    generation += 1
    if generation == 3: print("up", flush=True)
"""
_STAYING = {
    "a process that is always another one": _COMET,
    "one that is stopped": "print('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
    "one that ignores all it can": (
        "for n in range(1, 65):\n"
        "    if n not in (9, 19, 32, 33): signal.signal(n, signal.SIG_IGN)\n"
        "print('up', flush=True)\nwait()"
    ),
    "a daemon that lets go of everything": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    os.closerange(0, lock); os.closerange(lock + 1, 99); os.environ.clear(); wait()\n"
        "os.wait(); print('up', flush=True)\nwait()"
    ),
}


@pytest.fixture(params=["auto", "landlock", "none"])
def engine_settings(request: pytest.FixtureRequest) -> EngineSettings:
    return EngineSettings(sandbox=request.param, max_processes=200)


_ORPHANS = """
import os, time
def fork():
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.01)
for _ in range(600):
    if fork() == 0:
        fork()
        os._exit(0)
    os.wait()
print("through")
"""


async def test_the_dead_of_a_job_do_not_fill_its_limit(engine: LocalEngine) -> None:
    """Orphans by the hundred, one after the other, where 200 processes are allowed."""
    seen, log = await run(engine, gang_of(PYTHON, "-c", _ORPHANS, wall_time_s=60))
    assert (seen.reason, log) == (Reason.COMPLETED, "through\n")


async def test_nothing_outlives_a_stop(engine: LocalEngine) -> None:
    """Whoever lives on holds the lock: no look at the process table could be quick enough."""
    gangs = {way: gang_of(PYTHON, "-c", _LOCK + program) for way, program in _STAYING.items()}
    for gang in gangs.values():
        await engine.ensure(gang)
    for way, gang in gangs.items():
        await printed(engine, gang.key, "up")
        assert not _free(_lock_of(engine, gang.key.job_uid)), f"{way}: it does not even start"
        await engine.stop(gang.key, 0)
    for way, gang in gangs.items():
        seen = await when(engine, gang.key, lambda found: found.state.over)
        assert seen.reason is Reason.CANCELLED, way
        assert _free(_lock_of(engine, gang.key.job_uid)), way


@pytest.mark.parametrize("way", [way for way in _STAYING if "fork" in _STAYING[way]])
def test_ending_the_first_process_is_not_enough(tmp_path: Path, way: str) -> None:
    """The control."""
    with subprocess.Popen(
        [PYTHON, "-c", _LOCK + _STAYING[way]], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        program.kill()
        program.wait()
        try:
            assert not _free(tmp_path / "lock")
        finally:
            (tmp_path / "lock").unlink()


def _lock_of(engine: LocalEngine, uid: str) -> Path:
    return engine._ledger.work_folder(uid) / "lock"


def _free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
