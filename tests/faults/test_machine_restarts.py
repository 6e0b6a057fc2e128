"""The machine restarts under jobs that stand at a moment: nothing of them lives on, and the machine has
another boot id. Its disk loses nothing here: see ``test_power``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.gang_scene import Scene, upload
from faults.outcomes import differences_from_the_table
from faults.test_distributed import JOBS, OF_ONE_TASK, STRIDE, holds_for
from support import deaths
from support.deaths import Death
from support.machine import end_engine
from support.power.disk import Disk, Library
from support.server import RealServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("machine-restarts")]

TEST = "tests/faults/test_machine_restarts.py::test_the_machine_restarts"


class Machine:
    """A machine with a server, which can restart."""

    def __init__(self, server: RealServer, disk: Disk) -> None:
        self.server = server
        self._disk = disk

    def restart(self, scene: Scene) -> None:
        """All processes are gone, and control groups and networks with them. None can tell of the
        end of another one.
        """
        self.server.kill()
        self.server.kill_spawner()
        scene.kill_supervisor()
        end_engine(self.server.findings.config)
        self._disk.boot()
        self.server.start()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder, notes = tmp_path_factory.mktemp("machine"), tmp_path_factory.mktemp("notes")
    watched = tmp_path_factory.mktemp("watched")  # nothing of the server's, whose disk is well
    disk = Disk(Library(tmp_path_factory.mktemp("library")), watched, notes)
    server = RealServer(folder, CLOUDML_ENGINE_STOP_GRACE_S=1, **disk.variables)
    try:
        server.start()
        upload(server, tmp_path_factory.mktemp("code"))
        yield Machine(server, disk)
    finally:
        server.destroy()


@pytest.fixture(scope="module")
def undisturbed(machine: Machine) -> dict[bool, str]:
    """The results of jobs under which no machine restarts, by whether they have one task."""
    results = {}
    for name in ("one", "several"):
        scene = Scene(machine.server, machine.server.client(), f"undisturbed-{name}", JOBS[name])
        assert scene.end().succeeded, scene.log()
        results[name == "one"] = (scene.place / "result").read_text()
    return results


@pytest.mark.parametrize("death", deaths.played(TEST)[::STRIDE], ids=lambda death: death.name)
def test_the_machine_restarts(death: Death, machine: Machine, undisturbed: dict[bool, str]) -> None:
    server = machine.server
    name = death.name.lower()
    scene = Scene(server, server.client(), name, JOBS[death.job], holds_for(death))
    scene.await_holds()
    machine.restart(scene)
    job = scene.end()
    wrong = differences_from_the_table(death, scene, server.client(), job, [])
    wrong += scene.wrong(whole_log=False)
    result = scene.place / "result"
    if result.exists() and result.read_text() != undisturbed[death.job in OF_ONE_TASK]:
        wrong.append(f"the result is {result.read_text()[:100]}")
    assert wrong == [], f"{job.message}\n{scene.log()[-4000:]}"
