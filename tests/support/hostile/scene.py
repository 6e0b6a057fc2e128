"""The scene of the attacks: a server's folders, a neighbour's job, a machine with secrets, and the
attacker.

A program of its own, so that it can be played as root and as an ordinary user:
``python scene.py FOLDER`` prints ``{run: {attack: outcome}}`` as JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cloud_ml.engines.gang import Mount
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.environments.tools import ToolSandbox
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.engines.local.processes import proctree
from cloud_ml.engines.local.processes.launch import tenant_fence
from cloud_ml.engines.local.spawner.requests import SOCKET_NAME
from cloud_ml.environments.base import Bind
from cloud_ml.settings import EngineSettings
from support.attacks import PYTHON
from support.buckets_below import BucketsBelow
from support.gangs import gang_of, printed, run
from support.hostile import files, kernel, processes, runner, sharing
from support.hostile.attack import BUILD, LANDLOCK, NOTHING, SANDBOX, STRANGER, UNFILTERED, Attack
from support.machine import end_engine, spawner_pid

ATTACKS: dict[str, Attack] = {
    one.name: one
    for module in (files, processes, kernel, sharing)
    for one in vars(module).values()
    if isinstance(one, Attack)
}
_RUNNER = Path(runner.__file__).read_text()
_PROGRAMS = json.dumps({name: one.program for name, one in ATTACKS.items()})
_NOBODY = 65534
_NEIGHBOUR = """
import os, socket, sys, time
secret, name = os.environ["SECRET"], sys.argv[1]
for path in ("private", os.environ.get("TMPDIR", "/tmp") + "/private"):
    with open(path, "w") as file:
        file.write(secret)
    os.chmod(path, 0o644)
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + name)
listener.listen(64)
print(secret, "is mine", flush=True)
time.sleep(600)
"""


def findings(folder: Path, sandbox: str, **changes: object) -> Findings:
    """An engine's, in ``folder``."""
    root = folder / "engine"
    root.mkdir(parents=True, exist_ok=True)
    Ledger(root).create()
    settings = EngineSettings(sandbox=sandbox, **changes)  # type: ignore[arg-type]
    return probe(
        settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=Path("uv")
    )


@contextmanager
def platform(folder: Path, secret: str) -> Iterator[dict[str, Any]]:
    """What a server keeps, readable for everybody: it is the view that must hide it, not its
    mode.
    """
    places = {
        "database": folder / "state.db",
        "keys": folder / "credentials.json",
        "bucket": folder / "buckets" / "other",
        "layer": folder / "layers" / "0a1b",
        "cache": folder / "uv-cache",
        "tmp": folder / "left-in-tmp" / "file",
    }
    for path in (places["database"], places["keys"], places["tmp"], places["bucket"] / "model"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(secret)
        path.chmod(0o666)
    for name in ("layer", "cache"):
        places[name].mkdir(parents=True)
    (places["layer"] / "module.py").write_text("")
    for path in folder.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / "service.sock"))
        (folder / "service.sock").chmod(0o777)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0cloudml-test-{secret}")
        for one in (listener, abstract):
            one.listen(64)
        held = stack.enter_context(places["database"].open("rb"))
        yield {
            **{name: str(path) for name, path in places.items()},
            "socket": str(folder / "service.sock"),
            "abstract": f"cloudml-test-{secret}",
            "descriptor": held.fileno(),
        }


@contextmanager
def machine(folder: Path, secret: str) -> Iterator[dict[str, Any]]:
    """What a machine shares between its processes, with a secret in each; all of it goes again."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(0, 4096, 0o1666)
    ctypes.memmove(libc.shmat(segment, None, 0), secret.encode(), len(secret))
    queue = f"cloudml-test-{secret}"
    libc.syscall(240, queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    key = libc.syscall(248, b"user", queue.encode(), secret.encode(), len(secret), -4)
    libc.syscall(250, 5, key, 0x3F3F3F3F)
    shm = Path("/dev/shm", queue)
    shm.write_text(secret)
    shm.chmod(0o666)
    disk = next(
        (
            name
            for name in sorted(one.name for one in Path("/sys/block").iterdir())
            if not name.startswith(("loop", "ram"))
        ),
        "",
    )
    number = Path("/sys/block", disk, "dev").read_text().split(":") if disk else ["0", "0"]
    memory = ctypes.create_string_buffer(secret.encode(), 64)
    with subprocess.Popen(["sleep", "600"]) as victim:
        try:
            yield {
                "shared_memory": segment,
                "queue": queue,
                "key": key,
                "dev_shm": str(shm),
                "disk": f"/dev/{disk}",
                "disk_number": os.makedev(*map(int, number)),
                "address": ctypes.addressof(memory),
                "victim": victim.pid,
                "server": os.getpid(),
            }
        finally:
            victim.kill()
            shm.unlink()
            libc.syscall(250, 9, key, -4)
            libc.syscall(241, queue.encode())
            libc.shmctl(segment, 0, None)


@contextmanager
def setuid_program(folder: Path) -> Iterator[Path]:
    """A folder that a job may see as a bucket, with a program in it that makes its caller root."""
    bucket = folder / "own-bucket"
    bucket.mkdir()
    bucket.chmod(0o777)
    shutil.copy("/usr/bin/id", bucket / "id")
    (bucket / "id").chmod(0o4755)
    yield bucket


async def play(folder: Path) -> dict[str, dict[str, str]]:
    """All runs, one after the other."""
    secret = uuid.uuid4().hex
    found: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:
        given = {
            "secret": secret,
            "other_uid": 1_600_002,
            **stack.enter_context(platform(folder, secret)),
            **stack.enter_context(machine(folder, secret)),
        }
        bucket = stack.enter_context(setuid_program(folder))
        fenced = findings(folder / "fenced", "auto")
        engine = LocalEngine(fenced, folders=BucketsBelow(bucket.parent))
        await engine.start()
        try:
            given |= await _neighbour(engine, secret, spawner_pid(Path(fenced.config.root)))
            plain = fenced if fenced.config.bwrap else None
            if plain is not None:
                found[SANDBOX] = await _try_all(engine, given, bucket)
                found[BUILD] = _try_in_a_build(plain, given, folder)
                unfiltered = findings(folder / "open", "auto")
                config = dataclasses.replace(unfiltered.config, seccomp=False, cgroups={})
                found[UNFILTERED] = await _in(
                    dataclasses.replace(unfiltered, config=config), given, bucket
                )
            if os.uname().sysname == "Linux":
                found[LANDLOCK] = await _in(
                    findings(folder / "landlock", "landlock"), given, bucket
                )
            closed = folder / "closed"  # so that jobs of root are root
            closed.mkdir(mode=0o700)
            found[NOTHING] = await _in(findings(closed / "none", "none"), given, bucket)
            if os.geteuid() == 0:
                found[STRANGER] = _try_as_a_stranger(given, bucket)
        finally:
            await engine.close()
            end_engine(fenced.config)
    return found


async def _neighbour(engine: LocalEngine, secret: str, spawner: int | None) -> dict[str, Any]:
    """A job of another tenant, which runs."""
    name = f"cloudml-test-neighbour-{secret}"
    gang = dataclasses.replace(
        gang_of(PYTHON, "-c", _NEIGHBOUR, name, variables={"SECRET": secret}), tenant=2
    )
    await engine.ensure(gang)
    await printed(engine, gang.key, "is mine")
    root = Path(engine._config.root)
    job = root / "jobs" / gang.key.job_uid
    pid = max(proctree.find_marked(f"CLOUDML_GANG={gang.key}"))
    return {
        "neighbour": pid,
        "neighbours_abstract": name,
        "spawner": spawner,
        "spawner_socket": str(root / SOCKET_NAME),
        "ledger": str(root / "ledger" / "gates"),
        "reports": str(root / "ledger" / "reports"),
        "jobs": str(root / "jobs"),
        "work": str(job / "work" / "private"),
        "temporary": str(job / "1" / "tmp" / "private"),
        "log": str(job / "1" / "logs" / "master-0.log"),
    }


async def _in(found: Findings, given: dict[str, Any], bucket: Path) -> dict[str, str]:
    engine = LocalEngine(found, folders=BucketsBelow(bucket.parent))
    await engine.start()
    try:
        return await _try_all(engine, given, bucket)
    finally:
        await engine.close()
        end_engine(found.config)


async def _try_all(engine: LocalEngine, given: dict[str, Any], bucket: Path) -> dict[str, str]:
    """Run every attack in one job, whose bucket holds a program that makes its caller root."""
    uid = uuid.uuid4().hex
    target = f"{engine.places(uid).storage}/shared"
    own = json.dumps({**given, "setuid": f"{target}/id"})
    gang = gang_of(
        PYTHON,
        "-c",
        _RUNNER,
        _PROGRAMS,
        own,
        uid=uid,
        memory_bytes=2**30,
        mounts=(Mount(bucket.name, target, True),),
    )
    seen, log = await run(engine, gang)
    if not seen.succeeded:
        raise RuntimeError(f"the attacker failed: {seen.message}\n{log}")
    outcomes: dict[str, str] = json.loads(log.splitlines()[-1])
    return outcomes


def _try_in_a_build(found: Findings, given: dict[str, Any], folder: Path) -> dict[str, str]:
    """The same where a trainer's ``setup.py`` runs."""
    build = folder / "build"
    build.mkdir()
    words = subprocess.run(
        [
            sys.executable,
            __file__,
            "--build",
            str(build),
            json.dumps({**given, "setuid": "/nowhere"}),
        ],
        input=json.dumps(dataclasses.asdict(found.config)),
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes: dict[str, str] = json.loads(words.stdout.splitlines()[-1])
    return outcomes


def build(folder: Path, given: str) -> None:
    """In a process of its own, since a tool's end is the end of all that its caller has started."""
    from cloud_ml.engines.local.config import LocalConfig
    from cloud_ml.models import codec

    config = codec.decode(LocalConfig, json.load(sys.stdin))
    user = config.user(1)
    tools = ToolSandbox(
        tenant_fence(config, user), Exposure(needed=user is not None), None, str(config.etc)
    )
    code = tools.run(
        [PYTHON, "-c", _RUNNER, _PROGRAMS, given],
        read_only=[],
        writable=[Bind(str(folder), str(folder))],
        environment={"PATH": os.defpath},
        network=True,
        timeout_s=100,
        output=lambda chunk: os.write(1, chunk) and None,
    )
    raise SystemExit(code)


def _try_as_a_stranger(given: dict[str, Any], bucket: Path) -> dict[str, str]:
    own = json.dumps({**given, "setuid": str(bucket / "id")})
    words = subprocess.run(
        [PYTHON, "-c", _RUNNER, _PROGRAMS, own],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes: dict[str, str] = json.loads(words.stdout.splitlines()[-1])
    return outcomes


if __name__ == "__main__":
    if sys.argv[1] == "--build":
        build(Path(sys.argv[2]), sys.argv[3])
    print(json.dumps(asyncio.run(play(Path(sys.argv[1])))), flush=True)
