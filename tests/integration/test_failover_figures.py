"""What restarts have cost is counted once, whatever becomes of the server meanwhile."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cloud_ml.engines.gang import GangKey
from cloud_ml.models.jobs.job import JobRecoveries
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.sdk.jobs.handles import JobHandle
from support.server import RealServer, eventually, serving, trainer

SOURCE = """
import os, pathlib, signal, sys, time
index, restart = os.environ["CLOUDML_INDEX"], os.environ["CLOUDML_TASK_RESTART"]
place = pathlib.Path(sys.argv[1])
(place / f"{index}-{restart}").touch()
while index == "0" or not (place / f"fail-{restart}").exists():
    time.sleep(0.01)
sys.exit(3)
"""
"""The second worker fails when it is told to, each time that it was started."""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("counting")) as running:
        yield running


def counted(server: RealServer) -> float:
    """The restarts of tasks that this server has counted since its start."""
    with urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    name = r'cloudml_task_restarts_total\{role="worker",reason="NonZeroExit"\}'
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    lost = re.search(r'^cloudml_lost_work_seconds_count\{of="task"\} (\d+)$', text, re.MULTILINE)
    assert (found and found[1]) == (lost and lost[1])
    return float(found[1]) if found else 0.0


@pytest.mark.slow
def test_restarts_are_counted_once_over_crashes_of_the_server(
    server: RealServer, tmp_path: Path
) -> None:
    place = server.bucket("failing")
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    job = TrainJob(
        "counted-once",
        "trainer.task",
        str(trainer(tmp_path / "code", SOURCE)),
        job_args=["fds://cloudml/failing"],
        worker_count=2,
        recipe="cluster",
        framework="python",
        task_retries=5,
    )
    handle = server.client().submit_train_job(job)

    def restarted(times: int) -> None:
        eventually((place / f"1-{times - 1}").exists, f"it runs before restart {times}")
        (place / f"fail-{times - 1}").touch()
        eventually((place / f"1-{times}").exists, f"restart {times} runs")

    restarted(1)
    assert noted(handle, 1).last.reason == "NonZeroExit"
    eventually(lambda: counted(server) == 1, "it is counted")

    server.kill()
    server.start()
    handle = server.client().get_train_job("counted-once")
    assert noted(handle, 1).count == 1
    assert counted(server) == 0, "that one is committed already"

    server.kill()
    restarted(2)
    eventually(lambda: reported(server, handle.uid) == 2, "its supervisor tells of it")
    server.start()
    handle = server.client().get_train_job("counted-once")
    known = noted(handle, 2)
    assert known.count == 2
    eventually(lambda: counted(server) == 1, "the new server counts what it has seen")
    assert known.lost_work_s > (known.last.lost_work_s or 0) > 0

    handle.cancel()
    assert handle.wait(60).recoveries == known
    assert counted(server) == 1


SAVES = """
import os, time
from cloud_ml import job
folder = job.checkpoint_dir()
open(os.path.join(folder, "step-7.pt"), "w").close()
job.saved("step-7.pt", 7)
print("from", os.environ.get("CLOUDML_RESTORE_FROM"), flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_lost_supervisor_leaves_the_checkpoint_and_no_figure_of_lost_work(
    server: RealServer, tmp_path: Path
) -> None:
    code = trainer(tmp_path / "code", SAVES)
    job = TrainJob("lost-supervisor", "trainer.task", str(code), framework="python", max_retries=1)
    handle = server.client().submit_train_job(job)
    eventually(lambda: b"from None" in b"".join(handle.logs()), "it has saved")
    eventually(lambda: list(handle.checkpoints()), "the server knows of it")
    gate = server.ledger.gate(GangKey(handle.uid, 1))
    assert gate is not None
    os.kill(gate.pid, signal.SIGKILL)
    known = noted(handle, 1)
    assert (known.lost_work_s, known.last.lost_work_s) == (0, None)
    (message,) = [one.message for one in handle.events() if one.reason == "Restarting"]
    assert message.endswith("its newest checkpoint is step 7 (step-7.pt)")
    eventually(lambda: b"/step-7.pt" in b"".join(handle.logs(attempt=2)), "it goes on from it")
    handle.cancel()


def noted(handle: JobHandle, count: int) -> JobRecoveries:
    """What failures have cost the job, as soon as so many are known."""
    while (known := handle.refresh().recoveries) is None or known.count < count:
        handle.await_change(10)
    return known


def reported(server: RealServer, uid: str) -> int:
    """The recoveries of which the supervisor has told."""
    gang = server.ledger.observe(GangKey(uid, 1))
    return 0 if gang is None or not gang.recoveries else gang.recoveries[-1].number
