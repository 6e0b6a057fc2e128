"""Jobs that keep their newest checkpoints only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob
from support.elastic import waiting
from support.server import RealServer, eventually

SAVES = """
import os, sys, time
from cloud_ml import job
def save(step):
    path = os.path.join(job.checkpoint_dir(), f"step-{step}")
    if step % 2:
        open(path, "w").close()
    else:
        os.mkdir(path)
        open(os.path.join(path, "state"), "w").close()
    job.saved(path, step)
start = job.latest()
print("starts at", start and start.step, flush=True)
first = start.step + 1 if start else 1
for step in range(first, first + 5):
    save(step)
print("saved", flush=True)
while "waits" in sys.argv and len(os.listdir(job.checkpoint_dir())) > int(sys.argv[-1]):
    time.sleep(0.05)
print("left", sorted(os.listdir(job.checkpoint_dir())), flush=True)
if "twice" in sys.argv and os.environ["CLOUDML_ATTEMPT"] == "1":
    sys.exit(1)
"""


def steps(client: CloudMlClient, name: str) -> list[int | None]:
    return [one.step for one in client.get_train_job(name).checkpoints()]


def test_older_checkpoints_go_when_the_next_are_complete(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    submit = ("jobs", "submit", "keeps-two", "trainer.task", code(SAVES), "-F", "python")
    server.cli(*submit, "--keep-checkpoints", "2", "--retries", "1", "--", "twice").good()
    job = client.get_train_job("keeps-two")
    ended = job.wait(60)
    assert ended.succeeded, ended.message
    assert ended.spec["checkpoint"]["keep"] == 2
    assert steps(client, "keeps-two") == [9, 10]
    folder = server.bucket(".checkpoints", f"keeps-two-{job.uid}")
    assert sorted(one.name for one in folder.iterdir()) == [".saved.jsonl", "step-10", "step-9"]
    listed = server.cli("jobs", "checkpoints", "keeps-two", "-o", "name").good().out.split()
    assert [one.rpartition("/")[2] for one in listed] == ["step-9", "step-10"]
    assert b"starts at 5" in b"".join(job.logs())


def test_they_go_while_the_job_runs(client: CloudMlClient, code: Callable[..., str]) -> None:
    job = client.submit_train_job(
        TrainJob(
            "keeps-one-of-many",
            "trainer.task",
            code(SAVES),
            job_args=["waits", "2"],
            checkpoint={"keep": 1},
            framework="python",
        )
    )
    assert job.wait(60).succeeded
    assert b"left ['.saved.jsonl', 'step-5']" in b"".join(job.logs())


def test_nothing_goes_without_the_option(client: CloudMlClient, code: Callable[..., str]) -> None:
    made = TrainJob("keeps-all", "trainer.task", code(SAVES), framework="python")
    assert client.submit_train_job(made).wait(60).succeeded
    assert steps(client, "keeps-all") == [1, 2, 3, 4, 5]


HOLDS = (
    SAVES
    + """
gate = os.path.join(os.environ["CLOUDML_STORAGE"], "cloudml", sys.argv[-1])
while not os.path.exists(gate):
    time.sleep(0.05)
first = job.latest().step + 1
for step in range(first, first + 5):
    save(step)
"""
)


def test_a_checkpoint_that_somebody_refers_to_stays(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    first = client.submit_train_job(
        TrainJob(
            "referred-to",
            "trainer.task",
            code(HOLDS),
            job_args=["goes-on"],
            checkpoint={"keep": 3},
            framework="python",
        )
    )
    waiting(first, b"left")
    found = {one.step: one.uri for one in first.checkpoints()}
    fields: dict[str, Any] = {"framework": "python", "save_mode": True}
    other = TrainJob("refers", "m", code(SAVES), restore_from=found[4], **fields)
    client.submit_train_job(other)
    newest = TrainJob("refers-by-name", "m", code(SAVES), restore_from="referred-to", **fields)
    client.submit_train_job(newest)
    server.cli("models", "deploy", "served", "1", found[3], "--save_mode").good()
    client.storage.upload(b"go", "fds://cloudml/goes-on")
    assert first.wait(60).succeeded
    assert steps(client, "referred-to") == [3, 4, 5, 8, 9, 10]
    gone = found[5].replace("step-5", "step-1")
    with pytest.raises(InvalidRequest, match="nothing at"):
        client.submit_train_job(
            TrainJob("refers-too-late", "m", code(SAVES), restore_from=gone, **fields)
        )


SAVES_OF_TRIALS = """
import argparse, os
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--fails", type=float, default=9)
given = parser.parse_args()
found = job.latest()
begun = int(open(found.path).read()) if found else 0
path = os.path.join(job.checkpoint_dir(), f"step-{begun + 1}")
open(path, "w").write(str(begun + 1))
job.saved(path, begun + 1)
job.report(1, loss=given.lr)
assert given.lr < given.fails
"""


def kept_of(server: RealServer, name: str) -> list[str]:
    """The trials of a study whose checkpoints are in the bucket."""
    folders = server.bucket(".checkpoints").glob(f"{name}-hp-*")
    return sorted(folder.name.rpartition("-")[0] for folder in folders)


def test_a_study_keeps_those_of_the_best_trials_and_those_in_use(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    job = TrainJob(
        "keeps-best", "trainer.task", code(SAVES_OF_TRIALS), framework="python",
        job_args=["--fails=0.8"],
    )  # fmt: skip
    client.studies.submit(
        job, {"lr": [0.3, 0.1, 0.9, 0.2]}, algorithm="grid", parallel=1, max_trials=2,
        keep_checkpoints="best",
    )  # fmt: skip
    study = client.studies.wait("keeps-best", 120)
    eventually(lambda: len(kept_of(server, "keeps-best")) == 1, "one is left")
    best = study.best
    assert best is not None
    assert kept_of(server, "keeps-best") == [best.job]
    (kept,) = client.get_train_job(best.job).checkpoints()
    fields: dict[str, Any] = {"framework": "python", "save_mode": True}
    client.submit_train_job(
        TrainJob("goes-on-from-best", "m", code(SAVES), restore_from=kept.uri, **fields)
    )
    (other,) = {0, 1} - {best.number}
    with pytest.raises(InvalidRequest, match="were removed by its study"):
        gone = f"keeps-best-hp-{other}"
        client.submit_train_job(
            TrainJob("goes-on-from-other", "m", code(SAVES), restore_from=gone, **fields)
        )
    client.studies.extend("keeps-best", 2)
    study = client.studies.wait("keeps-best", 120)
    assert study.best is not None
    expected = sorted({best.job, study.best.job})
    eventually(lambda: kept_of(server, "keeps-best") == expected, "those are left")

    def shown() -> dict[str, str]:
        found = client.studies.describe("keeps-best").trials
        return {trial.job: trial.checkpoints for trial in found}

    in_use = {best.job: "InUse"} if best.job != study.best.job else {}
    whole = {**dict.fromkeys(shown(), "Removed"), study.best.job: "", **in_use}
    eventually(lambda: shown() == whole, "the study tells of it")
    removed = next(job for job, state in whole.items() if state == "Removed")
    events = [event.reason for event in client.get_train_job(removed).events()]
    assert "CheckpointsRemoved" in events
    described = server.cli("hp", "describe", "keeps-best").good().out
    assert "kept of the best trial; of " in described


def test_a_population_keeps_what_it_goes_on_from(
    server: RealServer, code: Callable[..., str], client: CloudMlClient
) -> None:
    server.cli(
        *("hp", "submit", "keeps-members", "-m", "trainer.task", "-u", code(SAVES_OF_TRIALS)),
        *("-F", "python", "-s", "lr=0.1:0.7", "--algorithm", "pbt", "--population", "2"),
        *("--trials", "6", "--parallel", "2", "--keep-checkpoints", "1", "-W"),
        timeout_s=120,
    ).good()
    study = client.studies.describe("keeps-members")
    assert study.best is not None
    last = {trial.member: trial.job for trial in study.trials}
    expected = sorted({study.best.job, *last.values()})
    eventually(lambda: kept_of(server, "keeps-members") == expected, "those are left")
    client.studies.extend("keeps-members", 2)
    study = client.studies.wait("keeps-members", 120)
    assert [trial.state for trial in study.trials] == ["Completed"] * 8
    assert study.keep_checkpoints == "best"
    output = server.cli("hp", "keep", "keeps-members", "none").good().out
    assert output.startswith("keeps-members keeps the checkpoints of no trial")
    eventually(lambda: kept_of(server, "keeps-members") == [], "none is left")


def test_a_study_that_is_deleted_removes_what_it_does_not_keep(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    job = TrainJob("keeps-best-of-three", "trainer.task", code(SAVES_OF_TRIALS), framework="python")
    client.studies.submit(job, {"lr": [0.3, 0.1, 0.2]}, algorithm="grid", parallel=3)
    study = client.studies.wait("keeps-best-of-three", 120)
    assert len(kept_of(server, study.name)) == 3
    ranked = sorted(study.trials, key=lambda trial: trial.value or 0)
    (registered,) = client.get_train_job(ranked[1].job).checkpoints()
    client.model_registry.create_model("rates-of-trials")
    client.model_registry.create_version("rates-of-trials", registered.uri)
    client.studies.keep_checkpoints(study.name, "best")
    client.studies.delete(study.name)
    client.studies.wait_until_gone(study.name)
    assert kept_of(server, study.name) == sorted(trial.job for trial in ranked[:2])
