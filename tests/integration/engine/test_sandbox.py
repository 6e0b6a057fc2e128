"""What a hostile tenant tries from inside a job.

Every attack has a control that shows it would work without the fence: the same program in an engine
without a sandbox (``unfenced``) or without the system-call filter (``unfiltered``), or the machine
itself.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.files import metric_files
from cloud_ml.engines.local.isolation import seccomp
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.common import MOST_VARIABLES
from cloud_ml.settings import EngineSettings
from support.attacks import attack
from support.engines import SETTINGS, findings_in, running
from support.gangs import printed, shell, when
from support.machine import spawner_pid

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("sandbox-engine")]

SECRET = "do-not-tell-8471"
READ = "path, = arguments\ntell(outcome(lambda: open(path).read()))"
NAMESPACES = ("pid", "mnt", "ipc", "uts", "user")
CLONE_NEWUSER, SIGCHLD, TIOCSTI = 0x10000000, 17, 0x5412
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(platform.machine(), 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a server, as it were. The engines in it are shared: a job can tell
    nothing of others.
    """
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def findings(folder: Path) -> Iterator[Findings]:
    """Those of a machine with bubblewrap; the server's own environment holds a secret."""
    findings = findings_in(folder / "engine", SETTINGS)
    if not findings.config.bwrap:
        pytest.skip("no sandbox here: " + "; ".join(findings.missing))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CLOUDML_BOOTSTRAP_SECRET_KEY", SECRET)
        yield findings


@pytest.fixture(scope="module")
async def engine(findings: Findings) -> AsyncIterator[LocalEngine]:
    async with running(findings) as engine:
        yield engine


@pytest.fixture(scope="module")
async def unfenced(folder: Path) -> AsyncIterator[LocalEngine]:
    """The control: no sandbox."""
    async with running(
        findings_in(folder / "unfenced", EngineSettings(sandbox="none", cgroups="none"))
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
async def unfiltered(findings: Findings, folder: Path) -> AsyncIterator[LocalEngine]:
    """The control for system calls: the sandbox without its filter, so that nothing can do harm."""
    root = folder / "unfiltered"
    Ledger(root).create()
    config = dataclasses.replace(findings.config, root=str(root), cgroups={}, seccomp=False)
    async with running(dataclasses.replace(findings, config=config)) as engine:
        yield engine


@pytest.fixture
def victim() -> Iterator[int]:
    """A process of the machine that is none of the job's business."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        assert process.poll() is None, "the attack reached a process of the machine"
        process.kill()


# ---- files


@pytest.mark.parametrize(
    "name", ["state.db", "credentials.json", "engine/ledger/gates/other.1", "engine/spawner.lock"]
)
async def test_the_platforms_files_are_not_there(
    engine: LocalEngine, unfenced: LocalEngine, folder: Path, name: str
) -> None:
    path = folder / name
    if not path.exists():
        path.write_text("{}")
    path.chmod(0o644)  # it is the view that hides it, not its mode
    assert await attack(engine, READ, str(path)) == "ENOENT"
    assert await attack(unfenced, READ, str(path)) == "done"


async def test_other_jobs_folders_are_not_there(
    engine: LocalEngine, unfenced: LocalEngine, folder: Path
) -> None:
    await attack(engine, "tell(open('/work/private', 'w').write('x'))", uid="neighbour")
    look = "path, = arguments\ntell(outcome(os.listdir, path))"
    for path in (folder / "engine" / "jobs", folder / "engine" / "jobs" / "neighbour" / "work"):
        assert await attack(engine, look, str(path)) == "ENOENT"
        assert await attack(unfenced, look, str(path)) == "done"


async def test_another_job_of_the_tenant_does_not_see_its_processes_or_its_folder(
    engine: LocalEngine,
) -> None:
    waiting = shell("echo mine > private; echo up; sleep 600")
    await engine.ensure(waiting)
    await printed(engine, waiting.key, "up")
    seen = await attack(
        engine,
        "tell([os.listdir('/work'), os.listdir('/work/.cloudml_metrics'), "
        "[open(f'/proc/{n}/cmdline').read() for n in "
        "os.listdir('/proc') if n.isdigit()]])",
    )
    assert seen[:2] == [[metric_files.FOLDER], []]
    assert not any("sleep" in line for line in seen[2])
    await engine.stop(waiting.key, 0)
    await when(engine, waiting.key, lambda gang: gang.state.over)


async def test_writing_works_in_its_own_folders_only(
    engine: LocalEngine, unfenced: LocalEngine
) -> None:
    program = (
        "found = []\n"
        "for top, folders, _ in os.walk('/'):\n"
        "    if top in ('/proc', '/sys'): folders.clear(); continue\n"
        "    if not outcome(lambda: open(top + '/.probe', 'x').close()) == 'done': continue\n"
        "    found.append(top); folders.clear()\n"
        "tell(sorted(found))"
    )
    own = set(await attack(engine, program))
    assert own - {"/env"} == {
        "/dev",
        "/tmp",
        "/work",
    }  # /env is the job's too, once there is an environment in it
    control = "tell([path for path in arguments if os.access(path, os.W_OK)])"
    if os.geteuid() == 0:
        assert await attack(unfenced, control, "/etc", "/usr") == ["/etc", "/usr"]


async def test_there_is_no_device_but_the_harmless_ones(engine: LocalEngine) -> None:
    listed = set(await attack(engine, "tell(os.listdir('/dev'))"))
    harmless = {
        "null",
        "zero",
        "full",
        "random",
        "urandom",
        "tty",
        "ptmx",
        "pts",
        "shm",
        "core",
        "fd",
        "stdin",
        "stdout",
    }
    assert listed <= harmless | {"stderr", "console"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes anywhere")
async def test_device_nodes_cannot_be_made(engine: LocalEngine, unfenced: LocalEngine) -> None:
    program = "import stat\ntell(outcome(os.mknod, 'node', stat.S_IFCHR | 0o666, os.makedev(1, 3)))"
    assert await attack(engine, program) == "EPERM"
    assert await attack(unfenced, program) == "done"
    assert await attack(engine, "tell(outcome(os.mkfifo, 'pipe'))") == "done"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the kernel's settings anywhere")
@pytest.mark.parametrize("name", ["kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory"])
async def test_kernel_settings_cannot_be_written(
    engine: LocalEngine, unfenced: LocalEngine, name: str
) -> None:
    program = "path, = arguments\ntell(outcome(lambda: os.close(os.open(path, os.O_WRONLY))))"
    assert await attack(engine, program, f"/proc/sys/{name}") in ("EACCES", "EROFS", "EPERM")
    control = await attack(unfenced, program, f"/proc/sys/{name}")
    if control != "done":
        pytest.skip(f"this machine refuses it to root as well: {control}")


# ---- processes


async def test_processes_of_the_machine_are_neither_seen_nor_signalled(
    engine: LocalEngine, unfenced: LocalEngine, victim: int
) -> None:
    program = (
        "pid, = arguments\ntell([os.path.exists(f'/proc/{pid}/cmdline'), outcome(os.kill, pid, 0)])"
    )
    assert await attack(engine, program, victim) == [False, "ESRCH"]
    assert await attack(unfenced, program, victim) == [True, "done"]


async def test_the_only_processes_are_its_own(engine: LocalEngine, unfenced: LocalEngine) -> None:
    program = "tell([name for name in os.listdir('/proc') if name.isdigit()])"
    assert len(await attack(engine, program)) <= 2  # the sandbox's init and the program
    assert str(os.getpid()) in await attack(unfenced, program)


async def test_every_process_of_the_job_belongs_to_the_tenant_outside(
    engine: LocalEngine, findings: Findings
) -> None:
    gang = shell("echo up; sleep 600")
    await engine.ensure(gang)
    await printed(engine, gang.key, "up")
    users = {
        Path(f"/proc/{pid}").stat().st_uid
        for pid in proctree.find_marked(f"CLOUDML_GANG={gang.key}")
    }
    await engine.stop(gang.key, 0)
    await when(engine, gang.key, lambda seen: seen.state.over)
    assert users == ({findings.config.tenant_uid_base + 1} if os.geteuid() == 0 else {os.getuid()})
    assert 0 not in users
    inside = await attack(engine, "tell([os.getuid(), os.geteuid(), os.getgroups()])")
    assert inside[:2] == [1000, 1000]
    assert 0 not in inside[2]


async def test_it_has_no_capabilities_and_gains_none(
    engine: LocalEngine, unfenced: LocalEngine
) -> None:
    program = "tell(dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines()))"
    inside, outside = await attack(engine, program), await attack(unfenced, program)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"):
        assert int(inside[name], 16) == 0, name
    assert (inside["NoNewPrivs"], inside["Seccomp"]) == ("1", "2")
    assert outside["Seccomp"] == Path("/proc/self/status").read_text().partition("Seccomp:\t")[2][0]
    if os.geteuid() == 0:
        assert int(outside["CapEff"], 16) != 0


async def test_it_lives_in_namespaces_of_its_own(
    engine: LocalEngine, unfenced: LocalEngine
) -> None:
    program = "tell({name: os.readlink(f'/proc/self/ns/{name}') for name in arguments})"
    machine = {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMESPACES}
    inside = await attack(engine, program, *NAMESPACES)
    assert [name for name in NAMESPACES if inside[name] == machine[name]] == []
    assert await attack(unfenced, program, *NAMESPACES) == machine


# ---- the network


async def test_without_network_there_is_only_a_loopback_of_its_own(engine: LocalEngine) -> None:
    interfaces = "import socket\ntell([name for _, name in socket.if_nameindex()])"
    assert await attack(engine, interfaces, network="none") == ["lo"]
    seen = set(await attack(engine, interfaces, network="host"))
    assert {name for name in seen ^ _interfaces() if not name.startswith("cml")} == set(), (
        "links of others come and go"
    )


def _interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


async def test_without_network_services_of_the_machine_cannot_be_reached(
    engine: LocalEngine,
) -> None:
    connect = "import socket\nport, = arguments\ntell(outcome(socket.socket().connect, ('127.0.0.1', port)))"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert await attack(engine, connect, port, network="none") == "ECONNREFUSED"
        assert await attack(engine, connect, port, network="host") == "done"


async def test_the_spawners_socket_cannot_be_reached(
    engine: LocalEngine, unfenced: LocalEngine, folder: Path
) -> None:
    connect = (
        "import socket\nfolder, = arguments\n"
        "def attempt():\n    os.chdir(folder); "
        "socket.socket(socket.AF_UNIX).connect('spawner.sock')\n"
        "tell(outcome(attempt))"
    )
    assert await attack(engine, connect, str(folder / "engine")) == "ENOENT"
    assert await attack(unfenced, connect, str(folder / "engine")) == "done"


# ---- system calls


async def test_every_call_of_the_deny_list_is_refused(
    engine: LocalEngine, unfiltered: LocalEngine
) -> None:
    numbers = {name: both[_COLUMN] for name, both in seccomp._DENIED.items() if both[_COLUMN] >= 0}
    numbers.pop("vhangup")  # the one that takes no arguments which could be wrong
    program = (
        "tell({name: call(number, -1, -1, -1, -1, -1) for name, number in arguments[0].items()})"
    )
    filtered = await attack(engine, program, numbers)
    assert {name: answer for name, answer in filtered.items() if answer != "EPERM"} == {}
    control = await attack(unfiltered, program, numbers)
    reached = {name for name, answer in control.items() if answer not in ("EPERM", "ENOSYS")}
    assert {"ptrace", "unshare", "keyctl", "mount", "setns", "process_vm_readv"} <= reached


async def test_no_user_namespace_can_be_made(engine: LocalEngine, unfiltered: LocalEngine) -> None:
    unshare = f"tell(call({(272, 97)[_COLUMN]}, {CLONE_NEWUSER}))"
    clone = (
        f"pid = libc.syscall(ctypes.c_long({(56, 220)[_COLUMN]}), "
        f"ctypes.c_ulong({CLONE_NEWUSER | SIGCHLD}), 0, 0, 0)\n"
        "if pid == 0: os._exit(0)\n"
        "tell('done' if pid > 0 else errno.errorcode[ctypes.get_errno()])"
    )
    for program in (unshare, clone):
        assert await attack(engine, program) == "EPERM"
        assert await attack(unfiltered, program) == "done"


async def test_clone3_is_answered_as_on_an_old_kernel(
    engine: LocalEngine, unfiltered: LocalEngine
) -> None:
    program = "tell(call(435, 0, 0))"
    assert await attack(engine, program) == "ENOSYS"
    control = await attack(unfiltered, program)
    if control == "ENOSYS":
        pytest.skip("this machine's kernel has no clone3")
    assert control == "EINVAL"
    threads = "import threading\nt = threading.Thread(target=tell, args=['threads work'])\nt.start(); t.join()"
    assert await attack(engine, threads) == "threads work"


@pytest.mark.parametrize(
    "command", [TIOCSTI, 1 << 32 | TIOCSTI], ids=["plain", "with high bits that the kernel drops"]
)
async def test_nothing_can_be_typed_into_a_terminal(
    engine: LocalEngine, unfiltered: LocalEngine, command: int
) -> None:
    program = (
        "import pty, fcntl, termios\ncommand, = arguments\nos.setsid()\nmaster, slave = "
        "pty.openpty()\n"
        "fcntl.ioctl(slave, termios.TIOCSCTTY, 0)\n"
        "libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]\n"
        "tell(errno.errorcode[ctypes.get_errno()] if libc.ioctl(slave, command, b'x') else 'done')"
    )
    assert await attack(engine, program, command) == "EPERM"
    control = await attack(unfiltered, program, command)
    if control != "done":
        pytest.skip(f"this machine's kernel refuses it by itself: {control}")


async def test_no_file_changes_its_project(engine: LocalEngine, unfiltered: LocalEngine) -> None:
    """The kernel holds a job to its disk limit by the project of its files."""
    program = (
        "import fcntl\nfolder = os.open('.', os.O_RDONLY)\n"
        "tell(outcome(fcntl.ioctl, folder, 0x401c5820, bytes(28)))"
    )
    assert await attack(engine, program) == "EPERM"
    assert await attack(unfiltered, program) != "EPERM"


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET", "AF_ALG"])
async def test_odd_socket_families_are_refused(
    engine: LocalEngine, unfiltered: LocalEngine, family: str
) -> None:
    program = "import socket\nfamily, = arguments\ntell(outcome(socket.socket, getattr(socket, family), socket.SOCK_DGRAM))"  # noqa: E501
    assert await attack(engine, program, family) == "EPERM"
    control = await attack(unfiltered, program, family)
    if control == "EPERM":
        pytest.skip("without capabilities this machine's kernel refuses it by itself")


# ---- secrets


async def test_the_jobs_environment_holds_no_secret_of_the_platform(
    engine: LocalEngine, folder: Path
) -> None:
    program = """
found = []
for name in os.listdir('/proc'):
    if name.isdigit():
        with contextlib.suppress(PermissionError):  # the first process shows nothing of itself
            found.append(open(f'/proc/{name}/environ').read())
tell([dict(os.environ), found])
"""
    own, visible = await attack(engine, program)
    assert visible
    assert not any(SECRET in text for text in (*own.values(), *visible))
    pid = spawner_pid(folder / "engine")
    assert SECRET in Path(f"/proc/{pid}/environ").read_text(), "it was there to be leaked"


async def test_no_command_line_of_the_machine_shows_a_users_secret(engine: LocalEngine) -> None:
    gang = shell("echo up; sleep 600", variables={"TOKEN": SECRET})
    await engine.ensure(gang)
    await printed(engine, gang.key, "up")
    pids = proctree.find_marked(f"TOKEN={SECRET}")
    assert pids, "the job has it in its environment"
    lines = [line for pid in psutil.pids() for line in _command_line(pid)]
    await engine.stop(gang.key, 0)
    await when(engine, gang.key, lambda seen: seen.state.over)
    assert any(b"bwrap" in line for line in lines)
    assert not any(SECRET.encode() in line for line in lines)


def _command_line(pid: int) -> list[bytes]:
    try:
        return [Path(f"/proc/{pid}/cmdline").read_bytes()]
    except OSError:  # it has ended
        return []


async def test_variables_of_a_job_reach_its_program_and_not_the_sandbox_itself(
    engine: LocalEngine, tmp_path: Path
) -> None:
    """Bubblewrap is outside the sandbox: a library that it loads for ``LD_PRELOAD`` would be
    outside, too.
    """
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (
        tmp_path,
        *tmp_path.parents,
    ):  # whatever the tests' own folders are, the job's user gets there
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    source, library, mark = shared / "escape.c", shared / "escape.so", shared / "escaped"
    source.write_text(
        "#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void "
        "begin(void) {"
        f' close(open("{mark}", O_CREAT | O_WRONLY, 0666)); }}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    control = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(library)}, check=True)
    assert control.returncode == 0
    assert mark.exists(), "the library does nothing"
    mark.unlink()
    variables = {
        "LD_PRELOAD": str(library),
        "LD_AUDIT": str(library),
        "TEXT": "a\nb = ü",
        "EMPTY": "",
    }
    variables_seen = await attack(
        engine, "tell({n: os.environ.get(n) for n in arguments})", *variables, variables=variables
    )
    assert variables_seen == variables
    assert not mark.exists()
    many = {f"V{number}": "x" for number in range(MOST_VARIABLES)}
    assert (
        await attack(engine, "tell(sum(n[:1] == 'V' for n in os.environ))", variables=many)
        == MOST_VARIABLES
    )
