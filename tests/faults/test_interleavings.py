"""Jobs of several tasks that are paused, restarted, resized and killed in a random order.

A round is a number, so that one that found something can be played again:
``FAULTS_FIRST_ROUND=17 FAULTS_ROUNDS=1 make faults PARTS=interleavings``. What is drawn is the same
then; how it meets is not.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import CloudMlError, Conflict
from cloud_ml.models.admin.quota import LimitsChange
from cloud_ml.models.jobs.job import Job, JobEvent
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults.scenes import Reviver, fragile, insist, order, orders_of
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("failpoints")]

ROUNDS = int(os.environ.get("FAULTS_ROUNDS", "4"))
FIRST = int(os.environ.get("FAULTS_FIRST_ROUND", "1"))
PACKAGE = "fds://cloudml/interleaved-1.0.tar.gz"
SOURCE = """
import fcntl, json, os, pathlib, signal, sys, time
from cloud_ml import job
place, role, index = pathlib.Path(sys.argv[1]), os.environ["CLOUDML_ROLE"], os.environ["CLOUDML_INDEX"]
attempt, restart, task = os.environ["CLOUDML_ATTEMPT"], os.environ["CLOUDML_TASK_RESTART"], role + "-" + index

def locked(name, how):
    file = open(place / name, "a")
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        (place / "overlap").write_text(f"{task} of attempt {attempt}: {name}")
    return file

own = locked(f"lock-{task}-{attempt}", fcntl.LOCK_EX)
for other in place.glob("lock-*"):
    if other.name.rpartition("-")[2] != attempt:
        locked(other.name, fcntl.LOCK_SH).close()
with open(place / "starts", "a") as starts:
    starts.write(f"{task}, attempt {attempt}, restart {restart}" + chr(10))
with open(place / "worlds", "a") as worlds:
    worlds.write(str(len(json.loads(os.environ["CLOUDML_CLUSTER"])["worker"])) + chr(10))
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "polite" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    step, model = json.load(open(job.latest().path))
except (AttributeError, FileNotFoundError):  # none, or somebody has removed it
    step, model = 0, 0
while not (place / "done").exists():
    time.sleep(0.05)
    step, model = step + 1, model + 7 * (step + 1)
    if index == "0" and step % 5 == 0:
        path = os.path.join(job.checkpoint_dir(), f"step-{step}")
        try:
            with open(path + ".new", "w") as file:
                json.dump([step, model], file)
            os.rename(path + ".new", path)
            job.saved(path, step)
        except OSError:  # somebody has removed the folder
            pass
if index == "0":
    print("model", step, model, flush=True)
"""
"""Each start leaves a line, and so does one that is not alone. The model follows from the steps."""
JOBS: dict[str, dict[str, Any]] = {
    "grows": {
        "recipe": "pytorch",
        "elastic": {"worker": {"min": 1, "max": 3}, "every_s": 1},
        "max_retries": 2,
    },
    "elastic": {
        "recipe": "cluster",
        "elastic": {"worker": {"min": 2, "max": 3}, "every_s": 1},
        "max_retries": 2,
    },
    "team": {"recipe": "cluster", "worker_count": 2, "task_retries": 2, "max_retries": 2},
}
WORLDS = {"grows": (1, 3), "elastic": (2, 3), "team": (2, 2)}
POINTS = (
    "state.commit.before",
    "state.commit.after",
    "controller.ensure.before",
    "controller.ensure.after",
    "controller.stop.before",
    "controller.stop.after",
    "spawner.tell.after",
    "spawner.bury.before",
    "spawner.bury.after",
    "supervisor.claim.after",
    "supervisor.stage.after",
    "supervisor.start.seats",
    "supervisor.start.after",
    "supervisor.restart.before",
    "supervisor.restart.after",
    "supervisor.end.before",
    "supervisor.end.after",
    "task_restart.order.before",
    "task_restart.order.after",
    "task_restart.request.taken",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    folder = tmp_path_factory.mktemp("interleavings")
    with fragile(folder) as server:
        file = pack(trainer(folder / "code", SOURCE), folder / "interleaved-1.0.tar.gz")
        server.client().storage.upload(file, PACKAGE)
        yield server


class Round:
    """Jobs, and somebody who does things to them.

    Args:
        server: May die, and is started again by somebody.
        number: Of the round; what is drawn follows from it.
    """

    def __init__(self, server: RealServer, number: int) -> None:
        self._server = server
        self._client = server.client()
        self._random = random.Random(number)
        self._org = insist(self._client.quota.show)[0].org
        kinds = self._random.sample([*JOBS], 2)
        self._jobs = {kind: self._submit(kind, f"{kind}-{number}") for kind in kinds}
        self.done: list[str] = []

    def _submit(self, kind: str, name: str) -> JobHandle:
        place = self._server.bucket(name)
        place.mkdir()
        place.chmod(0o777)  # the tasks have a user of their own
        word = self._random.choice(["plain", "stubborn", "polite"])
        return self._submit_to(name, word, **JOBS[kind])

    def _submit_to(self, name: str, *words: str, **fields: Any) -> JobHandle:
        return self._client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                PACKAGE,
                job_args=[f"fds://cloudml/{name}", *words],
                framework="python",
                memory_limit="64M",
                **fields,
            )
        )

    # ---- what is done to them

    def disturb(self) -> None:
        """Do something to one of the jobs, or to what they run on."""
        acts: list[Callable[[JobHandle], object]] = [
            JobHandle.pause,
            JobHandle.resume,
            JobHandle.resume,
            JobHandle.restart,
            JobHandle.dump_stacks,
            self._restart_task,
            self._change_quota,
            self._change_quota,
            self._kill_task,
            self._kill_server,
            self._kill_spawner,
            self._kill_supervisor,
            self._lose_checkpoints,
            self._order_death,
            self._order_death,
        ]
        job, act = self._random.choice([*self._jobs.values()]), self._random.choice(acts)
        self.done.append(f"{getattr(act, '__name__', act)} {job.name}")
        with contextlib.suppress(CloudMlError, ProcessLookupError):  # it cannot be done just now
            act(job)

    def _restart_task(self, job: JobHandle) -> None:
        task = self._random.choice(["worker-0", "worker-1"])
        for _ in range(self._random.randint(1, 2)):
            job.restart(task)

    def _change_quota(self, _: JobHandle) -> None:
        memory = self._random.choice(["80M", "200M", "1G"])
        self._client.quota.set(self._org, train=LimitsChange(memory=memory))

    def _kill_task(self, job: JobHandle) -> None:
        processes = self._server.processes_of(job.uid, job.refresh().attempt)
        if processes:
            os.kill(self._random.choice(processes), signal.SIGKILL)

    def _kill_server(self, _: JobHandle) -> None:
        process = self._server.process
        if process is not None:
            process.send_signal(signal.SIGKILL)

    def _kill_spawner(self, _: JobHandle) -> None:
        self._server.kill_spawner(may_have_left=True)

    def _kill_supervisor(self, job: JobHandle) -> None:
        gate = self._server.ledger.gate(GangKey(job.uid, job.refresh().attempt))
        if gate is not None and gate.claimed:
            os.kill(gate.pid, signal.SIGKILL)

    def _lose_checkpoints(self, _: JobHandle) -> None:
        shutil.rmtree(self._server.bucket(".checkpoints"), ignore_errors=True)

    def _order_death(self, _: JobHandle) -> None:
        order(self._server, self._random.choice(POINTS))

    def wait(self) -> None:
        """Let things happen, or nearly nothing."""
        time.sleep(self._random.choice([0.0, 0.05, 0.3, 1.0]))

    # ---- what must hold

    def calm(self) -> None:
        """Nobody dies from here on, and there is room for all."""
        for point in POINTS:
            (orders_of(self._server) / point).unlink(missing_ok=True)
        quota = LimitsChange(memory="8G")
        insist(lambda: self._client.quota.set(self._org, train=quota))
        for job in self._jobs.values():
            with contextlib.suppress(Conflict):  # it has ended
                insist(job.resume)
        for job in self._jobs.values():
            self._until_it_runs(job)

    def _until_it_runs(self, job: JobHandle) -> None:
        def runs() -> bool:
            return insist(job.refresh).phase == "Running" or job.finished

        eventually(runs, f"{job.name} runs")

    def wrong(self) -> list[str]:
        """Let the jobs end; what does not hold then."""
        wrong = []
        for job in self._jobs.values():
            if job.succeeded:
                wrong.append(f"{job.name} has completed before its tasks were done")
            (self._server.bucket(job.name) / "done").touch()
        for kind, job in self._jobs.items():
            ended = insist(lambda: job.wait(90))  # noqa: B023
            events = insist(job.events)
            wrong += [f"{job.name}: {one}" for one in self._wrong_with(kind, job, ended, events)]
        self._run_another()
        return wrong + invariants.left_behind(self._server)

    def _run_another(self) -> None:
        """Have a spawner again: it removes the control groups of one that was killed."""
        name = f"after-{next(iter(self._jobs.values())).name}"
        place = self._server.bucket(name)
        place.mkdir()
        place.chmod(0o777)
        (place / "done").touch()
        job = insist(lambda: self._submit_to(name, **JOBS["team"]))
        ended = insist(lambda: job.wait(90))
        assert ended.succeeded, ended.message

    def _wrong_with(
        self, kind: str, job: JobHandle, ended: Job, events: list[JobEvent]
    ) -> list[str]:
        place, (least, most) = self._server.bucket(job.name), WORLDS[kind]
        wrong = invariants.started_twice(job.name, place)
        worlds = (place / "worlds").read_text().split() if (place / "worlds").exists() else []
        wrong += [f"a world of {one}" for one in worlds if not least <= int(one) <= most]
        if "elastic" in JOBS[kind]:
            starts = [one.message for one in events if one.reason == "Starting"]
            wrong += [one for one in starts if not re.search(r" with [1-3] of 3 tasks$", one)]
        log = b"".join(insist(lambda: list(job.logs()))).decode()
        models = re.findall(r"^\[worker-0\] model (\d+) (\d+)$", log, re.MULTILINE)
        if ended.succeeded and not models:
            wrong.append(f"no model is in the log: {log[-500:]}")
        for step, model in models:
            if int(model) != 7 * int(step) * (int(step) + 1) // 2:
                wrong.append(f"the model of step {step} is {model}")
        begun = [one.message.split()[1] for one in events if one.reason == "Starting"]
        if begun != [str(number + 1) for number in range(len(begun))]:
            wrong.append(f"its attempts began like this: {begun}")
        paid = [one.message for one in events if re.search(r"\(retry \d+ of \d+\)", one.message)]
        if ended.retries_used != len(paid):
            wrong.append(f"{ended.retries_used} retries are used, and told are {paid}")
        return [*wrong, *_overdrawn(kind, events)]


def _overdrawn(kind: str, events: list[JobEvent]) -> list[str]:
    """Restarts of tasks beyond ``task_retries``, which is for all attempts together. Those that were
    asked for are free.
    """
    restarts = [
        one.message for one in events if re.search(r"\(restart \d+ of attempt \d+\)", one.message)
    ]
    used = [one for one in restarts if not one.endswith("ended on request, to start again")]
    most = JOBS[kind].get("task_retries", 0)
    return [f"more than {most} restarts of tasks: {used}"] if len(used) > most else []


@pytest.mark.parametrize("number", range(FIRST, FIRST + ROUNDS))
def test_whatever_meets_jobs_go_on_and_end(number: int, server: RealServer) -> None:
    with Reviver(server):
        played = Round(server, number)
        for _ in range(12):
            played.disturb()
            played.wait()
        played.calm()
        wrong = played.wrong()
    assert wrong == [], "\n".join(played.done)
