"""The server is killed while it removes checkpoints that a job does not keep: the newest are whole,
and nothing goes on from one that was to go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.models.jobs.train_job import TrainJob
from faults.scenes import SLICE, Reviver, fragile, insist, order, reached
from support.server import RealServer, trainer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]
POINTS = (
    "checkpoints.remove.before",
    "checkpoints.remove.after",
    "state.commit.before",
    "state.commit.after",
)
SAVES = """
import os, sys
from cloud_ml import job
given = os.environ.get("CLOUDML_RESTORE_FROM")
print("given", given and sorted(os.listdir(given)), "newest", job.latest() and job.latest().step)
first = job.latest().step + 1 if job.latest() else 1
for step in range(first, first + 4):
    path = os.path.join(job.checkpoint_dir(), f"step-{step}")
    os.mkdir(path)
    for part in range(20):
        open(os.path.join(path, f"part-{part:02}"), "w").close()
    job.saved(path, step)
sys.exit(os.environ["CLOUDML_ATTEMPT"] != "3")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


@pytest.mark.parametrize("point", POINTS[::SLICE])
def test_killed_while_checkpoints_are_removed(
    point: str, server: RealServer, tmp_path: Path
) -> None:
    name, source = f"keeps-{point.replace('.', '-')}", str(trainer(tmp_path / "code", SAVES))
    made = TrainJob(
        name,
        "trainer.task",
        source,
        framework="python",
        max_retries=5,
        checkpoint={"keep": 2},
    )
    job = server.client().submit_train_job(made)
    order(server, point)
    with Reviver(server):
        ended = insist(lambda: job.wait(120))
        found = insist(job.checkpoints)
        log = insist(lambda: b"".join(job.logs())).decode()
    assert reached(server, point) is not None, "nobody passed"
    assert (ended.phase, ended.attempt) == ("Succeeded", 3), ended.message
    assert [one.step for one in found] == [11, 12]
    folder = server.bucket(".checkpoints", f"{name}-{job.uid}")
    left = {one.name: len(list(one.iterdir())) for one in folder.glob("step-*")}
    assert left == {"step-11": 20, "step-12": 20}
    given = re.findall(r"given (.+) newest (.+)", log)
    assert [newest for _, newest in given] == ["None", "4", "8"][-len(given) :]
    assert all(parts == "None" or parts.count("part-") == 20 for parts, _ in given)
