"""How processes end on this machine, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import EnvironmentPlan, ProcessPlan, TrainerSource
from cloud_ml.engines.local import cgroups, ledger
from cloud_ml.engines.local.cleanup.stale_processes import group_names
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.processes import proctree
from cloud_ml.settings import EngineSettings
from support.engines import findings_in, running
from support.gangs import gang_of, output, run, shell, when
from support.machine import spawner_pid

pytestmark = pytest.mark.anyio

PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)
MIB = 2**20


@pytest.fixture
def findings(shared_findings: Findings) -> Findings:
    return shared_findings


@pytest.fixture
def engine(shared_engine: LocalEngine) -> LocalEngine:
    """That of all tests here, which look at gangs of their own."""
    return shared_engine


@pytest.fixture
async def own_engine(tmp_path: Path, engine_settings: EngineSettings) -> AsyncIterator[LocalEngine]:
    """An engine with the settings that a test asks for."""
    async with running(findings_in(tmp_path / "engine", engine_settings)) as engine:
        yield engine


@pytest.fixture
def limited(findings: Findings) -> None:
    """Skip where no limits can be enforced."""
    if not findings.config.cgroups:
        pytest.skip("no control groups here: " + "; ".join(findings.missing))


async def test_exit_code_and_signal_are_exact(engine: LocalEngine) -> None:
    seen, _ = await run(engine, shell("exit 42"))
    assert (seen.reason, seen.processes[0].exit_code) == (Reason.NON_ZERO_EXIT, 42)
    seen, _ = await run(engine, shell("kill -SEGV $$"))
    assert (seen.reason, seen.processes[0].signal) == (Reason.SIGNALED, "SIGSEGV")
    seen, _ = await run(engine, shell("kill -40 $$"))  # a real-time signal has no name of its own
    assert (seen.reason, seen.processes[0].signal) == (Reason.SIGNALED, "40")


async def test_an_exit_code_that_looks_like_a_signal_stays_an_exit_code(
    engine: LocalEngine, findings: Findings
) -> None:
    if findings.config.bwrap and not findings.config.init:
        pytest.skip("; ".join(findings.missing))
    seen, _ = await run(engine, gang_of(PYTHON, "-c", "import sys; sys.exit(137)"))
    ended = seen.processes[0]
    assert (seen.reason, ended.exit_code, ended.signal) == (Reason.NON_ZERO_EXIT, 137, None)
    seen, _ = await run(engine, shell("kill -KILL $$"))
    ended = seen.processes[0]
    assert (seen.reason, ended.exit_code, ended.signal) == (Reason.SIGNALED, None, "SIGKILL")


async def test_a_command_that_does_not_exist_fails_with_its_name_in_the_log(
    engine: LocalEngine,
) -> None:
    seen, log = await run(engine, gang_of("no-such-program"))
    assert not seen.succeeded
    assert "no-such-program" in log


@pytest.mark.usefixtures("limited")
async def test_a_job_that_eats_memory_ends_as_oom_killed(engine: LocalEngine) -> None:
    eat = "b = []\nwhile True: b.append(bytearray(1 << 20))"
    seen, _ = await run(engine, gang_of(PYTHON, "-c", eat, memory_bytes=64 * MIB))
    assert (seen.reason, seen.message) == (Reason.OUT_OF_MEMORY, "OOMKilled: 64M exceeded")
    assert seen.processes[0].usage.memory_peak_bytes > 48 * MIB


_THRASH = """
import mmap, os, sys
limit = int(sys.argv[1])
def anonymous():
    return sum(int(line.split()[1]) << 10 for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous:"))
with open("big", "wb") as file:
    for _ in range(64):
        file.write(os.urandom(1 << 20))
    os.fsync(file.fileno())
with open("big", "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
held = []
while anonymous() < 0.957 * limit:
    held.append(b"x" * (1 << 17))
print("full", flush=True)
while True:
    for at in range(0, len(pages), 4096):
        pages[at]
"""


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("engine_settings", [EngineSettings(usage_period_s=0.3, thrash_s=1.5)])
async def test_a_job_that_only_thrashes_at_its_limit_ends_as_oom_killed(
    own_engine: LocalEngine, findings: Findings
) -> None:
    if findings.config.cgroups["version"] != "1":
        pytest.skip("version 2 of control groups kills where version 1 reclaims for ever")
    for _ in range(5):
        gang = gang_of(
            PYTHON, "-c", _THRASH, str(128 * MIB), memory_bytes=128 * MIB, wall_time_s=60
        )
        seen, log = await run(own_engine, gang)
        assert seen.reason is Reason.OUT_OF_MEMORY, log
        if seen.message != "OOMKilled: 128M exceeded":
            break  # else the kernel killed it, which is as right, but no thrashing
    assert seen.message == "OOMKilled: 128M exceeded (thrashing)", log


@pytest.mark.parametrize("engine_settings", [EngineSettings(disk_period_s=0.1)])
@pytest.mark.parametrize(
    "write",
    [
        "n = 0\nwhile True:\n  open(f'f{n}', 'wb').write(b'x' * MIB); n += 1",
        "import os\nf = open(os.environ['TMPDIR'] + '/f', 'wb', 0)\nwhile True: f.write(b'x' "
        "* MIB)",
        "import os\nf = open('f', 'wb', 0); os.unlink('f')\nwhile True: f.write(b'x' * MIB)",
    ],
    ids=["many files", "one file", "a deleted file"],
)
async def test_a_job_that_fills_its_disk_ends_with_that_reason(
    own_engine: LocalEngine, write: str
) -> None:
    code = f"MIB = 1 << 20\n{write}"
    seen, _ = await run(own_engine, gang_of(PYTHON, "-c", code, disk_bytes=32 * MIB))
    assert (seen.reason, seen.message) == (Reason.DISK_QUOTA, "DiskQuotaExceeded: 32M exceeded")


@pytest.mark.parametrize(
    "engine_settings", [EngineSettings(disk_period_s=0.1, disk_reserve="999999G")]
)
async def test_who_grows_on_a_nearly_full_disk_ends_and_who_does_not_goes_on(
    own_engine: LocalEngine,
) -> None:
    grows = gang_of(PYTHON, "-c", "f = open('f', 'wb', 0)\nwhile True: f.write(b'x' * (1 << 16))")
    rests = shell("while [ ! -e go ]; do sleep 0.02; done")
    await own_engine.ensure(rests)
    seen, _ = await run(own_engine, grows)
    assert seen.reason is Reason.DISK_QUOTA
    assert "less than 999999G is left" in seen.message
    (own_engine._ledger.work_folder(rests.key.job_uid) / "go").touch()
    ended = await when(own_engine, rests.key, lambda g: g.state is GangState.EXITED)
    assert ended.reason is Reason.COMPLETED


@pytest.mark.parametrize("engine_settings", [EngineSettings(cgroups="none")])
async def test_without_control_groups_memory_is_watched(own_engine: LocalEngine) -> None:
    eat = "import time\nb = bytearray(200 << 20)\nprint('full', flush=True)\ntime.sleep(600)"
    gang = gang_of(PYTHON, "-c", eat, memory_bytes=64 * MIB)
    seen, _ = await run(own_engine, gang)
    assert (seen.reason, seen.message) == (Reason.OUT_OF_MEMORY, "OOMKilled: 64M exceeded")
    assert seen.processes[0].usage.memory_peak_bytes > 64 * MIB


def _program(pid: int) -> str:
    """The name of a process's program; nothing for one that ended meanwhile."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@pytest.mark.parametrize("engine_settings", [EngineSettings(cgroups="none")])
async def test_without_control_groups_bubblewrap_itself_is_known_by_its_gang(
    own_engine: LocalEngine, findings: Findings
) -> None:
    """A supervisor that was killed while bubblewrap set up a sandbox left a process that was found
    by nobody, and ran on beside the next attempt.
    """
    if not findings.config.bwrap:
        pytest.skip("no bubblewrap")
    gang = shell("while [ ! -e go ]; do sleep 0.02; done")
    await own_engine.ensure(gang)
    await when(own_engine, gang.key, lambda g: g.state is GangState.RUNNING)
    found = proctree.find_marked(f"CLOUDML_GANG={gang.key}")
    assert "bwrap" in [_program(pid) for pid in found]
    (own_engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    assert (await when(own_engine, gang.key, lambda g: g.state.over)).succeeded


@pytest.mark.parametrize("engine_settings", [EngineSettings(cgroups="none")])
async def test_the_memory_of_an_evaluator_ends_the_evaluator_only(own_engine: LocalEngine) -> None:
    eat = "import time\nb = bytearray(200 << 20)\ntime.sleep(600)"
    waits = "while [ ! -e go ]; do sleep 0.02; done"
    gang = shell(waits)
    hungry = ProcessPlan("evaluator", 0, (PYTHON, "-c", eat), memory_bytes=64 * MIB)
    gang = dataclasses.replace(gang, processes=(*gang.processes, hungry))
    await own_engine.ensure(gang)
    seen = await when(
        own_engine, gang.key, lambda g: g.state.over or any(p.reason for p in g.processes)
    )
    assert [one.reason for one in seen.processes] == [None, Reason.OUT_OF_MEMORY]
    (own_engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    ended = await when(own_engine, gang.key, lambda g: g.state.over)
    assert ended.succeeded, ended.message


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("then", ["exec sleep 600", "exit 0"])
async def test_a_launcher_fails_because_a_process_of_another_task_ran_out_of_memory(
    then: str, engine: LocalEngine
) -> None:
    """As ``mpiexec`` does: the kernel kills a process of MPI, and the task's own one lives on, or
    ends well.
    """
    gang = shell("until [ -e go ]; do sleep 0.02; done; exit 9")
    eat = "b = []\nwhile True: b.append(bytearray(1 << 20))"
    hungry = f"{PYTHON} -c '{eat}'; echo killed; {then}"
    worker = ProcessPlan("worker", 0, ("sh", "-c", hungry), memory_bytes=64 * MIB)
    gang = dataclasses.replace(
        gang, processes=(*gang.processes, worker), completes=("master-0",), launcher="master-0"
    )
    await engine.ensure(gang)
    if then == "exit 0":
        await when(engine, gang.key, lambda seen: any(p.reason for p in seen.processes))
    else:
        await _printed(engine, gang, "killed", process="worker-0")
    (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    seen = await when(engine, gang.key, lambda seen: seen.state.over)
    assert (seen.reason, seen.message) == (Reason.OUT_OF_MEMORY, "OOMKilled: 64M exceeded")
    reasons = [one.reason for one in seen.processes]
    assert reasons == [Reason.CANCELLED, Reason.OUT_OF_MEMORY]


@pytest.mark.usefixtures("limited")
async def test_a_fork_bomb_harms_only_itself(engine: LocalEngine) -> None:
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: print('no more', flush=True); os._exit(3)"
    gang = gang_of(PYTHON, "-c", bomb, wall_time_s=3)
    seen, log = await run(engine, gang)
    assert "no more" in log
    assert seen.state is GangState.EXITED
    assert proctree.find_marked(f"CLOUDML_GANG={gang.key}") == []


async def test_daemons_and_grandchildren_are_gone_at_the_end(engine: LocalEngine) -> None:
    daemonise = "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &) ; sleep 600 & nohup sleep 600 & echo up"  # noqa: E501
    gang = shell(daemonise)
    seen, log = await run(engine, gang)
    assert seen.succeeded
    assert log.splitlines()[-1] == "up"
    assert proctree.find_marked(f"CLOUDML_GANG={gang.key}") == []


async def test_the_time_limit_is_kept_and_named(engine: LocalEngine) -> None:
    seen, _ = await run(engine, shell("sleep 600", wall_time_s=1))
    assert seen.reason is Reason.TIME_LIMIT
    assert "1 s" in seen.message


async def test_a_stop_is_polite_first(engine: LocalEngine) -> None:
    gang = shell("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    await engine.ensure(gang)
    await _printed(engine, gang, "up")
    await engine.stop(gang.key, grace_s=30.0)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert seen.reason is Reason.CANCELLED
    assert seen.processes[0].message == "stopped, and exited with code 0"
    assert await output(engine, gang.key) == "up\nsaved\n"


async def test_who_is_stopped_last_is_told_even_if_the_others_do_not_end(
    engine: LocalEngine,
) -> None:
    """The first ends when the last has left: it waits for that in vain until time is short."""
    gang = shell("trap 'touch left; exit' TERM; touch ready; while :; do sleep 0.05; done")
    waits = "until [ -e left ]; do sleep 0.05; done; exit"
    first = ("sh", "-c", f"trap '{waits}' TERM; touch ready-too; while :; do sleep 0.05; done")
    ready = ("sh", "-c", "until [ -e ready -a -e ready-too ]; do sleep 0.05; done")
    gang = dataclasses.replace(
        gang,
        processes=(
            *gang.processes,
            ProcessPlan("worker", 0, first),
            ProcessPlan("client", 0, ready),
        ),
        completes=("client-0",),
        stopped_last=("master-0",),
        grace_s=12.0,
    )
    seen, _ = await run(engine, gang)
    assert seen.succeeded, seen.message
    assert [(one.exit_code, one.signal) for one in seen.processes] == [(0, None)] * 3


async def test_prepare_and_finish_commands_run_around_the_code(engine: LocalEngine) -> None:
    gang = shell(
        "cat made", prepare_command="echo before; echo made > made", finish_command="echo after"
    )
    seen, log = await run(engine, gang)
    assert seen.succeeded
    assert log == "before\nmade\nafter\n"


@pytest.mark.parametrize(("serves", "log"), [(True, "up\nbye\ntidied\n"), (False, "up\nbye\n")])
async def test_the_finish_command_of_what_serves_runs_when_it_is_stopped(
    engine: LocalEngine, serves: bool, log: str
) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    gang = shell(script, serves=serves, finish_command="echo tidied")
    await engine.ensure(gang)
    await _printed(engine, gang, "up")
    await engine.stop(gang.key, grace_s=30.0)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert (seen.reason, await output(engine, gang.key)) == (Reason.CANCELLED, log)


async def test_the_finish_command_of_what_serves_has_the_time_that_the_stop_grants(
    engine: LocalEngine,
) -> None:
    gang = shell(
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done",
        serves=True,
        finish_command="sleep 600",
    )
    await engine.ensure(gang)
    await _printed(engine, gang, "up")
    await engine.stop(gang.key, grace_s=1.0)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert (seen.reason, proctree.find_marked(f"CLOUDML_GANG={gang.key}")) == (Reason.CANCELLED, [])


async def test_a_failing_prepare_command_is_the_reason(engine: LocalEngine) -> None:
    seen, log = await run(engine, shell("echo never", prepare_command="echo trouble; exit 7"))
    assert seen.reason is Reason.PREPARE_FAILED
    assert "code 7" in seen.message
    assert log == "trouble\n"


async def test_output_past_the_limit_loses_its_middle_and_the_job_goes_on(
    engine: LocalEngine,
) -> None:
    seen, log = await run(
        engine, shell("i=0; while [ $i -lt 60000 ]; do echo line $i; i=$((i+1)); done")
    )
    assert seen.succeeded
    lines = log.splitlines()
    assert lines[0] == "line 0"
    assert lines[-1] == "line 59999"
    assert len(log) < 300 * 1024
    assert any("dropped here" in line for line in lines)


async def test_binary_output_is_kept_as_it_is(engine: LocalEngine) -> None:
    gang = shell(r"printf '\000\377\376ok'")
    await run(engine, gang)
    assert b"".join([c async for c in engine.logs(gang.key, "master-0")]) == b"\x00\xff\xfeok"


async def test_the_last_lines(engine: LocalEngine) -> None:
    gang = shell("for i in 1 2 3 4 5; do echo $i; done")
    await run(engine, gang)
    assert b"".join([c async for c in engine.logs(gang.key, "master-0", lines=2)]) == b"4\n5\n"
    assert b"".join([c async for c in engine.logs(gang.key, "master-0", lines=0)]) == b""
    assert (
        b"".join([c async for c in engine.logs(gang.key, "master-0", lines=99)])
        == b"1\n2\n3\n4\n5\n"
    )


async def test_the_working_folder_is_kept_over_attempts(engine: LocalEngine) -> None:
    first = shell("echo step-7 > checkpoint; exit 1")
    await run(engine, first)
    _, log = await run(engine, shell("cat checkpoint", uid=first.key.job_uid, attempt=2))
    assert log == "step-7\n"


async def test_a_killed_supervisor_takes_its_processes_along(engine: LocalEngine) -> None:
    gang = shell("trap '' TERM HUP; echo up; sleep 600 & sleep 600")
    await engine.ensure(gang)
    await _printed(engine, gang, "up")
    gate = engine._ledger.gate(gang.key)  # the one place that knows the supervisor's process id
    os.kill(gate.pid, signal.SIGKILL)
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert (seen.state, seen.reason) == (GangState.LOST, Reason.SUPERVISOR_LOST)
    await _gone(gang.key)


async def test_nothing_of_an_attempt_is_left_that_was_lost_with_its_machine(
    own_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment and temporary folder stayed as long as the job."""
    gang = shell("echo up; exec sleep 600")
    await own_engine.ensure(gang)
    await _printed(own_engine, gang, "up")
    os.kill(spawner_pid(Path(own_engine._config.root)), signal.SIGKILL)
    os.kill(own_engine._ledger.gate(gang.key).pid, signal.SIGKILL)
    await _gone(gang.key)
    folder = own_engine._ledger.attempt_folder(gang.key)
    assert (folder / "tmp").exists()
    monkeypatch.setattr(ledger, "boot_id", lambda: "another boot")
    for _ in range(2):  # also for whoever asks later
        (seen,) = await own_engine.observed(gang.key.job_uid)
        assert (seen.state, seen.reason) == (GangState.LOST, Reason.NODE_LOST)
        assert not (folder / "tmp").exists()


async def test_jobs_survive_the_spawner_and_a_new_one_takes_over(
    engine: LocalEngine, findings: Findings
) -> None:
    gang = shell("echo up; while [ ! -e go ]; do sleep 0.05; done; echo done")
    await engine.ensure(gang)
    await _printed(engine, gang, "up")
    pid = spawner_pid(Path(findings.config.root))
    os.kill(pid, signal.SIGKILL)
    other = shell("echo hello")
    seen, log = await run(engine, other)
    assert (seen.succeeded, log) == (True, "hello\n")
    hierarchy, groups = (
        cgroups.restore(dict(findings.config.cgroups)),
        group_names(engine._ledger, gang.key),
    )
    assert hierarchy is None or set(groups) <= set(hierarchy.names())
    (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    seen = await when(engine, gang.key, lambda g: g.state.over)
    assert seen.succeeded
    assert await output(engine, gang.key) == "up\ndone\n"
    async with asyncio.timeout(60):  # a second until the new one looks
        while hierarchy is not None and set(groups) & set(hierarchy.names()):
            await asyncio.sleep(0.05)


async def test_what_a_killed_spawner_has_made_goes_without_a_job(own_engine: LocalEngine) -> None:
    config = own_engine._config
    hierarchy = cgroups.restore(dict(config.cgroups))
    before = spawner_pid(Path(config.root))
    assert before is not None
    own = f"task-{before}-"

    def left() -> list[str]:
        return [name for name in hierarchy.names() if name.startswith(own)] if hierarchy else []

    async with asyncio.timeout(60):
        while hierarchy is not None and not left():
            await asyncio.sleep(0.01)
        following = asyncio.create_task(anext(own_engine.changes()))  # as a server does
        os.kill(before, signal.SIGKILL)
        while spawner_pid(Path(config.root)) in (None, before) or left():
            await asyncio.sleep(0.01)
        following.cancel()


async def test_a_follower_sees_lines_as_they_come(engine: LocalEngine) -> None:
    gang = shell("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    await engine.ensure(gang)
    await when(engine, gang.key, lambda g: g.state is GangState.RUNNING)
    chunks = engine.logs(gang.key, "master-0", follow=True)
    assert await asyncio.wait_for(anext(chunks), 60) == b"one\n"
    (engine._ledger.work_folder(gang.key.job_uid) / "go").touch()
    assert await asyncio.wait_for(anext(chunks), 60) == b"two\n"
    assert [chunk async for chunk in chunks] == []


async def test_a_share_of_a_core_is_a_cap(engine: LocalEngine, limited: None) -> None:
    gang = gang_of(
        PYTHON,
        "-c",
        "import time\nt = time.time()\nwhile time.time() < t + 2: pass",
        cpu_millis=200,
    )
    seen, _ = await run(engine, gang)
    assert seen.processes[0].usage.cpu_seconds < 0.8, (
        "a fifth of two seconds, and what the start takes"
    )


async def test_usage_is_sampled(engine: LocalEngine, limited: None) -> None:
    gang = gang_of(
        PYTHON, "-c", "import time\nb = bytearray(40 << 20)\nwhile time.process_time() < 1: pass"
    )
    seen, _ = await run(engine, gang)
    assert seen.processes[0].usage.cpu_seconds > 0.9
    points = await engine.usage(gang.key)
    assert max(point.memory_bytes for point in points) > 30 * MIB
    assert max(point.cores for point in points) > 0.05


async def _printed(engine: LocalEngine, gang, text: str, process: str = "master-0") -> None:
    async with asyncio.timeout(30):
        while text not in await output(engine, gang.key, process):
            await asyncio.sleep(0.01)


async def _gone(key) -> None:
    async with asyncio.timeout(60):
        while proctree.find_marked(f"CLOUDML_GANG={key}"):
            await asyncio.sleep(0.02)


async def test_folders_deeper_than_any_path_are_removed_like_others(
    engine: LocalEngine, request: pytest.FixtureRequest
) -> None:
    dig = """import os
for top in ("HOME", "TMPDIR"):
    os.chdir(os.environ[top])
    for _ in range(1050):
        os.mkdir("d")
        os.chdir("d")
"""
    gang = gang_of(PYTHON, "-c", dig)
    folder = engine._ledger.jobs / gang.key.job_uid
    request.addfinalizer(
        lambda: subprocess.run(["rm", "-rf", str(folder)], check=True)
    )  # pytest's own broom cannot
    seen, _ = await run(engine, gang)
    assert seen.reason is Reason.COMPLETED
    assert folder.exists()
    async with asyncio.timeout(60):
        while (engine._ledger.attempt_folder(gang.key) / "tmp").exists():
            await asyncio.sleep(0.02)
    await engine.forget(gang.key.job_uid)
    assert not folder.exists()


async def test_the_first_output_is_a_stage_that_is_told_while_the_job_runs(
    engine: LocalEngine,
) -> None:
    gang = shell("echo up; sleep 600")
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda gang: "output" in gang.stages)
    assert (seen.state, list(seen.stages)) == (
        GangState.RUNNING,
        ["claimed", "environment", "started", "output"],
    )
    await engine.stop(gang.key, 0)
    ended = await when(engine, gang.key, lambda gang: gang.state.over)
    assert list(ended.stages) == [*seen.stages, "ended"]


async def test_a_prepare_command_that_takes_long_is_told_while_it_runs(engine: LocalEngine) -> None:
    gang = shell("true", prepare_command="sleep 600")
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda gang: "environment" in gang.stages)
    assert seen.state is GangState.STAGING
    await engine.stop(gang.key, 0)
    await when(engine, gang.key, lambda gang: gang.state.over)


async def test_a_start_that_takes_long_is_told_before_it_is_over_and_can_be_stopped(
    engine: LocalEngine, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "slow.whl")  # whoever reads it waits for somebody who writes
    trainer = TrainerSource(str(tmp_path / "slow.whl"), "slow.whl")
    gang = gang_of("python", environment=EnvironmentPlan(trainer))
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda gang: "claimed" in gang.stages)
    assert (seen.state, list(seen.stages)) == (GangState.STAGING, ["claimed"])
    await engine.stop(gang.key, 0)
    ended = await when(engine, gang.key, lambda gang: gang.state.over)
    assert (ended.reason, list(ended.stages)) == (Reason.CANCELLED, ["claimed", "ended"])
