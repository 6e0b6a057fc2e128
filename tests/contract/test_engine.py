"""The contract of engines, over the fake and over this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cloud_ml.controller.programs.packages import Packages
from cloud_ml.domain.addresses import Address
from cloud_ml.engines.base import Engine
from cloud_ml.engines.fake import FakeEngine, Machine
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.isolation import landlock
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.gateway.dialer import Dialer
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.settings import EngineSettings
from cloud_ml.testing.engine import HANGING, LISTENING, EngineContract
from support.buckets_below import BucketsBelow
from support.machine import end_engine

PACKAGES = Packages(MemoryObjectStore(), Path("/nonexistent"))
"""Where no trainer is."""
PYTHON = (
    "/usr/bin/python3" if Path("/usr/bin/python3").exists() else os.path.realpath(sys.executable)
)
Dial = Callable[[Address], Awaitable[bytes]]


class Listener(asyncio.Protocol):
    """All that is sent."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.whole.set_result(bytes(self.data))


def dialled_below(job_sockets: str) -> Dial:
    """Connects as the gateway does."""

    async def dial(address: Address) -> bytes:
        listener = Listener()
        await Dialer(asyncio.get_running_loop(), job_sockets).connect(address, lambda: listener)
        return await asyncio.wait_for(listener.whole, 30.0)

    return dial


class TestFakeEngine(EngineContract):
    def printing(self, text: str) -> tuple[str, ...]:
        return ("fake", "print", text)

    def exiting(self, code: int) -> tuple[str, ...]:
        return ("fake", "exit", str(code))

    def failing(self, text: str, code: int) -> tuple[str, ...]:
        return ("fake", "exit", str(code), text)

    def waiting(self) -> tuple[str, ...]:
        return ("fake", "wait")

    def stubborn(self) -> tuple[str, ...]:
        return ("fake", "stubborn")

    def reading_notice(self) -> tuple[str, ...]:
        return ("fake", "notice")

    def leaving_first(self) -> tuple[str, ...]:
        return ("fake", "leave")

    def leaving_last(self) -> tuple[str, ...]:
        return ("fake", "leave")

    def ending_when_ready(self) -> tuple[str, ...]:
        return ("fake", "print", "complete")

    def hanging(self) -> tuple[str, ...]:
        return ("fake", "hang")

    def computing(self) -> tuple[str, ...]:
        return ("fake", "compute")

    def computing_after(self, step: int) -> tuple[str, ...]:
        return ("fake", "compute", str(step))

    def reporting(self, step: int) -> tuple[str, ...]:
        return ("fake", "report", str(step))

    def appending(self) -> tuple[str, ...]:
        return ("fake", "append")

    def talking(self) -> tuple[str, ...]:
        return ("fake", "print", "hello")

    def occupying(self, port: int) -> tuple[str, ...]:
        return ("fake", "occupy", str(port))

    def resolving(self, host: str) -> tuple[str, ...]:
        return ("fake", "resolve", host)

    def showing(self, file: str) -> tuple[str, ...]:
        del file  # a process of the imagination reads what it is told
        return ("fake", "print", "hello")

    def showing_parameters(self) -> tuple[str, ...]:
        return ("fake", "parameters")

    def listening(self, name: str, text: str) -> tuple[str, ...]:
        return ("fake", "listen", name, text)

    def serving(self, port: int, text: str) -> tuple[str, ...]:
        del port
        return ("fake", "print", text)

    def calling(self, host: str, port: int, text: str) -> tuple[str, ...]:
        del host, port
        return ("fake", "print", text)

    @pytest.fixture
    def bucket(self) -> str:
        return "bucket"

    @pytest.fixture
    def dial(self) -> Dial:
        return dialled_below("")

    @pytest.fixture
    async def engine(self, bucket: str) -> Engine:
        return FakeEngine(
            has_bucket=lambda name: name == bucket, has_package=lambda digest: digest != "0" * 64
        )

    @pytest.fixture
    async def reopen(self, engine: FakeEngine) -> Callable[[], Awaitable[Engine]]:
        async def again() -> Engine:
            return FakeEngine(
                engine.machine, has_bucket=engine.has_bucket, has_package=engine.has_package
            )

        return again


class TestFakeEngineOfThreeMachines(TestFakeEngine):
    """As a cluster: each machine has memory of its own, and the engine has a queue of its own."""

    node_memory = (2**30,) * 3

    def lose_node(self, engine: Engine, node: str) -> None:
        assert isinstance(engine, FakeEngine)
        engine.lose_node(node)

    def preempt(self, engine: Engine, key: GangKey, task: str) -> None:
        assert isinstance(engine, FakeEngine)
        engine.preempt(key, task)

    @pytest.fixture
    async def engine(self, bucket: str) -> Engine:
        return FakeEngine(
            Machine(self.node_memory),
            has_bucket=lambda name: name == bucket,
            has_package=lambda digest: digest != "0" * 64,
        )


@pytest.mark.xdist_group("local-engine")
class LocalEngineContract(EngineContract):
    """Over real processes of this machine, with the fences that a subclass asks for."""

    settings = EngineSettings(usage_period_s=0.5)
    isolates_gangs = os.geteuid() == 0

    def hanging(self) -> tuple[str, ...]:
        return (PYTHON, "-c", HANGING)

    def listening(self, name: str, text: str) -> tuple[str, ...]:
        return (PYTHON, "-c", LISTENING, name, text)

    @pytest.fixture(scope="class")
    @classmethod
    def findings(cls, tmp_path_factory: pytest.TempPathFactory) -> Findings:
        root = tmp_path_factory.mktemp("engine")
        return probe(
            cls.settings,
            root=root,
            environments_home=root / "environments",
            runtimes_dir=root / "runtimes",
            uv=Path("uv"),
        )

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory: pytest.TempPathFactory) -> BucketsBelow:
        root = tmp_path_factory.mktemp("buckets")
        (root / "bucket").mkdir(mode=0o755)
        (root / "bucket" / "greeting").write_text("hello\n")
        return BucketsBelow(root)

    @pytest.fixture
    def bucket(self) -> str:
        return "bucket"

    @pytest.fixture
    def dial(self, findings: Findings) -> Dial:
        return dialled_below(str(Ledger(Path(findings.config.root)).jobs))

    @pytest.fixture(scope="class")
    @classmethod
    async def engine(cls, findings: Findings, folders: BucketsBelow) -> AsyncIterator[Engine]:
        """One for all tests of a class, which use jobs of their own: to start it takes longer
        than a test.
        """
        engine = LocalEngine(findings, folders=folders)
        await engine.start()
        yield engine
        await engine.close()
        end_engine(findings.config)

    @pytest.fixture
    async def reopen(
        self, findings: Findings, folders: BucketsBelow
    ) -> AsyncIterator[Callable[[], Awaitable[Engine]]]:
        opened: list[Engine] = []

        async def again() -> Engine:
            engine = LocalEngine(findings, folders=folders)
            await engine.start()
            opened.append(engine)
            return engine

        yield again
        for engine in opened:
            await engine.close()


class TestLocalEngineAsTheMachineGives(LocalEngineContract):
    """Whatever fences this machine has."""


class TestLocalEngineWithoutFences(LocalEngineContract):
    """No sandbox, no control groups: the least that any machine gives."""

    restarts_tasks = False
    settings = dataclasses.replace(LocalEngineContract.settings, sandbox="none", cgroups="none")


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
class TestLocalEngineBehindLandlock(LocalEngineContract):
    """No bubblewrap and no control groups, but a kernel that lets a process fence itself in."""

    restarts_tasks = False
    settings = dataclasses.replace(LocalEngineContract.settings, sandbox="landlock", cgroups="none")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
class TestLocalEngineInTheSandboxWithoutLimits(LocalEngineContract):
    """Bubblewrap, but no writable control groups."""

    settings = dataclasses.replace(LocalEngineContract.settings, cgroups="none")


@pytest.mark.skipif(os.geteuid() != 0, reason="limits as root need root")
class TestLocalEngineWithLimitsWithoutSandbox(LocalEngineContract):
    """Control groups, but no bubblewrap."""

    settings = dataclasses.replace(LocalEngineContract.settings, sandbox="none")
