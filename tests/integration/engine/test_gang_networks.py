"""Gangs without a network: their tasks reach each other and nothing else, and nothing of it stays.

Every attack has a control: the same program in the machine's network.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import Gang, GangKey, ProcessPlan
from cloud_ml.engines.local.config import Network
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import gang_network, machine
from cloud_ml.engines.local.probe import Findings
from cloud_ml.settings import EngineSettings
from cloud_ml.testing.engine.looking import log_of
from support.attacks import PRELUDE, PYTHON
from support.engines import findings_in, running
from support.gangs import gang_of, printed, when
from support.invariants import is_used, networks_of
from support.machine import spawner_pid
from support.outside import Outside, listening, outside

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network for each gang takes root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed"),
    pytest.mark.xdist_group("networks"),
]

CONNECT = """
import socket
def connect(host, port, device=None):
    with socket.create_connection((host, port), 60):
        pass
def send(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"hello", (host, port))
def abstract(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\\0" + name)
"""
SERVE = """
import socket, sys, time
tcp = socket.create_server(("0.0.0.0", int(sys.argv[1])))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0" + sys.argv[2])
abstract.listen()
print(tcp.getsockname()[1], "listens", flush=True)
time.sleep(600)
"""
UNREACHABLE = "ENETUNREACH"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for all: the engine is for the whole file."""
    return "asyncio"


@pytest.fixture(scope="module")
def far() -> Iterator[Outside]:
    """A host beyond this machine."""
    with outside() as made:
        yield made


@pytest.fixture(scope="module")
def module_findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings_in(tmp_path_factory.mktemp("gangs") / "engine", EngineSettings())


@pytest.fixture(scope="module")
async def engine(module_findings: Findings, far: Outside) -> AsyncIterator[LocalEngine]:
    """Comes after ``far``, like a machine's routes."""
    del far
    async with running(module_findings) as engine:
        yield engine


def pair(first: Sequence[str], second: Sequence[str], network: str = "none") -> Gang:
    """Two tasks; the first is called like the gang's only one elsewhere, so that helpers find it."""
    plans = (ProcessPlan("master", 0, tuple(first)), ProcessPlan("worker", 0, tuple(second)))
    return dataclasses.replace(gang_of("true"), processes=plans, network=network)


async def ended(engine: LocalEngine, *keys: GangKey) -> None:
    for key in keys:
        await engine.stop(key, 0)
        await when(engine, key, lambda gang: gang.state.over)


async def serving(
    engine: LocalEngine, network: str, name: str, port: int = 0
) -> tuple[GangKey, int]:
    """A task that listens on all of its addresses and on an abstract socket; its port."""
    gang = pair((PYTHON, "-c", SERVE, str(port), name), ("sleep", "600"), network)
    await engine.ensure(gang)
    await printed(engine, gang.key, "listens")
    log = await log_of(engine, gang.key)
    return gang.key, int(log.split()[-2])


async def attack(engine: LocalEngine, program: str, *arguments: Any, network: str = "none") -> Any:
    """What ``program`` tells as one of two tasks."""
    command = (PYTHON, "-c", PRELUDE + CONNECT + program, json.dumps(arguments))
    gang = pair(command, ("sleep", "600"), network)
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda gang: gang.state.over)
    log = await log_of(engine, gang.key)
    assert seen.succeeded, f"the attack itself is wrong: {seen.message}\n{log!r}"
    return json.loads(log.splitlines()[-1])


EACH = "tell([outcome(connect, *where) for where in arguments])"


async def test_no_address_of_the_machine_or_beyond_is_reached(
    engine: LocalEngine, far: Outside
) -> None:
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(listening("127.0.0.1"))
        port = stack.enter_context(listening("0.0.0.0")).getsockname()[1]
        beyond = [
            stack.enter_context(far.listener(address)).getsockname()
            for address in (far.public, far.private, far.link_local)
        ]
        places = [("127.0.0.1", local.getsockname()[1]), (far.machine, port), *beyond]
        assert await attack(engine, EACH, *places) == ["ECONNREFUSED", *[UNREACHABLE] * 4]
        assert await attack(engine, EACH, *places, network="host") == ["done"] * 5
        datagrams = EACH.replace("connect", "send")
        assert await attack(engine, datagrams, *places[1:]) == [UNREACHABLE] * 4


async def test_no_job_of_the_organisation_and_no_other_gang_is_reached(
    engine: LocalEngine,
) -> None:
    name = f"cloudml-gang-{os.getpid()}"
    network = "tenant" if engine._config.bwrap and engine.tenant_address(1) else "host"
    neighbour, port = await serving(engine, network, f"{name}-tenant")
    other, _ = await serving(engine, "none", f"{name}-gang", port)
    own = str(gang_network.ADDRESS)
    places = [("127.0.0.1", port), (own, port)]
    if network == "tenant":
        places.append((str(engine.tenant_address(1)), port))
    refused = await attack(engine, EACH, *places)
    assert refused == ["ECONNREFUSED", "ECONNREFUSED", UNREACHABLE][: len(places)]
    abstract = EACH.replace("connect", "abstract")
    names = [[f"{name}-tenant"], [f"{name}-gang"]]
    assert "done" not in await attack(engine, abstract, *names)
    # The control: who shares a network with the neighbour reaches it.
    assert await attack(engine, EACH, places[0], network=network) == ["done"]
    await ended(engine, neighbour, other)


MAKE_A_WAY = """
import ctypes, socket, struct
def add_link():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as line:
        body = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
        line.send(struct.pack("=IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        answer = line.recv(4096)
        error = -struct.unpack_from("=i", answer, 16)[0]
        if error:
            raise OSError(error, "")
def change_a_switch():
    open("/proc/sys/net/ipv4/ip_forward", "w").write("1")
def listen_to_all():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tell([outcome(add_link), outcome(change_a_switch), outcome(listen_to_all)])
"""


async def test_no_task_can_make_itself_a_way_out(engine: LocalEngine) -> None:
    answers = await attack(engine, MAKE_A_WAY)
    refused = {"EPERM", "EACCES", "EROFS", "EAFNOSUPPORT"}
    assert set(answers) <= refused, answers


async def test_a_task_that_starts_again_is_in_the_same_network(engine: LocalEngine) -> None:
    server = (
        "import socket, sys; made = socket.create_server(('', 20500)); print('up', flush=True)\n"
    )
    server += "while True: made.accept()[0].sendall(b'hello')"
    client = (
        "import os, socket, sys\n"
        "print(socket.create_connection(('127.0.0.1', 20500)).recv(9).decode(), flush=True)\n"
        "sys.exit(os.environ['CLOUDML_TASK_RESTART'] == '0')"
    )
    waits = "until grep -q :5014 /proc/net/tcp; do sleep 0.01; done; "
    gang = pair(("python3", "-c", server), ("sh", "-c", f'{waits}exec python3 -c "{client}"'))
    variables = {"CLOUDML_TASK_RESTART": "0"}
    worker = dataclasses.replace(gang.processes[1], environment=variables)
    gang = dataclasses.replace(
        gang,
        processes=(gang.processes[0], worker),
        completes=("worker-0",),
        restarts=TaskRestarts(("worker-0",), most=1),
    )
    await engine.ensure(gang)
    seen = await when(engine, gang.key, lambda gang: gang.state.over)
    assert seen.succeeded, seen.message
    assert [one.restarts for one in seen.processes] == [0, 1]
    lines = (await log_of(engine, gang.key, "worker-0")).splitlines()
    assert lines.count(b"hello") == 2


@dataclasses.dataclass(frozen=True)
class Left:
    """What a gang has beside its processes."""

    network: int
    hosts: Path

    @property
    def is_gone(self) -> bool:
        return not is_used(self.network) and not self.hosts.exists()


async def running_gang(engine: LocalEngine, findings: Findings) -> tuple[GangKey, Left]:
    root = Path(findings.config.root)
    before = networks_of(root)
    key, _ = await serving(engine, "none", f"cloudml-left-{os.getpid()}")
    (network,) = networks_of(root) - before
    hosts = Ledger(root).attempt_folder(key) / "hosts"
    assert hosts.exists() is bool(findings.config.bwrap)
    return key, Left(network, hosts)


async def until_gone(left: Left) -> None:
    async with asyncio.timeout(60):
        while not left.is_gone:
            await asyncio.sleep(0.01)


async def test_nothing_is_left_after_the_end(
    engine: LocalEngine, module_findings: Findings
) -> None:
    key, left = await running_gang(engine, module_findings)
    assert not left.is_gone
    await ended(engine, key)
    await until_gone(left)


async def test_nothing_is_left_of_a_gang_whose_supervisor_is_killed(
    engine: LocalEngine, module_findings: Findings
) -> None:
    key, left = await running_gang(engine, module_findings)
    gate = Ledger(Path(module_findings.config.root)).gate(key)
    assert gate is not None
    os.kill(gate.pid, signal.SIGKILL)
    seen = await when(engine, key, lambda gang: gang.state.over)
    assert seen.reason is Reason.SUPERVISOR_LOST
    await until_gone(left)


async def test_nothing_is_left_of_a_gang_whose_spawner_is_killed(
    engine: LocalEngine, module_findings: Findings
) -> None:
    key, left = await running_gang(engine, module_findings)
    spawner = spawner_pid(Path(module_findings.config.root))
    assert spawner is not None
    os.kill(spawner, signal.SIGKILL)
    assert not left.is_gone, "the gang runs on"
    await ended(engine, key)
    await until_gone(left)


async def test_without_root_gangs_are_refused_and_told_why(
    module_findings: Findings, tmp_path: Path
) -> None:
    words = tmp_path / "words"

    def ask_as_nobody() -> None:
        descriptor = os.open(words, os.O_WRONLY | os.O_CREAT, 0o644)
        os.setresuid(65534, 65534, 65534)
        os.write(descriptor, gang_network.obstacle().encode())

    machine.in_child(ask_as_nobody)
    assert "not permitted" in words.read_text()
    network = Network(fence="none", no_gangs=words.read_text())
    config = dataclasses.replace(module_findings.config, network=network)
    refusal = LocalEngine(dataclasses.replace(module_findings, config=config)).gang_refusal()
    assert "engine.network = none" in refusal
    assert "not permitted" in refusal
    config = dataclasses.replace(config, network=Network(fence="none"))
    assert LocalEngine(dataclasses.replace(module_findings, config=config)).gang_refusal() == ""
