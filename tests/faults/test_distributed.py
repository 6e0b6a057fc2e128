"""Every combination of the table of deaths: who dies, of what, and when. Real server, real
supervisors, and a trainer that stops at the moment.

``FAULTS_SLICE`` tries a part of them, spread over the table.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from cloud_ml.client import CloudMlClient
from faults.gang_scene import COMMANDS, GANG, Hold, Scene, upload
from faults.outcomes import differences_from_the_table
from faults.scenes import SLICE, fragile, order, reached
from support import deaths
from support.deaths import Death
from support.server import RealServer, eventually

pytestmark = pytest.mark.timeout(300)

JOBS: dict[str, dict[str, Any]] = {
    "one": {},
    "retried": {"max_retries": 3},
    "several": GANG,
    "alone": GANG | {"task_retries": 10},
    "exit-code": GANG | {"restart": {"policy": "ExitCode"}},
    "growing": {"restart": {"memory_factor": 2}},
    "growing-several": GANG | {"restart": {"memory_factor": 2}},
}
OF_ONE_TASK = ("one", "retried", "growing")
TASKS = ("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0")
PLATFORM = ("server", "spawner", "supervisor", "machine")
HANG_TIMEOUT = "3s"
STRIDE = 1 if SLICE == 1 else 2 * SLICE + 1
"""A slice has fewer than those of other faults: each combination takes seconds."""
GROUPS = 2
"""How many servers share the combinations."""


def chosen() -> list[Any]:
    """The combinations to try, in an order that mixes the rows."""
    everything = deaths.played()
    mixed = random.Random(2016).sample(everything, len(everything))
    return [
        pytest.param(
            death, id=death.name, marks=pytest.mark.xdist_group(f"distributed-{number % GROUPS}")
        )
        for number, death in enumerate(mixed[::STRIDE])
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("distributed")) as server:
        upload(server, tmp_path_factory.mktemp("code"))
        yield server


@pytest.fixture(scope="module")
def client(server: RealServer) -> CloudMlClient:
    return server.client()


@pytest.fixture(scope="module")
def undisturbed(server: RealServer, client: CloudMlClient) -> dict[bool, bytes]:
    """The results of jobs in which nobody died, by whether they have several tasks."""
    results = {}
    for name in ("one", "several"):
        scene = Scene(server, client, f"undisturbed-{name}", JOBS[name])
        job = scene.end()
        assert job.succeeded, job.message
        assert scene.wrong() == []
        results[bool(job.tasks)] = (scene.place / "result").read_bytes()
    return results


def fields_for(death: Death) -> dict[str, Any]:
    """The fields of the job."""
    hangs = death.cause == "hang"
    return JOBS[death.job] | ({"hang_timeout": HANG_TIMEOUT} if hangs else {})


def holds_for(death: Death) -> list[Hold]:
    """Where tasks of the job have to stop, so that it stands at the moment of the death."""
    leader = "master-0" if death.job in OF_ONE_TASK else "chief-0"
    if death.who in COMMANDS:
        return [(death.who, death.who)]
    if death.moment == "staging":
        return [("prepare", "prepare")]
    if death.who in PLATFORM:
        return [(death.moment, leader)]
    victim = task_of(death)
    trains = death.who not in ("ps", "evaluator")
    if death.moment == "start":
        # An evaluator is ended with the others. One that dies needs the time for it; one that hangs
        # is to hold up nobody.
        stays = death.who == "evaluator" and death.cause != "hang"
        end = [("finishing", leader)] if stays else []
        return [("start", victim), *end]
    if death.moment == "saving" or not trains:
        return [(death.moment, leader)]
    return [(death.moment, victim)]


def task_of(death: Death) -> str:
    """The name of who dies: of several workers, the second."""
    if death.who in (*COMMANDS, *PLATFORM):
        return death.who
    return "worker-1" if death.who == "worker" else f"{death.who}-0"


def bring_about(death: Death, scene: Scene, server: RealServer) -> None:
    """Have somebody die. The server is started again."""
    if death.who == "server":
        server.kill()
        server.start()
    elif death.who == "spawner":
        server.kill_spawner()
    elif death.who == "supervisor":
        scene.kill_supervisor()
    elif death.cause in ("SIGKILL", "SIGSEGV"):
        scene.send(getattr(signal, death.cause))
    elif death.cause != "hang":
        scene.order(death.cause)
    elif not stands_at_its_moment(death):
        scene.have_it_hang()


def stands_at_its_moment(death: Death) -> bool:
    """Whether the victim itself stops at the moment. What does not train has only a start."""
    return death.who not in ("ps", "evaluator") or death.moment == "start"


def let_go_on(death: Death, scene: Scene) -> None:
    """Open the gates of those who live on, after the death has had its effect."""
    if death.cause == "hang":
        # At the end nobody needs the parameter server any more: so all of them stand still.
        if stands_at_its_moment(death) or (death.who, death.moment) == ("ps", "finishing"):
            return
    elif death.follows == "task":
        scene.await_restart()
    elif death.follows == "nothing":
        if death.who not in PLATFORM:
            scene.await_end_of_task()
    else:
        return
    scene.open_gates(without_victim=True)


def restarted_by(death: Death) -> list[str]:
    """The tasks that start again alone."""
    return [task_of(death)] if death.follows == "task" else []


@pytest.mark.parametrize("death", chosen())
def test_a_death(
    death: Death, server: RealServer, client: CloudMlClient, undisturbed: dict[bool, bytes]
) -> None:
    scene = Scene(
        server, client, death.name.lower(), fields_for(death), holds_for(death), task_of(death)
    )
    scene.await_holds()
    bring_about(death, scene, server)
    let_go_on(death, scene)
    job = scene.end()
    if death.who == "spawner":  # the next one comes with the next job, and clears up after it
        assert Scene(server, client, f"{job.name}-next", {}).end().succeeded
    wrong = differences_from_the_table(death, scene, client, job, restarted_by(death))
    wrong += scene.wrong(whole_log=death.who != "supervisor")
    result = scene.place / "result"
    if result.exists() and result.read_bytes() != undisturbed[death.job not in OF_ONE_TASK]:
        wrong.append(f"the result is {result.read_text()[:100]}")
    assert wrong == [], f"{job.message}\n{b''.join(scene.handle.logs()).decode()[-4000:]}"


@pytest.mark.xdist_group("distributed-0")
@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_process_dies_that_waits_to_become_a_task(
    number: int, server: RealServer, client: CloudMlClient, undisturbed: dict[bool, bytes]
) -> None:
    """All tasks start in the same attempt, or none."""
    order(server, "supervisor.start.seats", "stop")
    scene = Scene(server, client, f"seat-{number}", JOBS["several"])
    supervisor = eventually(lambda: reached(server, "supervisor.start.seats"), "it stands")
    waiting = sorted(psutil.Process(supervisor).children(), key=lambda one: one.pid)
    assert len(waiting) == len(TASKS)
    waiting[number].kill()
    zombie = psutil.STATUS_ZOMBIE
    eventually(lambda: waiting[number].status() == zombie, "it has ended")
    os.kill(supervisor, signal.SIGCONT)
    job = scene.end()
    assert (job.phase, job.attempt) == ("Succeeded", 1), job.message
    assert scene.wrong() == []
    assert (scene.place / "result").read_bytes() == undisturbed[True]


@pytest.mark.xdist_group("distributed-0")
def test_a_task_dies_while_no_server_runs(
    server: RealServer, client: CloudMlClient, undisturbed: dict[bool, bytes]
) -> None:
    holds = [("training", "worker-1"), ("finishing", "chief-0")]
    scene = Scene(server, client, "no-server", JOBS["alone"], holds, "worker-1")
    scene.await_hold(holds[0])
    server.kill()
    scene.send(signal.SIGKILL)
    scene.await_restart()
    scene.await_hold(holds[1])
    server.start()
    scene.open_gates(without_victim=True)
    job = scene.end()
    death = Death("alone", "worker", "SIGKILL", "training", "task", False)
    wrong = differences_from_the_table(death, scene, client, job, ["worker-1"])
    assert [*wrong, *scene.wrong()] == []
    assert (scene.place / "result").read_bytes() == undisturbed[True]
