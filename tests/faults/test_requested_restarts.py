"""Somebody wants a task to start again, and a process of the platform is killed around that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.errors import TransportError, TryAgain
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from faults.scenes import Reviver, fragile, insist, order, reached
from support import invariants
from support.environments import pack
from support.server import RealServer, eventually, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]

SOURCE = f"""{invariants.STARTED_TASK}while not (place / "done").exists():
    time.sleep(0.01)
"""
"""Each start leaves a line. It ends when the file ``done`` is there."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("requested-restarts")) as server:
        yield server


class Scene:
    """A job of two tasks that wait."""

    def __init__(self, server: RealServer, folder: Path, name: str) -> None:
        self._client = server.client()
        self._place = server.bucket(name)
        file = pack(trainer(folder / "code", SOURCE), folder / "restarted-1.0.tar.gz")
        uri = f"fds://cloudml/{name}/restarted-1.0.tar.gz"
        self._client.storage.upload(file, uri)
        self.job: JobHandle = self._client.submit_train_job(
            TrainJob(
                name,
                "trainer.task",
                uri,
                job_args=[f"fds://cloudml/{name}"],
                worker_count=2,
                recipe="cluster",
                task_retries=1,
            )
        )

    def starts(self, task: str) -> list[str]:
        """The starts of a task so far."""
        file = self._place / "starts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition(", ")[2] for line in lines if line.startswith(f"{task},")]

    def started(self, attempt: int, restart: int) -> None:
        """Wait until the second task has begun so, and the first one in this attempt."""
        for task, count in (("worker-0", 0), ("worker-1", restart)):
            line = f"attempt {attempt}, restart {count}"
            eventually(lambda: line in self.starts(task), f"{task} starts: {line}")  # noqa: B023

    def restart(self) -> None:
        """Ask once for a restart of the second task. The answer may be lost: the client asks for it
        again, and for no second restart.
        """
        with contextlib.suppress(TransportError, TryAgain):
            self.job.restart("worker-1")

    def end(self) -> None:
        """Let the tasks end well."""
        (self._place / "done").touch()
        ended = insist(lambda: self.job.wait(60))
        assert ended.phase == "Succeeded", ended.message
        assert invariants.started_twice(self.job.name, self._place) == []


@pytest.mark.parametrize("point", ["task_restart.order.before", "task_restart.order.after"])
def test_a_restart_that_is_asked_for_happens_once_whenever_the_server_dies(
    point: str, server: RealServer, tmp_path: Path
) -> None:
    scene = Scene(server, tmp_path, point.replace(".", "-").replace("_", "-"))
    scene.started(1, 0)
    order(server, point)
    with Reviver(server):
        scene.restart()
        scene.started(1, 1)
        eventually(lambda: reached(server, point) is not None, "somebody passed")
        scene.end()
    assert scene.starts("worker-0") == ["attempt 1, restart 0"]
    assert scene.starts("worker-1") == ["attempt 1, restart 0", "attempt 1, restart 1"]
    assert [task.restarts for task in scene.job.job.tasks] == [0, 1]
    reasons = [event.reason for event in scene.job.events()]
    assert (reasons.count("RestartRequested"), reasons.count("TaskRestarted")) == (1, 1)


def test_a_wish_dies_with_its_attempt(server: RealServer, tmp_path: Path) -> None:
    scene = Scene(server, tmp_path, "task-restart-wish-taken")
    scene.started(1, 0)
    order(server, "task_restart.request.taken")
    scene.restart()
    scene.started(2, 0)
    assert reached(server, "task_restart.request.taken") is not None
    scene.restart()
    scene.started(2, 1)
    scene.end()
    starts = ["attempt 1, restart 0", "attempt 2, restart 0", "attempt 2, restart 1"]
    assert scene.starts("worker-1") == starts
    assert scene.starts("worker-0") == ["attempt 1, restart 0", "attempt 2, restart 0"]
