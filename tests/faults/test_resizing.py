"""The server is killed while a job becomes larger: it does so once, and goes on from where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from faults.scenes import SLICE, Reviver, fragile, insist, order, reached
from support.elastic import MODEL, TRAINER, results, waiting
from support.server import RealServer, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]
POINTS = (
    "controller.stop.before",
    "controller.stop.after",
    "controller.ensure.before",
    "controller.ensure.after",
    "ledger.gate.after",
    "supervisor.start.after",
)
"""Points that are passed between the end of the smaller attempt and the start of the larger one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_killed_while_a_job_becomes_larger(point: str, server: RealServer, tmp_path: Path) -> None:
    server.cli("admin", "quota", "set", "default", "--memory", "250M").good()
    name, source = f"grows-{point.replace('.', '-')}", str(trainer(tmp_path / "code", TRAINER))
    made = TrainJob(
        name,
        "trainer.task",
        source,
        worker_count="1:4",
        memory_limit="100M",
        recipe="pytorch",
        framework="python",
        job_args=["few"],
        max_retries=3,
    )
    job = waiting(server.client().submit_train_job(made), b"waits")
    assert dict(job.refresh().world) == {"worker": 2}
    order(server, point)
    with Reviver(server):
        server.cli("admin", "quota", "set", "default", "--memory", "unlimited").good()
        ended = insist(lambda: job.wait(120))
    assert reached(server, point) is not None, "nobody passed"
    assert ended.succeeded, b"".join(job.logs()).decode()
    assert dict(ended.world) == {"worker": 4}
    assert results(job)[0] == "2 tasks from step 0"
    assert results(job)[-1] == f"model {MODEL}"
    messages = [one.message for one in job.events() if one.reason == "Resized"]
    assert messages == ["resized from 2 to 4 tasks"]
    assert ended.retries_used == 0
