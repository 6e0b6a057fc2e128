"""Tasks of real frameworks die while they train: each role of each framework, of each cause.

``make faults PARTS=frameworks``. A server prepares the frameworks first, which downloads them on a
fresh machine. ``FRAMEWORKS_SLICE=N`` tries one death of every other framework, others with each number.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from faults import gang_trainer
from faults.gang_scene import Hold, Scene
from faults.outcomes import differences_from_the_table
from support import deaths
from support.deaths import Death
from support.environments import pack
from support.server import RealServer, serving, trainer

LIMIT_S = 300.0
_PREPARE_S = 1500.0
TEST = "tests/faults/test_frameworks.py::test_a_task_of_a_framework_dies"
TRAINERS = Path(__file__).with_name("framework_trainers")
_UNREACHABLE = ("Failed to fetch", "dns error", "error sending request", "Connection refused")

pytestmark = [
    pytest.mark.runtimes,
    pytest.mark.timeout(_PREPARE_S + 2 * LIMIT_S),
    pytest.mark.xdist_group("frameworks"),
]


@dataclass(frozen=True)
class Victim:
    """Who dies of a framework.

    Args:
        task: Its name.
        stands: The task that stops at the moment, if it is another.
        program: What the victim runs.
        variable: One that only the victim has, of the processes of its task.
        raises: Whether an error in the user's code ends it.
        foreign: Whether it runs none of the test's code. Then it is told to end by SIGTERM, and
            another process uses up the memory of its task.
    """

    task: str
    stands: str = ""
    program: str = "python"
    variable: str = ""
    raises: bool = True
    foreign: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it stops by itself."""
        return not self.stands


WORKERS = {"worker": Victim("worker-1")}
SERVED = {"stands": "master-0", "raises": False}
"""Those that answer the master, in code of TensorFlow."""


@dataclass(frozen=True)
class Framework:
    """How a framework is trained with.

    Args:
        fields: Of the job.
        runtime: What is prepared before.
        victims: Who dies, by the role.
        exact: Whether the model is the same to the bit each time.
        prints_for: The task whose log has what others print.
        hang_timeout: Of a job whose tasks are to hang.
    """

    fields: Mapping[str, Any]
    runtime: str = ""
    victims: Mapping[str, Victim] = field(default_factory=lambda: WORKERS)
    exact: bool = True
    prints_for: str = ""
    hang_timeout: str = "10s"


FRAMEWORKS = {
    "pytorch": Framework({"framework": "pytorch", "worker_count": 2}, "pytorch==2.13"),
    "jax": Framework({"framework": "jax", "worker_count": 2}, "jax==0.10"),
    "xgboost": Framework({"framework": "xgboost", "worker_count": 2}, "xgboost==3.2"),
    "lightgbm": Framework({"framework": "lightgbm", "worker_count": 2}, "lightgbm==4.7"),
    "tensorflow_workers": Framework(
        {"framework": "tensorflow", "worker_count": 1},
        "tensorflow==2.21",
        {"leader": Victim("master-0"), "worker": Victim("worker-0")},
    ),
    "tensorflow_ps": Framework(
        {"framework": "tensorflow", "ps_count": 1, "worker_count": 2},
        "tensorflow==2.21",
        {
            "leader": Victim("master-0"),
            "worker": Victim("worker-1", **SERVED),
            "ps": Victim("ps-0", **SERVED),
        },
        exact=False,
    ),
    "tensorflow1": Framework(
        {"framework": "tensorflow", "framework_version": "1", "ps_count": 1, "worker_count": 1},
        "tensorflow==1",
        {
            "leader": Victim("master-0"),
            "worker": Victim("worker-0"),
            "ps": Victim("ps-0", **SERVED),
        },
        exact=False,
        hang_timeout="45s",  # a worker looks every 30 s whether the master is ready
    ),
    "mpi": Framework(
        {"recipe": "mpi", "framework": "python", "worker_count": 2},
        victims={
            "process": Victim("worker-1", variable="OMPI_COMM_WORLD_RANK"),
            "launcher": Victim(
                "launcher-0", stands="worker-1", program="prterun", raises=False, foreign=True
            ),
        },
        prints_for="launcher-0",
    ),
    "dask": Framework(
        {"recipe": "dask", "framework": "python", "worker_count": 2},
        victims={
            "client": Victim("client-0"),
            "scheduler": Victim("scheduler-0", stands="client-0", raises=False),
            "worker": Victim("worker-1", raises=False),
        },
    ),
}
CAUSES = ("SIGKILL", "SIGSEGV", "exit", "memory", "hang")
SLICE = os.environ.get("FRAMEWORKS_SLICE", "")
UNDISTURBED_RUNS = int(os.environ.get("FAULTS_UNDISTURBED", "2" if SLICE else "10"))
"""Of those whose models differ each time."""


def chosen() -> list[Death]:
    """The combinations to try."""
    found = deaths.played(TEST)
    if not SLICE:
        return found
    own = [[death for death in found if death.job == name] for name in FRAMEWORKS]
    turn, half = divmod(int(SLICE), 2)
    return [each[(turn + number) % len(each)] for number, each in enumerate(own)][half::2]


class Stage:
    """A server, and what is made once for each framework."""

    def __init__(self, server: RealServer, folder: Path) -> None:
        self.server = server
        self.client: CloudMlClient = server.client()
        self._folder = folder
        self.undisturbed = cache(self._undisturbed)
        self.prepared = cache(self._prepared)

    def scene(self, name: str, framework: str, death: Death | None = None) -> Scene:
        """A job that trains, and stops at the moment of a death."""
        how = FRAMEWORKS[framework]
        fields = {"trainer_uri": self.prepared(framework), **how.fields}
        if death is None:
            fields["max_retries"] = 0
        holds: list[Hold] = []
        victim = Victim("")
        if death is not None:
            victim = how.victims[death.who]
            holds = [(death.moment, victim.stands or victim.task)]
            fields |= {"hang_timeout": how.hang_timeout} if death.cause == "hang" else {}
        return Scene(
            self.server,
            self.client,
            name.replace("_", "-"),
            fields,
            holds,
            victim.task,
            LIMIT_S,
            victim.program,
            how.prints_for,
            victim.variable,
        )

    def _prepared(self, framework: str) -> str:
        """Where the package of its trainer is. Skips if the framework cannot be had here."""
        if runtime := FRAMEWORKS[framework].runtime:
            ran = self.server.cli("framework", "prepare", runtime, timeout_s=_PREPARE_S)
            if ran.code:
                _skip_if_unreachable(framework, ran.err)
            ran.good()
        code = (TRAINERS / f"{framework}.py").read_text("utf-8")
        source = trainer(self._folder / framework, code)
        for module in (Path(gang_trainer.__file__), TRAINERS / "common.py"):
            (source / "trainer" / module.name).write_text(module.read_text("utf-8"), "utf-8")
        uri = f"fds://cloudml/{framework}-1.0.tar.gz"
        self.client.storage.upload(pack(source, self._folder / f"{framework}-1.0.tar.gz"), uri)
        return uri

    def _undisturbed(self, framework: str) -> list[str]:
        """The results of jobs in which nobody dies."""
        runs = 1 if FRAMEWORKS[framework].exact else UNDISTURBED_RUNS
        return [self._run(framework, f"undisturbed-{framework}-{run}") for run in range(runs)]

    def _run(self, framework: str, name: str) -> str:
        assert not self.server.bucket(name).exists(), "it has failed before"
        scene = self.scene(name, framework)
        job = scene.end()
        if not job.succeeded:
            _skip_if_unreachable(framework, scene.log())
        assert job.succeeded, f"{job.message}\n{scene.log()[-4000:]}"
        assert scene.wrong() == []
        return (scene.place / "result").read_text()


def _skip_if_unreachable(framework: str, words: str) -> None:
    if any(word in words for word in _UNREACHABLE):
        pytest.skip(f"the packages of {framework} cannot be fetched here: {words[-200:]}")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with serving(
        tmp_path_factory.mktemp("frameworks"), CLOUDML_ENVIRONMENTS_LAYERS_LIMIT_BYTES=0
    ) as server:
        yield Stage(server, tmp_path_factory.mktemp("trainers"))


def test_every_framework_is_killed_and_has_its_trainer() -> None:
    assert {death.job for death in deaths.played(TEST)} == set(FRAMEWORKS)
    assert {path.stem for path in TRAINERS.glob("*.py")} == {*FRAMEWORKS, "common"}


def test_each_role_of_each_framework_dies_of_each_cause() -> None:
    played = {(death.job, death.who, death.cause) for death in deaths.played(TEST)}
    roles = [(name, who) for name, how in FRAMEWORKS.items() for who in how.victims]
    expected = {(*role, cause) for role in roles for cause in CAUSES}
    assert expected == played


def bring_about(death: Death, victim: Victim, scene: Scene) -> None:
    """Have the victim die. One that hangs stands at its moment; others are stopped."""
    if victim.foreign and death.cause == "exit":
        scene.send(signal.SIGTERM)
    elif victim.foreign and death.cause == "memory":
        scene.exhaust_memory()
    elif death.cause == "exit":
        scene.raise_in_victim() if victim.raises else scene.order("exit")
    elif death.cause == "memory":
        scene.order("memory")
    elif death.cause != "hang":
        scene.send(getattr(signal, death.cause))
    elif not victim.is_held:
        scene.send(signal.SIGSTOP)
        scene.open_gates()
    if death.follows in ("task", "sessions"):
        scene.await_restart()
        scene.open_gates(without_victim=True)


def restarted_by(death: Death, victim: Victim, log: str) -> list[str]:
    """The tasks that start again alone."""
    if death.follows == "sessions":
        # A monitored session opens again what was aborted or cannot be reached. While the ps comes
        # back, what it asked for may be cancelled, too: that ends its program.
        return [victim.task, *re.findall(r"cloudml: (\S+) starts again .*CancelledError", log)]
    return [victim.task] if death.follows == "task" else []


def differs(framework: str, found: str, undisturbed: list[str]) -> list[str]:
    """In what a model differs from those of jobs in which nobody has died.

    Where these differ among each other, all weights are to become 3. Each may be away from those
    of the others by as much as they are from each other.
    """
    if FRAMEWORKS[framework].exact:
        return [] if [found] == undisturbed else [f"{found[:200]}, not {undisturbed[0][:200]}"]
    likely = [weight for result in undisturbed for weight in json.loads(result)]
    least, most = 2 * min(likely) - max(likely), 2 * max(likely) - min(likely)
    wrong = [value for value in json.loads(found) if not least <= value <= most]
    return [f"{value} is not like one of {likely}" for value in wrong]


@pytest.mark.parametrize("death", chosen(), ids=lambda death: death.name)
def test_a_task_of_a_framework_dies(death: Death, stage: Stage) -> None:
    undisturbed = stage.undisturbed(death.job)
    victim = FRAMEWORKS[death.job].victims[death.who]
    scene = stage.scene(death.name.lower(), death.job, death)
    scene.await_holds()
    bring_about(death, victim, scene)
    job = scene.end()
    wrong = differences_from_the_table(
        death, scene, stage.client, job, restarted_by(death, victim, scene.log())
    )
    # The launcher of MPI hands on what the processes print. It ends with what it has not written
    # yet, and while it is stopped nobody reads.
    wrong += scene.wrong(whole_log=not victim.foreign or death.cause == "exit")
    result = scene.place / "result"
    if result.exists():
        wrong += differs(death.job, result.read_text(), undisturbed)
    assert wrong == [], f"{job.message}\n{scene.log()[-4000:]}"
