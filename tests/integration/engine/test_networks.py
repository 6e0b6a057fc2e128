"""What jobs reach over the network where each organisation has one of its own, and what is left of
that afterwards.

Every attack has a control: the same program in the machine's network, or tried by the machine
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud_ml.bootstrap.programs import find_uv
from cloud_ml.engines.gang import EnvironmentPlan, GangKey, TrainerSource
from cloud_ml.engines.local.cleanup import orphans
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import pins
from cloud_ml.engines.local.network.finding import drops_forwarded
from cloud_ml.engines.local.network.tenants import Networks, clear
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.engines.local.processes import proctree
from cloud_ml.errors import Unavailable
from cloud_ml.settings import EngineSettings
from support.attacks import PYTHON, attack
from support.gangs import gang_of, printed, run, shell, when
from support.machine import end_engine, spawner_pid
from support.outside import Outside, listening, outside, within
from support.paths_as_digests import PathsAsDigests

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("ip") is None, reason="iproute2 is not installed"),
    pytest.mark.xdist_group("networks"),
]

UNREACHABLE = "EHOSTUNREACH"
_IP_TRANSPARENT = 19
CONNECT = """
import socket
def connect(address, port, device=None):
    with socket.socket() as one:
        one.settimeout(60)
        if device:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        one.connect((address, port))
tell([outcome(connect, *where) for where in arguments])
"""
SERVE = """
import socket, time
tcp = socket.create_server(("0.0.0.0", {port}))
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0" + {name!r})
abstract.listen()
print(tcp.getsockname()[1], "listens", flush=True)
time.sleep(600)
"""
ABSTRACT = "import socket\nname, = arguments\ntell(outcome(socket.socket(socket.AF_UNIX).connect, '\\0' + name))"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for all: the engine is for the whole file."""
    return "asyncio"


@pytest.fixture(scope="module")
def far() -> Iterator[Outside]:
    """A host beyond this machine."""
    if os.geteuid() != 0:
        pytest.skip("a made-up host takes root")
    with outside() as made:
        yield made


def networked(folder: Path, **settings: Any) -> Findings:
    """What a machine gives that has a network for each organisation."""
    root = folder / "engine"
    Ledger(root).create()
    engine_settings = EngineSettings(network="tenant", **settings)
    try:
        return probe(
            engine_settings,
            root=root,
            environments_home=root / "e",
            runtimes_dir=root / "r",
            uv=find_uv(),
        )
    except Unavailable as error:
        pytest.skip(error.message)


@contextlib.asynccontextmanager
async def running(findings: Findings) -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(findings, packages=PathsAsDigests())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()
        end_engine(findings.config)


@pytest.fixture(scope="module")
async def engine(
    far: Outside, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalEngine]:
    """An engine whose organisations have networks of their own. Comes after ``far``, like a
    machine's routes.
    """
    folder = tmp_path_factory.mktemp("networks")
    folder.chmod(0o755)
    async with running(networked(folder)) as engine:
        yield engine


async def serving(
    engine: LocalEngine, tenant: int, name: str, network: str = "tenant"
) -> tuple[GangKey, int]:
    """A job that listens on all of its addresses and on an abstract socket; its port."""
    gang = gang_of(PYTHON, "-c", SERVE.format(port=0, name=name), network=network)
    gang = dataclasses.replace(gang, tenant=tenant)
    await engine.ensure(gang)
    await printed(engine, gang.key, "listens")
    log = b"".join([chunk async for chunk in engine.logs(gang.key, "master-0")])
    return gang.key, int(log.split()[-2])


async def ended(engine: LocalEngine, *keys: GangKey) -> None:
    for key in keys:
        await engine.stop(key, 0)
        await when(engine, key, lambda gang: gang.state.over)


async def test_organisations_do_not_meet_and_an_organisations_own_jobs_do(
    engine: LocalEngine,
) -> None:
    name = f"cloudml-test-{os.getpid()}"
    key, port = await serving(engine, 1, name)
    address = engine.tenant_address(1)
    assert address is not None
    places = [("127.0.0.1", port), (address, port), (address, port, "eth0")]
    assert await attack(engine, CONNECT, *places[:2], network="tenant", tenant=1) == [
        "done",
        "done",
    ]
    others = await attack(engine, CONNECT, *places, network="tenant", tenant=2)
    assert others == ["ECONNREFUSED", UNREACHABLE, UNREACHABLE]
    kept = pins.Pins(networked_instance(engine))
    there = [within(kept.path(tenant), lambda: abstract(name)) for tenant in (1, 2)]
    assert there == ["done", "ECONNREFUSED"], "a socket without a file is in its own network only"
    with socket.create_connection((address, port), 10):
        pass  # the server itself reaches it: somebody listens at that address
    await ended(engine, key)

    key, port = await serving(
        engine, 1, name, network="host"
    )  # the control: they meet where all share one network
    assert await attack(engine, CONNECT, ("127.0.0.1", port), network="host", tenant=2) == ["done"]
    assert abstract(name) == "done"
    await ended(engine, key)


async def test_what_the_machine_serves_is_out_of_reach(engine: LocalEngine, far: Outside) -> None:
    gateway = await gateway_of(engine)
    name = f"cloudml-machine-{os.getpid()}"
    with (
        listening("127.0.0.1") as local,
        listening("0.0.0.0") as open_one,
        socket.socket(socket.AF_UNIX) as named,
    ):
        named.bind("\0" + name)
        named.listen()
        port = open_one.getsockname()[1]
        places = [("127.0.0.1", local.getsockname()[1]), (far.machine, port), (gateway, port)]
        refused = await attack(
            engine, CONNECT, *places, (far.machine, port, "eth0"), network="tenant"
        )
        assert refused == ["ECONNREFUSED", UNREACHABLE, UNREACHABLE, UNREACHABLE]
        assert await attack(engine, ABSTRACT, name, network="tenant") != "done"
        assert (
            within(pins.Pins(networked_instance(engine)).path(1), lambda: abstract(name))
            == "ECONNREFUSED"
        )
        assert await attack(engine, CONNECT, *places, network="host") == ["done", "done", "done"]
        assert abstract(name) == "done"


async def gateway_of(engine: LocalEngine) -> str:
    """The machine's end of the line of organisation 1, which is made for this."""
    route = (
        "import struct\nrow = open('/proc/net/route').read().splitlines()[1].split()\ntell(row[2])"
    )
    number = await attack(engine, route, network="tenant")
    return socket.inet_ntoa(int(number, 16).to_bytes(4, "little"))


async def test_the_open_internet_is_reached_and_private_ranges_are_not(
    engine: LocalEngine, far: Outside
) -> None:
    with contextlib.ExitStack() as stack:
        addresses = (far.public, far.private, far.link_local)
        listeners = [stack.enter_context(far.listener(address)) for address in addresses]
        places = [listener.getsockname() for listener in listeners]
        reached = await attack(engine, CONNECT, *places, network="tenant")
        assert reached == ["done", UNREACHABLE, UNREACHABLE]
        connection, (source, _) = listeners[0].accept()
        connection.close()
        assert source == far.machine, "jobs go out under the machine's address"
        assert await attack(engine, CONNECT, *places, network="host") == ["done", "done", "done"]


async def test_what_the_operator_opened_is_reached_and_nothing_beside_it(
    far: Outside, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        addresses = (far.private, far.private, far.link_local)
        opened, beside, near = (stack.enter_context(far.listener(address)) for address in addresses)
        with listening("0.0.0.0") as own, listening("0.0.0.0") as other:
            port, mine = opened.getsockname()[1], own.getsockname()[1]
            allow = (
                f"{far.private}:{port}, {far.link_local}/32, {far.machine}:{mine}, {far.machine}/32"
            )
            async with running(networked(tmp_path, network_allow=allow)) as engine:
                places = [opened.getsockname(), beside.getsockname(), near.getsockname()]
                reached = await attack(engine, CONNECT, *places, network="tenant")
                assert reached == ["done", UNREACHABLE, "done"]
                places = [(far.machine, mine), (far.machine, other.getsockname()[1])]
                assert await attack(engine, CONNECT, *places, network="tenant") == [
                    "done",
                    UNREACHABLE,
                ]


async def test_nobody_speaks_under_an_address_of_others(engine: LocalEngine, far: Outside) -> None:
    spoof = """
import socket
source, target, port = arguments
def send(option):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_IP, option, 1)
        one.bind((source, 0))
        one.sendto(b"spoofed", (target, port))
FREEBIND, TRANSPARENT = 15, 19
tell([outcome(send, FREEBIND), outcome(send, TRANSPARENT), outcome(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)])
"""
    with far.listener(far.public, socket.SOCK_DGRAM) as listener:
        arguments = ("198.51.100.250", *listener.getsockname())
        assert await attack(engine, spoof, *arguments, network="tenant") == [
            "ENETUNREACH",
            "EPERM",
            "EPERM",
        ]

        listener.settimeout(1)
        pin = pins.Pins(networked_instance(engine)).path(1)
        here, there = listener.getsockname(), arguments[0]
        assert within(pin, lambda: send_as(there, here)) == "EPERM", "not even root there"
        fence = within(pin, lambda: nft("list", "table", "inet", "fence"))
        within(pin, lambda: nft("delete", "table", "inet", "fence"))
        try:
            assert within(pin, lambda: send_as(there, here)) == "done"
            assert within(pin, lambda: send_as(None, here)) == "done"
        finally:
            within(pin, lambda: nft("-f", "-", text=fence))
        words, (source, _) = await asyncio.to_thread(listener.recvfrom, 100)
        assert (words, source) == (b"as oneself", far.machine), (
            "the machine's own table lets the other one not pass"
        )


def networked_instance(engine: LocalEngine) -> str:
    return engine._config.network.instance


def send_as(source: str | None, target: tuple[str, int]) -> str:
    """Send a word as root, which may take any address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        if source:
            one.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
            one.bind((source, 0))
        return outcome(lambda: one.sendto(b"as another" if source else b"as oneself", target))


def nft(*words: str, text: str = "") -> str:
    return subprocess.run(
        ["nft", *words], input=text, capture_output=True, text=True, check=True
    ).stdout


def abstract(name: str) -> str:
    """What comes of connecting to a socket without a file, past the sandbox's own word on that."""
    with socket.socket(socket.AF_UNIX) as one:
        return outcome(lambda: one.connect(f"\0{name}"))


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


@pytest.mark.parametrize(("network", "inside"), [("tenant", True), ("host", False)])
async def test_a_build_has_the_network_of_its_organisation(
    engine: LocalEngine, far: Outside, tmp_path: Path, network: str, inside: bool
) -> None:
    tenant = 7
    with far.listener(far.public) as listener:
        listener.settimeout(0)
        address, port = listener.getsockname()
        trainer = tmp_path / "trainer.zip"
        with zipfile.ZipFile(trainer, "w") as archive:
            archive.writestr("task.py", "")
            archive.writestr(
                "requirements.txt", f"mine @ http://{address}:{port}/mine-1.0-py3-none-any.whl"
            )
        plan = EnvironmentPlan(
            TrainerSource(str(trainer), trainer.name), framework="python", module="task"
        )
        gang = gang_of("python", "-m", "task", network=network, tenant=tenant, environment=plan)
        await engine.ensure(gang)
        async with asyncio.timeout(60):
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        with connection:  # whoever fetches what the requirement names waits for an answer now
            number = pins.identity(pins.Pins(networked_instance(engine)).path(tenant))
            assert (number in pins.list_inhabited()) is inside
        await ended(engine, gang.key)


async def test_a_job_that_fails_on_the_way_is_told_where_the_way_leads(
    engine: LocalEngine, far: Outside
) -> None:
    attempt = f"import socket; socket.create_connection(({far.private!r}, 9))"
    for network, expected in (("tenant", True), ("host", False)):
        seen, _ = await run(engine, gang_of(PYTHON, "-c", attempt, network=network))
        assert ("engine.network_allow" in seen.processes[0].message) is expected, seen.processes[
            0
        ].message
    seen, _ = await run(
        engine, shell("true", network="tenant", prepare_command=f"{PYTHON} -c {attempt!r}")
    )
    assert "OSError" in seen.message
    assert "engine.network_allow" in seen.message


async def test_an_organisation_has_its_share_of_connections(far: Outside, tmp_path: Path) -> None:
    knock = """
import socket
address, count = arguments
def send(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, port))
        one.send(b"knock")
tell([outcome(send, 20000 + number) for number in range(count)])
"""
    async with running(networked(tmp_path, network_connections=5)) as engine:
        with far.listener(far.public, socket.SOCK_DGRAM, 20007) as listener:
            tries = await attack(engine, knock, far.public, 8, network="tenant")
            assert tries == ["done"] * 8
            listener.settimeout(0.5)
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(listener.recv, 10)
            await attack(engine, knock, far.public, 8, network="host")
            assert await asyncio.to_thread(listener.recv, 10) == b"knock"


async def test_what_was_there_before_the_setting_was_changed_goes(
    far: Outside, tmp_path: Path
) -> None:
    findings = networked(tmp_path)
    networks = Networks(findings.config)
    networks.start()
    networks.need(1)
    assert len(traces(findings)) == 4
    assert networks.changes is not None
    networks.changes.close()
    kept = dataclasses.replace(findings.config.network, fence="none")
    async with running(
        dataclasses.replace(findings, config=dataclasses.replace(findings.config, network=kept))
    ):
        assert traces(findings) == []


@pytest.mark.skipif(shutil.which("nft") is None, reason="nftables is not installed")
async def test_another_firewall_that_drops_what_is_forwarded_is_named(far: Outside) -> None:
    def look() -> str:
        chain = "chain {0} {{\ntype filter hook {0} priority 0; policy {1};\n}}\n"
        nft(
            "-f",
            "-",
            text="table ip other "
            f"{{\n{chain.format('input', 'drop')}{chain.format('forward', 'accept')}}}\n",
        )
        before = drops_forwarded()
        nft("chain", "ip", "other", "forward", "{ policy drop; }")
        try:
            return f"{before} then {drops_forwarded()}"
        finally:
            nft("delete", "table", "ip", "other")

    assert within(far.namespace, look) == " then ip other"


async def test_networks_that_nobody_uses_go_and_come_back(far: Outside, tmp_path: Path) -> None:
    config = networked(tmp_path, network_idle_s=0).config
    networks = Networks(config)
    networks.start()
    try:
        networks.need(1)
        networks.need(2)
        with within(networks.pins.path(2), lambda: subprocess.Popen(["sleep", "600"])) as living:
            networks.tidy([])
            assert list(networks.pins.slots()) == [2], "a process is in it"
            living.kill()
        networks.tidy([])
        assert networks.pins.slots() == {}
        networks.need(1)
        assert networks.pins.slots() == {1: 0}
    finally:
        networks.leave()


async def test_a_range_is_used_up_and_one_that_is_in_use_is_refused(
    far: Outside, tmp_path: Path
) -> None:
    networks = Networks(networked(tmp_path, network_range="172.30.99.0/30").config)
    networks.start()
    try:
        for tenant in (1, 2):
            networks.need(tenant)
        with pytest.raises(OSError, match=r"engine.network_range has no more addresses"):
            networks.need(3)
    finally:
        networks.leave()
    taken = str(ipaddress.ip_network(f"{far.private}/24", strict=False))
    findings = networked(tmp_path, network_range=taken)
    with pytest.raises(OSError, match=f"{taken} overlaps"):
        Networks(findings.config).start()
    assert traces(findings) == []


# ---- coming and going


def traces(findings: Findings) -> list[str]:
    """What there is on this machine of an engine's networks."""
    network = findings.config.network
    rules = subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, check=True
    ).stdout
    found = [line for line in rules.splitlines() if network.instance in line]
    found += [
        name for _, name in socket.if_nameindex() if name.startswith(f"cml{network.instance[:5]}")
    ]
    found += [
        line for line in Path("/proc/mounts").read_text().splitlines() if network.instance in line
    ]
    folder = pins.HOME / network.instance
    return found + ([str(folder)] if folder.exists() else [])


def forwarding(far: Outside) -> str:
    return Path(f"/proc/sys/net/ipv4/conf/{far.device}/forwarding").read_text().strip()


async def test_nothing_is_left_when_nobody_needs_it(far: Outside, tmp_path: Path) -> None:
    findings = networked(tmp_path)
    before = forwarding(far)
    engine = LocalEngine(findings)
    await engine.start()
    pid = spawner_pid(tmp_path / "engine")
    assert pid is not None
    gang = shell("true", network="tenant")
    await run(engine, gang)
    assert len(traces(findings)) == 4
    assert forwarding(far) == "1"
    async with asyncio.timeout(30):
        while not await idle(engine):
            await asyncio.sleep(0.01)
    await engine.close()
    await gone(pid)
    assert traces(findings) == []
    kept = pins.Pins(findings.config.network.instance)
    assert not kept.has_opened(far.device)
    if far.device not in kept.opened():  # no other test's server leads its jobs there
        assert forwarding(far) == before


async def idle(engine: LocalEngine) -> bool:
    """Whether no supervisor has a job any more: a spawner that nobody needs leaves with its
    server then.
    """
    pid = spawner_pid(engine._root)
    assert pid is not None
    waiting = (await engine._spawner.ask({}))["waiting"]
    return set(proctree.children(pid)) <= set(waiting)


async def gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


async def test_a_killed_predecessors_networks_are_gone_on_with_by_its_own_and_cleared_by_others(
    far: Outside, tmp_path: Path
) -> None:
    findings = networked(tmp_path)
    engine = LocalEngine(findings)
    await engine.start()
    key, port = await serving(engine, 1, "any")
    pid = spawner_pid(tmp_path / "engine")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await gone(pid)
    assert await attack(engine, CONNECT, ("127.0.0.1", port), network="tenant", tenant=1) == [
        "done"
    ]
    await ended(engine, key)
    pid = spawner_pid(tmp_path / "engine")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await engine.close()
    await gone(pid)
    assert len(traces(findings)) == 4

    end_engine(
        dataclasses.replace(
            findings.config, network=dataclasses.replace(findings.config.network, fence="host")
        )
    )
    shutil.rmtree(tmp_path / "engine")
    assert str(tmp_path / "engine") in {one.owner.root for one in orphans.find()}, (
        "the doctor tells"
    )
    other = tmp_path / "other"
    other.mkdir()
    async with running(networked(other)):
        assert traces(findings) == []


async def test_rules_that_somebody_flushes_come_back(engine: LocalEngine, far: Outside) -> None:
    table = f"cloudml-{networked_instance(engine)}"
    with (
        far.listener(far.public) as public,
        far.listener(far.private) as private,
        listening("0.0.0.0") as own,
    ):
        places = [public.getsockname(), private.getsockname(), (far.machine, own.getsockname()[1])]
        assert await attack(engine, CONNECT, *places, network="tenant") == [
            "done",
            UNREACHABLE,
            UNREACHABLE,
        ]
        subprocess.run(["nft", "delete", "table", "inet", table], check=True)
        async with asyncio.timeout(60):
            while subprocess.run(
                ["nft", "list", "table", "inet", table], capture_output=True, check=False
            ).returncode:
                await asyncio.sleep(0.01)
        assert await attack(engine, CONNECT, *places, network="tenant") == [
            "done",
            UNREACHABLE,
            UNREACHABLE,
        ]


async def test_networks_that_somebody_has_removed_are_made_anew(
    engine: LocalEngine, far: Outside
) -> None:
    pid = spawner_pid(Path(engine._config.root))
    clear(pins.Pins(networked_instance(engine)))
    with far.listener(far.public) as public, far.listener(far.private) as private:
        places = [public.getsockname(), private.getsockname()]
        assert await attack(engine, CONNECT, *places, network="tenant") == ["done", UNREACHABLE]
    assert spawner_pid(Path(engine._config.root)) == pid, "the spawner outlived it"


async def test_without_the_machines_table_the_fence_inside_still_holds(
    engine: LocalEngine, far: Outside
) -> None:
    pid = spawner_pid(Path(engine._config.root))
    assert pid is not None
    with far.listener(far.private) as private, listening("0.0.0.0") as own:
        places = [private.getsockname(), (far.machine, own.getsockname()[1])]
        await attack(engine, "tell(1)", network="tenant")
        os.kill(pid, signal.SIGSTOP)
        try:
            subprocess.run(
                ["nft", "delete", "table", "inet", f"cloudml-{networked_instance(engine)}"],
                check=True,
            )
            pin = pins.Pins(networked_instance(engine)).path(1)
            tries = [partial(socket.create_connection, place, 5) for place in places]
            tried = within(pin, lambda: [outcome(attempt) for attempt in tries])
        finally:
            os.kill(pid, signal.SIGCONT)
        assert tried == [UNREACHABLE, UNREACHABLE]
