"""Metrics of jobs, from the code that reports them to the command line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, serving, trainer

Run = Callable[..., tuple[Job, str]]

REPORTING = """
import math
from cloud_ml import job
for step in range(3000):
    job.report(step, loss=1 / (1 + step), **{"val/auc": 0.5})
job.report(3000, loss=math.nan)
job.report(3001, loss=math.inf)
"""

FAILING_ONCE = """
import os, sys
from cloud_ml import job
first = int(os.environ["CLOUDML_ATTEMPT"]) == 1
for step in range(0, 10) if first else range(5, 12):
    job.report(step, loss=1.0 if first else 2.0)
sys.exit(3 if first else 0)
"""


def test_every_point_is_there_when_the_job_has_ended(run: Run, client: CloudMlClient) -> None:
    run("metrics-whole", REPORTING)
    job = client.get_train_job("metrics-whole")
    auc, loss = sorted(job.series(), key=lambda one: one.name, reverse=True)
    assert (auc.name, auc.count, auc.task) == ("val/auc", 3000, "master-0")
    assert (loss.count, loss.nan, loss.first, loss.last) == (3002, 1, 1.0, math.inf)
    assert (loss.min, loss.max, loss.last_step) == (1 / 3000, math.inf, 3001)
    points = job.points("loss", most=10_000)
    assert [point.step for point in points] == list(range(3002))
    assert points[9].value == 0.1
    assert math.isnan(float(points[3000].value))
    some = job.points("loss", from_step=1000, to_step=2000, most=20)
    assert len(some) <= 20
    assert (some[0].step, some[-1].step) == (1000, 2000)
    assert len(job.points("val/auc", most=2)) == 2
    messages = [event.message for event in job.events() if event.reason == "MetricIsNaN"]
    assert messages == ["loss is NaN since step 3000 (master-0)"]


@pytest.mark.slow
def test_events_tell_how_far_a_job_has_come(tmp_path: Path) -> None:
    source = """
import time
from cloud_ml import job
job.report(6, loss=0.5)
job.progress(step=6, of=10)
time.sleep(600)
"""
    quick = {"CLOUDML_METRICS_FILES_PERIOD_S": "0.2", "CLOUDML_METRICS_PROGRESS_PERIOD_S": "0.2"}
    with serving(tmp_path, **quick) as server:
        code = str(trainer(tmp_path / "code", source))
        job = server.client().submit_train_job(TrainJob("told", "trainer.task", code))
        while not (messages := [one.message for one in job.events() if one.reason == "Progress"]):
            job.await_change(timeout=0.2)
            assert not job.finished
        assert re.fullmatch(r"60% done: step 6 of 10, about \S+ left, loss 0.5", messages[0]), (
            messages
        )


def test_a_later_attempt_replaces_what_it_repeats(run: Run, client: CloudMlClient) -> None:
    ended, _ = run("metrics-again", FAILING_ONCE, max_retries=1)
    assert ended.succeeded
    job = client.get_train_job("metrics-again")
    values = [(point.step, point.value) for point in job.points("loss")]
    assert values == [(step, 1.0 if step < 5 else 2.0) for step in range(12)]
    earlier = [(point.step, point.value) for point in job.points("loss", earlier=True)]
    assert earlier == [(step, 1.0) for step in range(5, 10)]
    (series,) = job.series()
    assert (series.attempt, series.count, series.earlier) == (2, 12, 5)


def test_points_come_while_the_job_runs(client: CloudMlClient, code: Callable[..., str]) -> None:
    source = "from cloud_ml import job\njob.report(7, loss=0.5)\nimport time\ntime.sleep(600)\n"
    job = client.submit_train_job(TrainJob("metrics-live", "trainer.task", code(source)))
    while not (found := job.series()):
        job.await_change(timeout=0.2)
        assert not job.finished
    assert (found[0].name, found[0].last_step, found[0].last) == ("loss", 7, 0.5)
    client.delete_train_job("metrics-live")


def test_what_is_asked_for_wrongly_is_named(run: Run, client: CloudMlClient) -> None:
    run("metrics-wrong", "from cloud_ml import job\njob.report(1, loss=0.5)")
    job = client.get_train_job("metrics-wrong")
    with pytest.raises(NotFound, match="has reported no metric 'los'") as refused:
        job.points("los")
    assert refused.value.hint == "Did you mean loss?"
    with pytest.raises(InvalidRequest, match="from is 5"):
        job.points("loss", from_step=5, to_step=4)
    with pytest.raises(InvalidRequest, match="points is 1; allowed is a number from 2 to 10000"):
        job.points("loss", most=1)


def test_metrics_go_with_their_job(run: Run, client: CloudMlClient) -> None:
    run("metrics-gone", "from cloud_ml import job\njob.report(1, loss=0.5)")
    job = client.get_train_job("metrics-gone")
    client.delete_train_job("metrics-gone")
    job.wait_until_gone()
    with pytest.raises(NotFound):
        job.series()


def test_lists_have_columns_of_metrics(run: Run, client: CloudMlClient, server: RealServer) -> None:
    run("metrics-column", "from cloud_ml import job\njob.report(1, loss=0.5, lr=float('nan'))")
    (found,) = client.list_train_jobs(name="metrics-column", metrics=["loss", "lr", "other"])
    assert json.loads(json.dumps(found.metrics)) == {"loss": 0.5, "lr": "NaN"}
    (plain,) = client.list_train_jobs(name="metrics-column")
    assert plain.metrics is None
    command = ("jobs", "list", "-n", "metrics-column", "--columns", "loss, other,lr")
    header, line = server.cli(*command).good().out.splitlines()
    assert (header.split()[-3:], line.split()[-3:]) == (
        ["LOSS", "OTHER", "LR"],
        ["0.5", "-", "nan"],
    )
