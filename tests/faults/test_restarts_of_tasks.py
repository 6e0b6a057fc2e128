"""A server is killed at every failpoint that it passes between two restarts of a task.

The task starts again while no server lives, too. No start happens twice, each restart is counted
and told once, and the log has every byte that was printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml import failpoints
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults.scenes import SLICE, Reviver, fragile, insist, order, orders_of, reached
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]

POINTS = ("state.commit.before", "state.commit.after")
"""Those that a server passes when it hears that a task has started again, or of what it prints."""
OF_OTHERS = ("supervisor.", "spawner.", "ledger.write")
"""Those of supervisors, whose death ends the attempt, and of the spawner: ``test_failpoints``."""
LINES = 500
SOURCE = f"""{invariants.STARTED_TASK}import itertools
for number in range({LINES}):
    os.write(1, f"{{task}} {{restart}} line {{number}}\\n".encode())
(place / ("printed-" + task + "-" + restart)).touch()
while not (place / "done").exists():
    if (place / ("fail-" + task + "-" + restart)).exists():
        sys.exit(3)
    time.sleep(0.01)
"""
"""Each start prints lines. A task fails when it is told to, and ends when the file ``done`` is there."""


class Scene:
    """A job of two tasks, of which the second fails twice."""

    def __init__(self, server: RealServer, folder: Path, name: str) -> None:
        self._server = server
        client = server.client()
        self._place = server.bucket(name)
        file = pack(trainer(folder / "code", SOURCE), folder / "restarted-1.0.tar.gz")
        uri = f"fds://cloudml/{name}/restarted-1.0.tar.gz"
        client.storage.upload(file, uri)
        self.job: JobHandle = client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                uri,
                job_args=[f"fds://cloudml/{name}"],
                framework="python",
                worker_count=2,
                recipe="cluster",
                task_retries=3,
            )
        )

    def await_start(self, restart: int) -> None:
        """Wait until the second task has begun so, and has printed its lines."""
        for task, count in (("worker-0", 0), ("worker-1", restart)):
            printed = self._place / f"printed-{task}-{count}"
            eventually(printed.exists, f"{task} has printed after restart {count}")

    def fail(self, restart: int) -> None:
        """Have the second task fail, which has started again so often."""
        (self._place / f"fail-worker-1-{restart}").touch()

    def end(self) -> None:
        (self._place / "done").touch()
        ended = insist(lambda: self.job.wait(60))
        assert ended.phase == "Succeeded", ended.message

    def wrong(self) -> list[str]:
        """What does not hold at the end."""
        starts = (self._place / "starts").read_text().splitlines()
        expected = ["worker-0, attempt 1, restart 0"]
        expected += [f"worker-1, attempt 1, restart {number}" for number in range(3)]
        wrong = [] if sorted(starts) == expected else [f"the starts are {starts}"]
        counts = {task.name: task.restarts for task in self.job.refresh().tasks}
        if counts != {"worker-0": 0, "worker-1": 2}:
            wrong.append(f"counted were {counts}")
        restart_events = [event.reason for event in self.job.events()].count("TaskRestarted")
        if restart_events != 2:
            wrong.append(f"{restart_events} events tell of a restart")
        for task, restarts in (("worker-0", 1), ("worker-1", 3)):
            wrong += self._lost_lines(task, restarts)
        return [
            *wrong,
            *invariants.started_twice(self.job.name, self._place),
            *invariants.left_behind(self._server),
        ]

    def _lost_lines(self, task: str, starts: int) -> list[str]:
        """The logs in which lines of a task are not all there, once and in their order."""
        own = b"".join(self.job.logs(task=task)).decode().splitlines()
        merged = b"".join(self.job.logs()).decode().splitlines()
        expected = [
            f"{task} {start} line {number}" for start in range(starts) for number in range(LINES)
        ]
        logs = {
            f"the log of {task}": [line for line in own if line.startswith(f"{task} ")],
            "the log of all": [
                line.removeprefix(f"[{task}] ")
                for line in merged
                if line.startswith(f"[{task}] {task} ")
            ],
        }
        return [
            f"{name} has {len(found)} lines of {task}, not {len(expected)}, or in another order"
            for name, found in logs.items()
            if found != expected
        ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("restarts-of-tasks")) as server:
        yield server


def test_no_other_points_are_passed_between_two_restarts(
    server: RealServer, tmp_path: Path
) -> None:
    scene = Scene(server, tmp_path, "points-between-restarts")
    scene.await_start(0)
    others = [
        point
        for point in failpoints.POINTS
        if point not in POINTS and not point.startswith(OF_OTHERS)
    ]
    for point in others:
        order(server, point, "stop")
    scene.fail(0)
    scene.await_start(1)
    scene.fail(1)
    scene.await_start(2)
    eventually(
        lambda: [task.restarts for task in scene.job.refresh().tasks] == [0, 2], "both are told"
    )
    assert [point for point in others if reached(server, point) is not None] == []
    for point in others:
        (orders_of(server) / point).unlink()
    scene.end()
    assert scene.wrong() == []


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_killed_between_two_restarts(point: str, server: RealServer, tmp_path: Path) -> None:
    scene = Scene(server, tmp_path, f"restarts-{point.replace('.', '-')}")
    scene.await_start(0)
    order(server, point)
    scene.fail(0)
    scene.await_start(1)
    with Reviver(server, before=lambda: _second(scene)):
        eventually(lambda: reached(server, point) is not None, "somebody passed")
        scene.await_start(2)
        scene.end()
    assert scene.wrong() == []


def _second(scene: Scene) -> None:
    """The task fails once more, and starts again, while no server lives."""
    scene.fail(1)
    scene.await_start(2)
