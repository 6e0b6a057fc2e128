"""Interpreters that import ahead: used by the gang that fits, inside the same fence, and never
missed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import textwrap
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_ml import failpoints
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import EnvironmentPlan, Gang, Mount, TrainerSource
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger, process_start
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.engines.local.processes import proctree
from cloud_ml.settings import EngineSettings
from support.environments import pack
from support.gangs import gang_of, run
from support.job_callers import served
from support.machine import spawner_pid

pytestmark = pytest.mark.anyio

_LIMIT_S = 60.0
_LIMITS = ("memory.limit_in_bytes", "cpu.cfs_quota_us", "memory.max", "cpu.max")
_LIBRARY = """
import os, random, sys, time
BORN, LUCK = time.time(), random.random()
AT_IMPORT = dict(os.environ)
open(os.path.expanduser("~/.slowlib"), "w").write("left by the import")
print("slowlib speaks", file=sys.stderr)
"""
_TRAINER = """
import json, os, socket, sys, time
BEGUN = time.time()
import helper, slowlib
print(json.dumps({
    "ahead": slowlib.BORN < BEGUN - 0.0005 and "slowlib" in sys.modules and BEGUN - slowlib.BORN,
    "argv": sys.argv[1:], "program": os.path.basename(sys.argv[0]), "name": __name__, "spec": __spec__.name,
    "cwd": os.getcwd(), "path": sys.path, "prefix": sys.prefix, "executable": sys.executable,
    "environment": dict(os.environ), "host": socket.gethostname(), "home": sorted(os.listdir(".")),
    "tmp": os.listdir("/tmp"), "user": os.getuid(), "luck": slowlib.LUCK,
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "links": [os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in range(3)],
    "status": [l for l in open("/proc/self/status") if l.startswith(("Cap", "NoNewPrivs", "Seccomp:"))],
    "mounts": sorted({l.split()[4] + " " + l.split()[5].split(",")[0] for l in open("/proc/self/mountinfo")}),
    "processes": sorted(int(p) for p in os.listdir("/proc") if p.isdigit()),
    "groups": open("/proc/self/cgroup").read(), "threads": len(os.listdir("/proc/self/task")),
    "signals": [l for l in open("/proc/self/status") if l.startswith(("SigBlk", "SigIgn"))],
    "umask": [l for l in open("/proc/self/status") if l.startswith("Umask")],
    "environ_of_modules": sorted(k for k in slowlib.AT_IMPORT if k.startswith("CLOUDML_")),
    "session": os.getsid(0) == os.getpid() or os.getsid(0),
}))
exec(os.environ.get("CLOUDML_TEST_CODE", ""))
"""


_HOSTILE = """
import ctypes, signal, subprocess
libc, done = ctypes.CDLL(None, use_errno=True), {}
for pid in {1, os.getppid()}:
    done[f'trace {pid}'] = libc.ptrace(16, pid, 0, 0) == 0
    for way in ('mem', 'root', 'fd', 'environ'):
        try:
            path = f'/proc/{pid}/{way}'
            done[f'open {way} of {pid}'] = bool(os.listdir(path) if way in ('root', 'fd') else open(path, 'r+b'))
        except OSError:
            pass
    try:
        os.kill(pid, signal.SIGSTOP)
    except OSError:
        pass
for fd in range(3, 1024):
    try:
        os.write(fd, b'{"loaded": ["json"]}\\n{"ok": true}\\n')
        done[f'descriptor {fd}'] = True
    except OSError:
        pass
for module in (slowlib, os, json):
    for target in (module.__file__, os.path.join(os.path.dirname(module.__file__), 'planted.py')):
        try:
            open(target, 'a').write('LUCK = 666')
            done[f'write {target}'] = True
        except OSError:
            pass
slowlib.LUCK = 666
for place in ('/tmp', os.path.expanduser('~'), '/dev/shm', sys.prefix):
    try:
        open(os.path.join(place, 'slowlib.py'), 'w').write('LUCK = BORN = 666; AT_IMPORT = {}')
    except OSError:
        pass
subprocess.Popen(['sleep', '600'], start_new_session=True)
print('{"loaded": []}')
print('hostile', {what for what, worked in done.items() if worked})
"""
"""What a job does that came to life in an interpreter that had imported ahead. It names what it
succeeded in.
"""


@pytest.fixture
def engine_settings() -> EngineSettings:
    return EngineSettings(zygotes=2, network="none", zygote_memory="100M", zygote_import_s=20.0)


@pytest.fixture
def findings(tmp_path: Path, engine_settings: EngineSettings) -> Findings:
    root = tmp_path / "engine"
    Ledger(root).create()
    (root / "r").mkdir()
    _offer(root / "r", tmp_path / "index")
    uv = Path(sys.executable).with_name("uv")
    found = probe(
        engine_settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=uv
    )
    if not found.config.zygotes.most:
        pytest.skip("; ".join(found.missing))
    return found


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Gang]:
    def made(
        code: str = "", *words: str, files: dict[str, str] | None = None, **changes: Any
    ) -> Gang:
        name = f"{len(list(tmp_path.iterdir()))}.whl"
        content = {"work.py": _TRAINER, "helper.py": "", **(files or {})}
        wheel = _wheel(tmp_path / name, "trainer", content)
        plan = EnvironmentPlan(
            TrainerSource(str(wheel), "trainer-1.0-py3-none-any.whl"), "slow", None, "work"
        )
        all_variables = {"CLOUDML_TEST_CODE": code, **changes.pop("variables", {})}
        return gang_of(
            "python",
            "-m",
            "work",
            *words,
            environment=plan,
            variables=all_variables,
            network="none",
            **changes,
        )

    return made


async def test_the_next_gang_of_a_kind_finds_its_imports_made(
    engine: LocalEngine, trainer: Any
) -> None:
    seen, log = await run(engine, trainer())
    assert seen.succeeded, log
    assert "imported" not in seen.stages
    await _waits(engine)
    seen, log = await run(
        engine, trainer("", "--epochs", "3", files={"helper.py": "# another version"})
    )
    assert seen.succeeded, log
    assert "imported" in seen.stages
    report = _report(log)
    assert report["ahead"] > 0
    assert report["argv"] == ["--epochs", "3"]
    assert "slowlib speaks\n" in log  # what the import said is in the log, as ever


_CALL = """
with socket.create_connection(("127.0.0.1", 8471), 60) as connection:
    connection.sendall(b"hello\\n")
    print("answer:", connection.makefile().readline())
"""


async def test_it_calls_the_server_as_other_jobs_do(engine: LocalEngine, trainer: Any) -> None:
    async with served(engine):
        await run(engine, trainer())
        await _waits(engine)
        gang = trainer(_CALL)
        seen, log = await run(engine, gang)
    assert "imported" in seen.stages, log
    assert f"answer: 1 {gang.key.job_uid} hello" in log


async def test_a_folder_finds_its_imports_made_too(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "code" / "src").mkdir(parents=True)
    (tmp_path / "code" / "src" / "work.py").write_text(_TRAINER)
    (tmp_path / "code" / "src" / "helper.py").touch()
    code = pack(tmp_path / "code", tmp_path / "code.tar.gz", ".")
    plan = EnvironmentPlan(TrainerSource(str(code), "code.tar.gz"), "slow", None, "work")
    seen, log = await run(engine, gang_of("python", "-m", "work", environment=plan, network="none"))
    ordinary = _report(log)
    await _waits(engine)
    seen, log = await run(engine, gang_of("python", "-m", "work", environment=plan, network="none"))
    assert "imported" in seen.stages, log
    ahead = _report(log)
    assert (ahead["cwd"], ahead["home"]) == ("/work/code", ["src"])
    assert ahead["path"] == ordinary["path"]
    assert ahead["path"].index("/work/code/src") == ahead["path"].index("/work/code", 1) + 1


async def test_the_code_cannot_tell_the_difference(
    engine: LocalEngine, trainer: Any, tmp_path: Path
) -> None:
    mounts = []
    for name, writable in (("read", False), ("write", True)):
        (tmp_path / name).mkdir(mode=0o755)
        mounts.append(Mount(name, f"/storage/team/{name}", writable))
    _, log = await run(engine, trainer("", "a", "b", mounts=tuple(mounts), labels={"job": "mine"}))
    ordinary = _report(log)
    await _waits(engine)
    seen, log = await run(
        engine, trainer("", "a", "b", mounts=tuple(mounts), labels={"job": "mine"})
    )
    ahead = _report(log)
    assert "imported" in seen.stages, log
    for report in (ordinary, ahead):
        report["mounts"] = sorted(_normal(report["mounts"]))
    assert ahead["mounts"] == ordinary["mounts"]
    own = ("ahead", "luck", "environment", "groups", "path", "environ_of_modules")
    assert {k: v for k, v in ahead.items() if k not in own} == {
        k: v for k, v in ordinary.items() if k not in own
    }
    assert _normal(ahead["path"]) == _normal(ordinary["path"])
    differs = {n for n, v in ahead["environment"].items() if ordinary["environment"].get(n) != v}
    assert differs <= {"CLOUDML_GANG", "PATH"}
    assert set(ahead["environment"]) == set(ordinary["environment"])


async def test_a_gang_of_another_kind_starts_the_ordinary_way(
    engine: LocalEngine, trainer: Any
) -> None:
    """Each of these would see imports that were made for others, or with other variables."""
    await run(engine, trainer())
    await _waits(engine)
    others: dict[str, Any] = {
        "variables of its own": {"variables": {"SLOW_MODE": "1"}},
        "a module that hides one": {"files": {"slowlib.py": "BORN = LUCK = 1e12; AT_IMPORT = {}"}},
        "another organisation": {"tenant": 2},
    }
    for what, changes in others.items():
        seen, log = await run(engine, trainer(**changes))
        assert (seen.succeeded, "imported" in seen.stages) == (True, False), f"{what}: {log}"
        if what != "another organisation":
            await run(engine, trainer())
            await _waits(engine)


async def test_one_serves_one_gang_and_nothing_of_the_import_is_shared(
    engine: LocalEngine, trainer: Any
) -> None:
    await run(engine, trainer())
    luck = set()
    for _ in range(2):
        await _waits(engine)
        gangs = [trainer(), trainer()]
        ends = await asyncio.gather(*(run(engine, gang) for gang in gangs))
        assert sum("imported" in seen.stages for seen, _ in ends) == 1
        luck |= {_report(log)["luck"] for _, log in ends}
    assert len(luck) == 4


async def test_the_end_of_the_gang_is_the_end_of_everything_in_it(
    engine: LocalEngine, trainer: Any
) -> None:
    """Of the supervisor's processes there may be new ones: it gets a seat for its next gang at
    once.
    """
    await run(engine, trainer())
    await _waits(engine)
    code = """import subprocess
left = subprocess.Popen(['sleep', '600'], start_new_session=True)
while b'sleep' not in open(f'/proc/{left.pid}/cmdline', 'rb').read(): pass
print('CLOUDML_GANG=' in open(f'/proc/{left.pid}/environ').read() and 'it sleeps')
sys.exit(3)"""
    gang = trainer(code)
    seen, log = await run(engine, gang)
    assert "imported" in seen.stages, log
    assert (seen.processes[0].exit_code, "it sleeps\n" in log) == (3, True), log
    assert proctree.find_marked(f"CLOUDML_GANG={gang.key}") == []


async def test_its_limits_are_the_gangs_when_that_begins(engine: LocalEngine, trainer: Any) -> None:
    await run(engine, trainer())
    await _waits(engine)
    seen, log = await run(engine, trainer("b = bytearray(150 << 20); print(len(b))"))
    assert (seen.succeeded, "imported" in seen.stages) == (True, True), (
        log
    )  # more than one that waits may have
    gang = trainer("b = bytearray(150 << 20)", memory_bytes=64 << 20)
    await _waits(engine)
    seen, log = await run(engine, gang)
    assert "imported" in seen.stages, log
    assert seen.reason is Reason.OUT_OF_MEMORY


async def test_one_that_waits_is_held_to_its_limits(
    engine: LocalEngine, findings: Findings, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    hierarchy = cgroups.restore(dict(findings.config.cgroups))
    assert hierarchy is not None
    inside = _innermost(supervisor)
    groups = [hierarchy.group(name) for name in hierarchy.names()]
    group = next(group for group in groups if inside in group.processes())
    procs_files = [Path(door).parent for door in group.procs_files()]
    limits = {
        name: (door / name).read_text().split()[0]
        for door in procs_files
        for name in _LIMITS
        if (door / name).exists()
    }
    assert str(100 << 20) in limits.values()  # memory
    assert {"5000"} & set(limits.values())  # cpu: a twentieth of a core
    assert supervisor not in group.processes()


async def test_one_that_is_killed_costs_the_next_gang_only_time(
    engine: LocalEngine, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    os.kill(_innermost(supervisor), signal.SIGKILL)
    await _until(lambda: process_start(supervisor) is None)
    seen, log = await run(engine, trainer())
    assert seen.succeeded, log


async def test_one_that_stops_answering_costs_the_next_gang_only_time(
    engine: LocalEngine, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    os.kill(_innermost(supervisor), signal.SIGSTOP)
    seen, log = await run(engine, trainer())
    assert (seen.succeeded, "imported" in seen.stages) == (True, False), log


_SHORT = EngineSettings(zygotes=1, network="none", zygote_memory="100M", zygote_import_s=1.0)


@pytest.mark.parametrize("engine_settings", [_SHORT], ids=[""])
@pytest.mark.parametrize(
    "library",
    [
        "import os; os._exit(1)",
        "import time; time.sleep(600)",
        "x = [bytearray(1 << 20) for _ in range(300)]",
    ],
    ids=["ends", "hangs", "swells"],
)
async def test_an_import_that_does_not_end_well_is_not_tried_again(
    engine: LocalEngine, findings: Findings, trainer: Any, tmp_path: Path, library: str
) -> None:
    """It is imported ahead only: the gang itself does not."""
    _offer(Path(findings.config.runtimes_dir), tmp_path / "index", "slow", library, "unfit")
    seen, log = await run(engine, trainer())
    assert seen.succeeded, log
    log_file = Path(findings.config.root, "spawner.log")
    await _until(lambda: "no zygote" in log_file.read_text())
    seen, log = await run(engine, trainer())
    assert (seen.succeeded, "imported" in seen.stages) == (True, False), log
    assert log_file.read_text().count("no zygote") == 1


async def test_a_sandbox_that_was_tampered_with_is_not_entered(
    engine: LocalEngine, findings: Findings, trainer: Any, tmp_path: Path
) -> None:
    """Packages of a tenant may run code when they are imported: it is not led outside, nor is
    the gang confused.
    """
    _offer(
        Path(findings.config.runtimes_dir),
        tmp_path / "index",
        "slow",
        "import os; os.symlink('/etc', '/fds')",
        "bad",
    )
    bucket = tmp_path / "bucket"
    bucket.mkdir(mode=0o755)
    mounts = (Mount("bucket", "/fds/bucket", writable=False),)
    await run(engine, trainer(mounts=mounts))
    await _waits(engine)
    seen, log = await run(engine, trainer(mounts=mounts))
    assert (seen.succeeded, "imported" in seen.stages) == (True, False), log
    assert "cannot be shown" in Path(findings.config.root, "spawner.log").read_text()


async def test_a_hostile_gang_changes_nothing_for_the_next_one(
    engine: LocalEngine, trainer: Any
) -> None:
    _, log = await run(engine, trainer())
    ordinary = _report(log)
    await _waits(engine)
    hostile = trainer(_HOSTILE)
    seen, log = await run(engine, hostile)
    assert "imported" in seen.stages, log
    assert seen.succeeded, log
    assert "hostile set()" in log, "it succeeded in nothing"
    assert proctree.find_marked(f"CLOUDML_GANG={hostile.key}") == []
    for changes in ({}, {"tenant": 2}):
        if not changes:
            await _waits(engine)
        seen, log = await run(engine, trainer(**changes))
        assert (seen.succeeded, "imported" in seen.stages) == (True, not changes), log
        report = _report(log)
        assert report["luck"] != 666
        same = (
            "home",
            "tmp",
            "descriptors",
            "links",
            "status",
            "processes",
            "signals",
            "umask",
            "argv",
        )
        assert {name: report[name] for name in same} == {name: ordinary[name] for name in same}


@pytest.mark.parametrize(
    "forged",
    [
        '{"loaded": []}\\n' * 9,
        "[" * 200_000 + "\\n",
    ],
    ids=["many", "nested"],
)
async def test_messages_that_an_import_forges_cost_at_most_its_own_gang(
    engine: LocalEngine, findings: Findings, trainer: Any, tmp_path: Path, forged: str
) -> None:
    """It finds the line to its supervisor, speaks on it, and has a child keep it."""
    library = f"""
import os, random, socket, subprocess, sys, time
BORN, LUCK, AT_IMPORT = time.time(), random.random(), dict(os.environ)
if len(sys.argv) > 1 and sys.argv[1].isdigit():
    line = int(sys.argv[1])
    os.set_inheritable(line, True)
    subprocess.Popen(["sleep", "600"], close_fds=False)
    os.set_blocking(line, False)
    try:
        os.write(line, b'{forged}')
    except OSError:
        pass
    os.set_blocking(line, True)
"""
    _offer(Path(findings.config.runtimes_dir), tmp_path / "index", "slow", library, "forging")
    await run(engine, trainer())
    log_file = Path(findings.config.root, "spawner.log")
    if "loaded" in forged:  # which of its messages is read first decides whether it is believed
        await _waits_or_failed(engine, log_file)
    else:
        await _until(lambda: "no zygote" in log_file.read_text())
    gang = trainer()
    await run(engine, gang)  # its own organisation's code did that: whatever becomes of it, it ends
    assert proctree.find_marked(f"CLOUDML_GANG={gang.key}") == []
    seen, log = await run(engine, trainer("", "theirs", tenant=2))
    assert (seen.succeeded, _report(log)["argv"]) == (True, ["theirs"]), log


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where orders of failpoints are put. To be asked for before ``engine``."""
    folder = tmp_path / "orders"
    folder.mkdir()
    monkeypatch.setenv(failpoints.FOLDER, str(folder))
    monkeypatch.setenv(failpoints.ALLOWED, failpoints.WORD)
    return folder


async def test_a_gang_told_to_an_interpreter_that_just_ended_starts_without_it(
    orders: Path, engine: LocalEngine, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    point = orders / "standby.leave.before"
    point.write_text("stop")
    os.kill(_innermost(supervisor), signal.SIGKILL)
    await _until(point.with_name(f"{point.name}.reached").exists)
    running = asyncio.create_task(run(engine, trainer("", "told")))
    await _until_it_has_a_gang(engine, supervisor)
    os.kill(supervisor, signal.SIGCONT)
    seen, log = await running
    assert (seen.succeeded, _report(log)["argv"]) == (True, ["told"]), log


async def test_no_more_wait_than_may(engine: LocalEngine, trainer: Any) -> None:
    supervisors = []
    for tenant in (1, 2, 3):
        await run(engine, trainer(tenant=tenant))
        supervisors.append(await _waits(engine, than=supervisors))
    await _until(lambda: process_start(supervisors[0]) is None)
    assert [process_start(pid) is not None for pid in supervisors] == [False, True, True]


async def test_they_go_with_the_spawner(
    engine: LocalEngine, findings: Findings, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    family = [supervisor, *proctree.descendants(supervisor)]
    spawner = spawner_pid(Path(findings.config.root))
    assert spawner is not None
    os.kill(spawner, signal.SIGKILL)
    await _until(lambda: all(process_start(pid) is None for pid in family))
    assert list(Path(findings.config.root, "zygotes").iterdir()) == []


async def test_they_go_with_an_engine_that_nobody_needs(
    engine: LocalEngine, findings: Findings, trainer: Any
) -> None:
    await run(engine, trainer())
    supervisor = await _waits(engine)
    spawner = spawner_pid(Path(findings.config.root))
    assert spawner is not None
    family = [spawner, supervisor, *proctree.descendants(supervisor)]
    await engine.close()
    await _until(lambda: all(process_start(pid) is None for pid in family))
    folders = [Path(value) for name, value in findings.config.cgroups.items() if name != "version"]
    assert not [folder for folder in folders if folder.exists()]


def _normal(path: list[str]) -> list[str]:
    return [re.sub("/trainers/[^/]+/", "/trainers/", entry) for entry in path]


def _report(log: str) -> dict[str, Any]:
    line = next((line for line in log.splitlines() if line.startswith("{")), None)
    assert line is not None, log
    report: dict[str, Any] = json.loads(line)
    return report


async def _waits_or_failed(engine: LocalEngine, log_file: Path) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while (
            not (await engine._spawner.ask({}))["zygotes"]
            and "no zygote" not in log_file.read_text()
        ):
            await asyncio.sleep(0.1)  # it is made when nobody asks anything


async def _waits(engine: LocalEngine, than: Sequence[int] = ()) -> int:
    """The supervisor whose interpreter has imported and waits; another one ``than`` those."""
    async with asyncio.timeout(_LIMIT_S):
        while True:
            zygotes = set((await engine._spawner.ask({}))["zygotes"]) - set(than)
            if zygotes:
                return int(min(zygotes))
            await asyncio.sleep(0.1)  # it is made when nobody asks anything


async def _until_it_has_a_gang(engine: LocalEngine, supervisor: int) -> None:
    """Wait until a supervisor that waited with an interpreter has a gang."""
    async with asyncio.timeout(_LIMIT_S):
        while supervisor in (await engine._spawner.ask({}))["zygotes"]:
            await asyncio.sleep(0.01)


def _innermost(supervisor: int) -> int:
    """The interpreter below its sandbox."""
    *_, last = proctree.descendants(supervisor)
    return last


def _offer(
    runtimes: Path,
    index: Path,
    name: str = "slow",
    unfit: str = "",
    package: str = "slowlib",
    library: str = _LIBRARY,
) -> None:
    """A runtime with one package, from an index of its own; with a second module that only
    imports ahead load.
    """
    folder = index / package
    folder.mkdir(parents=True)
    wheel = f"{package}-1.0-py3-none-any.whl"
    _wheel(folder / wheel, package, {"slowlib.py": library, "unfit.py": unfit})
    (folder / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    (runtimes / f"{name}.toml").write_text(
        textwrap.dedent(
            f"""
            name = "{name}"
            version = "1"
            default = true
            requires = ["{package}"]
            indexes = ["file://{index}"]
            preload = ["slowlib"{', "unfit"' if unfit else ""}]
            threads = ["SLOW_THREADS"]
            """
        )
    )


def _wheel(target: Path, name: str, files: dict[str, str]) -> Path:
    about = f"{name}-1.0.dist-info"
    written = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
    }
    written[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in (*written, f"{about}/RECORD"))
    with zipfile.ZipFile(target, "w") as archive:
        for file, text in written.items():
            archive.writestr(file, text)
    return target


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LIMIT_S):
        while not holds():
            await asyncio.sleep(0.02)
