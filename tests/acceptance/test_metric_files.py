"""Metrics in event files of TensorBoard and in logs, of any job."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.event_files import EVENT_WRITER
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]

KERAS = (
    EVENT_WRITER
    + """
for run, worse in (("train", 0.0), ("validation", 0.5)):
    file = opened("logs/fit/20261125-101010/" + run)
    for epoch in range(200):
        file.write(tensor("epoch_loss", worse + 1 / (1 + epoch), epoch))
file = opened("logs")
for step in range(3000):
    file.write(scalar("loss", 1 / (1 + step), step))
file.write(scalar("loss", float("nan"), 3000))
"""
)

FAILING_ONCE = (
    EVENT_WRITER
    + """
import sys
first = int(os.environ["CLOUDML_ATTEMPT"]) == 1
file = opened("runs/Nov25_10-10-%02d_host" % (1 if first else 2), 1 if first else 2)
for step in range(0, 10) if first else range(5, 12):
    file.write(scalar("loss", 1.0 if first else 2.0, step))
sys.exit(3 if first else 0)
"""
)

TO_BUCKET = (
    EVENT_WRITER
    + """
file = opened(os.environ["CLOUDML_OUTPUT_PATH"] + "/eval")
for step in (1, 2, 3):
    file.write(scalar("accuracy", step / 4, step))
    file.write(summary("weights", 5, b"", step))
"""
)

DAMAGED = (
    EVENT_WRITER
    + """
file = opened("logs")
for step in range(5):
    file.write(scalar("loss", 1.0, step))
broken = bytearray(scalar("loss", 1.0, 5))
broken[20] ^= 1
file.write(bytes(broken))
file.write(scalar("loss", 1.0, 6))
os.symlink("/etc/passwd", "logs/events.out.tfevents.2.link")
os.mkfifo("logs/events.out.tfevents.3.pipe")
os.truncate(os.open("logs/events.out.tfevents.4.holes", os.O_CREAT | os.O_WRONLY), 8 * 2**40)
"""
)

SUMMARIES = (
    EVENT_WRITER
    + """
import sys
first = int(os.environ["CLOUDML_ATTEMPT"]) == 1
stamp = 1 if first else 2
file = opened("runs/Nov25_10-10-%02d_host" % stamp, stamp)
other = opened("logs/validation", stamp)
for step in range(0, 3) if first else range(3, 6):
    file.write(scalar("loss", 1.0, step))
    file.write(summary("weights", 5, b"x" * 1000, step))
    if step == 2:
        # TensorFlow 2 says what a tensor is behind its content.
        for content in (b"png", bytes(200_000)):
            file.write(summary("samples", 4, content, step))
            other.write(summary("pictures", 8, content, step, plugin="images"))
        for _ in range(2):
            file.write(summary("notes", 8, b"words", step, plugin="text"))
sys.exit(3 if first else 0)
"""
)

LOGGED = """
print("Epoch 1/2")
print("10/10 - 2s 3ms/step - loss: 0.5 - val_loss: nan")
print("Epoch 2/2")
print("10/10 - 2s 3ms/step - loss: 0.25 - val_loss: nan")
print("step 7 reward is 1.5", end="")
"""


def test_every_scalar_is_there_when_the_job_has_ended(run: Run, client: CloudMlClient) -> None:
    ended, log = run("files-whole", KERAS)
    assert ended.succeeded, log
    job = client.get_train_job("files-whole")
    found = {one.name: one for one in job.series()}
    assert set(found) == {"loss", "train/epoch_loss", "validation/epoch_loss"}
    assert {one.source for one in found.values()} == {"event_file"}
    loss = found["loss"]
    assert (loss.count, loss.nan, loss.first, loss.last_step) == (3001, 1, 1.0, 3000)
    assert math.isnan(float(loss.last))
    assert found["validation/epoch_loss"].last == pytest.approx(0.5 + 1 / 200)
    points = job.points("loss", most=10_000)
    assert [point.step for point in points] == list(range(3001))
    messages = [event.message for event in job.events() if event.reason == "MetricIsNaN"]
    assert messages == ["loss is NaN since step 3000 (master-0, event file)"]


def test_a_later_attempt_replaces_the_steps_that_it_repeats(
    run: Run, client: CloudMlClient
) -> None:
    ended, log = run("files-again", FAILING_ONCE, max_retries=1)
    assert ended.succeeded, log
    job = client.get_train_job("files-again")
    values = [(point.step, point.value) for point in job.points("loss")]
    assert values == [(step, 1.0 if step < 5 else 2.0) for step in range(12)]
    earlier = [(point.step, point.value) for point in job.points("loss", earlier=True)]
    assert earlier == [(step, 1.0) for step in range(5, 10)]


def test_files_in_the_output_path_are_read(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    for name in ("files-bucket", "files-bucket-again"):
        ended, log = run(name, TO_BUCKET, output_path="fds://cloudml/files-bucket")
        assert ended.succeeded, log
    job = client.get_train_job("files-bucket")
    (series,) = job.series()
    assert (series.name, series.count, series.last) == ("eval/accuracy", 3, 0.75)
    shown = server.cli("runs", "metrics", job.uid)
    assert "cloudml tensorboard create -n files-bucket -j files-bucket" in shown.err


def test_a_damaged_file_is_read_up_to_the_damage(run: Run, client: CloudMlClient) -> None:
    ended, log = run("files-damaged", DAMAGED)
    assert ended.succeeded, log
    job = client.get_train_job("files-damaged")
    (series,) = job.series()
    assert (series.name, series.count) == ("loss", 5)
    messages = [event.message for event in job.events() if event.reason == "MetricFileUnreadable"]
    first, second = sorted(messages)
    assert first.startswith("work/code/logs/events.out.tfevents.0000000001.host: the record at")
    assert second == (
        "work/code/logs/events.out.tfevents.4.holes: the head of the record at byte 0 is damaged"
    )


def test_points_come_while_the_job_runs(client: CloudMlClient, code: Callable[..., str]) -> None:
    source = EVENT_WRITER + "opened('logs').write(scalar('loss', 0.5, 7))\ntime.sleep(600)\n"
    job = client.submit_train_job(TrainJob("files-live", "trainer.task", code(source)))
    while not (found := job.series()):
        job.await_change(timeout=0.2)
        assert not job.finished
    assert (found[0].name, found[0].last_step, found[0].last) == ("loss", 7, 0.5)
    client.delete_train_job("files-live")


def test_metrics_are_found_in_the_log(run: Run, client: CloudMlClient) -> None:
    own = r"step (?P<step>\d+) (?P<name>\w+) is (?P<value>\S+)"
    ended, log = run("files-log", LOGGED, metric_patterns=["keras", own])
    assert ended.succeeded, log
    job = client.get_train_job("files-log")
    found = {one.name: (one.source, one.count, one.last_step, one.last) for one in job.series()}
    assert found["loss"] == ("log", 2, 2, 0.25)
    assert found["reward"] == ("log", 1, 7, 1.5)
    assert found["val_loss"][:3] == ("log", 2, 2)
    messages = [event.message for event in job.events() if event.reason == "MetricIsNaN"]
    assert messages == ["val_loss is NaN since step 1 (master-0, log)"]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?P<loss>\d)\1", "invalid escape sequence"),
        ("loss=(", "missing \\)"),
        ("loss", "no group for a value"),
    ],
)
def test_a_pattern_that_is_none_is_refused(
    client: CloudMlClient, code: Callable[..., str], pattern: str, why: str
) -> None:
    job = TrainJob("files-wrong", "trainer.task", code(""), metric_patterns=["keras", pattern])
    with pytest.raises(InvalidRequest, match=why) as refused:
        client.submit_train_job(job)
    assert (refused.value.field, refused.value.value) == ("metric_patterns.1", pattern)
    assert "files-wrong" not in [one.name for one in client.list_train_jobs()]


def test_histograms_images_and_the_like_are_listed(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    ended, log = run("files-tags", SUMMARIES, max_retries=1)
    assert ended.succeeded, log
    job = client.get_train_job("files-tags")
    assert [(one.name, one.count) for one in job.series()] == [("loss", 6)]
    tags = [
        ("notes", "text", 2, 2),
        ("samples", "image", 2, 2),
        ("validation/pictures", "image", 2, 2),
        ("weights", "histogram", 6, 5),
    ]
    found = [(one.name, one.kind, one.count, one.last_step) for one in job.summaries()]
    assert found == tags
    assert client.runs.summaries(job.uid) == job.summaries()
    shown = server.cli("runs", "metrics", "files-tags")
    for tag, kind, count, step in tags:
        assert re.search(rf"(?m)^{tag} +{kind} +{count} +{step} ", shown.out), shown.out
    advice = "cloudml tensorboard create -n files-tags -j files-tags"
    assert advice in shown.err
    described = server.cli("jobs", "describe", "files-tags").out
    assert "weights (6 histograms, step 5)" in described
    assert advice in described
    listed = server.cli("runs", "metrics", "files-tags", "--summaries", "-o", "json").out
    assert [one["name"] for one in json.loads(listed)] == [tag for tag, *_ in tags]
