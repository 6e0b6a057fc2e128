"""The power is cut at random moments under load, ``FAULTS_CUTS`` times: what was acknowledged is on
the disk.

Everything of the server dies at once, what it had not forced to the disk is lost in part
(``support.power.disk`` says how), and the machine that starts again has another boot id. Not
simulated: a disk that lies about what it has forced, PostgreSQL, and layers of packages, which lie
outside the data folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    NotFound,
    TransportError,
    TryAgain,
)
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.storage.transfers import Transfers
from support import invariants
from support.environments import pack
from support.machine import end_engine
from support.power.disk import Disk, Library
from support.server import RealServer, eventually, trainer

CUTS = int(os.environ.get("FAULTS_CUTS", "6"))
_MIB = 1 << 20
_GREED = (1.0, 1.0, 0.7, 0.3)
"""How much of what was not forced is lost, cut by cut: all of it tells most."""
_KINDS: dict[str, list[str]] = {"plain": [], "retried": ["fail"], "endless": ["forever"]}

pytestmark = [pytest.mark.timeout(600 + 60 * CUTS), pytest.mark.xdist_group("power")]


class Promises:
    """Somebody who works, and notes what was promised to him."""

    def __init__(self, server: RealServer) -> None:
        self.jobs: dict[str, tuple[int, int]] = {}
        self.gone: set[str] = set()
        self.objects: dict[str, bytes | None] = {}
        self.wrong: list[str] = []
        self.kinds: dict[str, str] = {}
        self._server = server
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def work(self) -> None:
        """Begin; until ``rest``."""
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._go_on, args=(part,), name=part.__name__)
            for part in (self._submit, self._store, self._look, self._remove)
        ]
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """Stop, with what is under way given up."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, part: Callable[[CloudMlClient], None]) -> None:
        client = self._server.client()
        client._transport.sleep = lambda _: None
        client.storage._transfers = Transfers(in_parts_from=_MIB, part_size=_MIB)
        while not self._stop.is_set():
            try:
                part(client)
            except (TransportError, TryAgain):
                self._stop.wait(0.05)
            except CloudMlError as error:
                self.wrong.append(f"{error!r}")
                self._stop.wait(0.2)

    def _submit(self, client: CloudMlClient) -> None:
        kind = random.choice([*_KINDS])
        name = f"power-{os.urandom(5).hex()}"
        words = [f"fds://cloudml/run-{name}", *_KINDS[kind]]
        client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                "fds://cloudml/witness-1.0.tar.gz",
                job_args=words,
                max_retries=5,
            )
        )
        self.kinds[name] = kind
        self.jobs[name] = (0, 0)
        self._stop.wait(random.expovariate(6))

    def _store(self, client: CloudMlClient) -> None:
        key = f"kept/{random.randrange(4)}/{random.randrange(12)}"
        content = os.urandom(random.choice((10, 5000, 100_000, 2 * _MIB + 7)))
        file = self._server.folder / "power-object"
        file.write_bytes(content)
        self.objects.pop(key, None)  # until it is acknowledged, it may be the old or the new
        client.storage.upload(file, f"fds://cloudml/{key}")
        self.objects[key] = content
        if random.random() < 0.2:
            self.objects.pop(key)
            client.storage.delete(f"fds://cloudml/{key}")
            self.objects[key] = None

    def _look(self, client: CloudMlClient) -> None:
        for name, before in list(self.jobs.items()):
            try:
                job = client.describe_train_job(name)
            except NotFound:
                if name not in self.gone and name in self.jobs:
                    self.wrong.append(f"{name} was acknowledged and is lost")
                continue
            order = WorkloadStatus(Phase(job.phase), attempt=job.attempt).order
            if order < before:
                self.wrong.append(f"{name} went backwards: {before}, then {order} ({job.phase})")
            self.jobs[name] = order
        self._stop.wait(0.02)

    def _remove(self, client: CloudMlClient) -> None:
        """Stop an endless job now and then, and forget one that has ended."""
        for name in random.sample([*self.jobs], min(3, len(self.jobs))):
            if name in self.gone:
                continue
            try:
                if self.kinds[name] == "endless":
                    client.cancel_train_job(name)
                elif client.describe_train_job(name).finished and random.random() < 0.3:
                    self.gone.add(name)
                    client.delete_train_job(name)
                    self.jobs.pop(name)
            except (Conflict, NotFound, AlreadyExists):
                pass
        self._stop.wait(0.1)

    def check(self, client: CloudMlClient) -> None:
        """What was promised before the cut."""
        self._look(client)
        for key, content in self.objects.items():
            try:
                with client.storage.open(f"fds://cloudml/{key}") as body:
                    found: bytes | None = body.read()
            except NotFound:
                found = None
            if found != content:
                state = "nothing" if found is None else f"{len(found)} bytes"
                self.wrong.append(
                    f"the object {key} of {content and len(content)} bytes is now {state}"
                )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("library"))


def _of_a_witness(path: Path) -> bool:
    """What jobs have noted for the test lies on another disk, as it were."""
    return (
        path.parts[:2] == ("objects", "cloudml")
        and path.parts[2:] > ("run-",)
        and path.parts[2].startswith("run-")
    )


@pytest.fixture
def machine(tmp_path: Path, library: Library) -> Iterator[tuple[RealServer, Disk]]:
    """A server that is not started, and its disk."""
    folder = tmp_path / "server"
    data = folder / "data"
    data.mkdir(parents=True)
    notes = tmp_path / "notes"
    notes.mkdir()
    disk = Disk(library, data, notes, stays=_of_a_witness)
    settings = {"CLOUDML_ENGINE_STOP_GRACE_S": 1, "CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 4}
    server = RealServer(folder, **settings, **disk.variables)
    try:
        yield server, disk
    finally:
        server.destroy()


def cut(server: RealServer, disk: Disk, luck: random.Random, greed: float) -> None:
    """Everything of the machine is gone at once, and of the disk what was not forced."""
    server.kill()
    if (server.data / "engine").exists():
        end_engine(server.findings.config)
    eventually(lambda: users_of(server.data) == [], "nobody uses the disk any more")
    disk.cut(luck, greed)


def users_of(folder: Path) -> list[str]:
    """Processes whose first environment names the disk, or that work below it."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = Path(entry.path, "environ").read_bytes()
                if b"POWER_ROOT=%s" % os.fsencode(folder) in words or str(folder) in str(
                    Path(entry.path, "cwd").readlink()
                ):
                    found.append(entry.name)
    return found


def test_the_power_is_cut_under_load(
    machine: tuple[RealServer, Disk], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, disk = machine
    luck = random.Random(int(os.environ.get("FAULTS_SEED", "5")))
    server.start()
    file = pack(trainer(tmp_path / "code", invariants.WITNESS), tmp_path / "witness-1.0.tar.gz")
    server.client().storage.upload(file, "fds://cloudml/witness-1.0.tar.gz")
    promises = Promises(server)
    for number in range(CUTS):
        promises.work()
        time.sleep(luck.uniform(0.5, 3.0))  # the random moment that this test is about
        server.kill()
        promises.rest()
        cut(server, disk, luck, _GREED[number % len(_GREED)])
        server.start()
        promises.check(server.client())
        assert promises.wrong == [], f"after cut {number + 1}"
    end(server, promises)
    assert promises.wrong == []
    assert invariants.left_behind(server) == []
    server.cli("server", "--data-dir", str(server.data), "check", home=server.home).good()
    with capsys.disabled():
        print(
            f"\n{CUTS} cuts: {len(promises.kinds)} jobs and {len(promises.objects)} objects "
            "acknowledged, all kept",
            flush=True,
        )


def end(server: RealServer, promises: Promises) -> None:
    """Every job comes to its end, none has run an attempt twice."""
    client = server.client()
    for name in promises.jobs:
        if promises.kinds[name] == "endless":
            client.cancel_train_job(name)
    for name in promises.jobs:
        if name not in promises.gone:
            client.get_train_job(name).wait(120)
        promises.wrong += invariants.ran_twice(name, server.bucket(f"run-{name}"))


@pytest.mark.parametrize("seed", range(max(2, CUTS // 3)))
def test_the_power_is_cut_while_a_server_starts_for_the_first_time(
    seed: int, machine: tuple[RealServer, Disk]
) -> None:
    server, disk = machine
    luck = random.Random(seed)
    starting = threading.Thread(target=try_to_start, args=(server,))
    starting.start()
    eventually(lambda: server.process is not None, "it starts")
    moment = luck.choice(
        ["server.lock", "engine", "state.db", "objects", "packages", "credentials.json"]
    )
    eventually((server.data / moment).exists, f"{moment} is there")
    time.sleep(luck.uniform(0.0, 0.05))
    cut(server, disk, luck, luck.choice(_GREED))
    starting.join()
    server.start()
    assert server.client().whoami().role == "admin"
    assert invariants.left_behind(server) == []


def try_to_start(server: RealServer) -> None:
    """It may end meanwhile; then its output may be closed while it is read, too."""
    with contextlib.suppress(AssertionError, ValueError, OSError):
        server.start()


_WRITER = """
import os, sys
def force(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
for name in ("written", "forced", "named"):
    with open(name, "w") as file:
        file.write(name * 1000)
force("forced")
os.mkdir("folder")
open("folder/inside", "w").close()
force("folder/inside")
force("folder")
force("named")
os.link("named", "also")
force(".")
os.rename("named", "renamed")
with open("also", "a") as file:
    file.write("more")
print(open("/proc/sys/kernel/random/boot_id").read())
"""


def test_what_was_not_forced_is_lost_and_the_machine_has_another_boot_id(
    library: Library, tmp_path: Path
) -> None:
    """The control: the disk that the tests above rely on takes away what it should."""
    root, notes = tmp_path / "root", tmp_path / "notes"
    root.mkdir()
    notes.mkdir()
    disk = Disk(library, root, notes)
    environment = {**os.environ, **disk.variables}
    done = subprocess.run(
        [sys.executable, "-c", _WRITER], cwd=root, env=environment, check=True, capture_output=True
    )
    before = done.stdout.decode().strip()
    assert before == (notes / "boot").read_text().strip()
    disk.cut(random.Random(1), 1.0)
    assert (notes / "boot").read_text().strip() != before
    sizes = {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file()
    }
    assert sizes == {"written": 0, "forced": 6000, "named": 5000, "also": 5000, "folder/inside": 0}
    lost: set[str] = set()
    for seed in range(20):
        late = root / f"late-{seed}"
        late.write_bytes(bytes(range(256)) * 64)
        disk.cut(random.Random(seed), 0.5)
        found = late.read_bytes() if late.exists() else None
        lost.add(
            "gone" if found is None else "whole" if found == bytes(range(256)) * 64 else "torn"
        )
    assert lost == {"gone", "torn", "whole"}
