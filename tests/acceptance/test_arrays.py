"""Array jobs: many tasks that know no other, from the command line to the last line of a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, eventually

Run = Callable[..., tuple[Job, str]]

COUNTING = """
import fcntl, os, sys
mine = os.environ["CLOUDML_ARRAY_INDEX"]
assert os.environ["JOB_COMPLETION_INDEX"] == os.environ["SLURM_ARRAY_TASK_ID"] == mine
assert "CLOUDML_CLUSTER" not in os.environ
assert os.path.isdir(os.environ["CLOUDML_TASK_DIR"])
os.makedirs("live", exist_ok=True)
open("live/" + mine, "w").close()
live = len(os.listdir("live"))
os.unlink("live/" + mine)
print("index", mine, "of", os.environ["CLOUDML_ARRAY_COUNT"], "live", live, flush=True)
"""


@pytest.mark.slow
def test_a_hundred_tasks_run_eight_at_a_time(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    job, log = run("hundred", COUNTING, array="0-99%8", framework="python", memory_limit="100M")
    assert job.succeeded, log
    assert job.attempt == 1
    assert [task.name for task in job.tasks] == [f"task-{index}" for index in range(100)]
    found = re.findall(r"^\[task-(\d+)\] index (\d+) of 100 live (\d+)$", log, re.MULTILINE)
    assert sorted(int(index) for index, _, _ in found) == list(range(100))
    assert all(name == index for name, index, _ in found)
    assert max(int(live) for _, _, live in found) <= 8
    own = b"".join(client.get_train_job("hundred").logs(task="task-17")).decode()
    assert own.startswith("index 17 of 100")
    shown = server.cli("jobs", "describe", "hundred").good().out
    assert "Tasks: 100 completed" in shown
    assert "task-17" not in shown
    output = server.cli("jobs", "logs", "hundred", "--task", "task-99").good().out
    assert output.startswith("index 99 of 100")


def test_some_tasks_may_fail(run: Run, client: CloudMlClient, server: RealServer) -> None:
    source = """
import os, sys
if os.environ["CLOUDML_ARRAY_INDEX"] in ("3", "7"):
    sys.exit(5)
print("good")
"""
    fields: dict[str, Any] = {"array": "1,3,5,7%2", "framework": "python", "task_retries": 0}
    job, log = run("tolerant", source, max_failed=2, **fields)
    assert job.succeeded, log
    assert job.message == "the job completed; 2 of 4 tasks failed: task-3, task-7"
    assert job.exit_code == 0
    assert [(task.name, task.exit_code) for task in job.tasks] == [
        ("task-1", 0),
        ("task-3", 5),
        ("task-5", 0),
        ("task-7", 5),
    ]
    messages = [
        one.message for one in client.train_job_events("tolerant") if one.reason == "TaskFailed"
    ]
    assert sorted(messages) == [
        f"task-{one} failed: task-{one} exited with code 5" for one in (3, 7)
    ]
    shown = server.cli("jobs", "describe", "tolerant").good().out
    assert "Tasks: 2 completed, 2 failed" in shown
    assert re.search(r"task-7 +NonZeroExit +0 +task-7 exited with code 5", shown)
    job, _ = run("strict", source, max_failed=1, **fields)
    assert (job.phase, job.reason, job.attempt, job.exit_code) == ("Failed", "NonZeroExit", 1, 5)
    assert "2 tasks have failed, and max_failed is 1" in job.message


def test_a_failed_task_of_an_array_starts_again_alone(run: Run) -> None:
    source = """
import os, sys
print("start", os.environ["CLOUDML_TASK_RESTART"], flush=True)
if os.environ["CLOUDML_ARRAY_INDEX"] == "1" and os.environ["CLOUDML_TASK_RESTART"] == "0":
    sys.exit(5)
"""
    job, log = run("flaky", source, array="0-2%1", framework="python")
    assert job.succeeded, log
    assert [task.restarts for task in job.tasks] == [0, 1, 0]
    assert job.message == "the job completed"
    assert "[task-1] cloudml: task-1 starts again (1): task-1 exited with code 5" in log


def test_the_next_attempt_leaves_out_what_has_completed(run: Run, client: CloudMlClient) -> None:
    source = """
import os, sys
print("ran", os.environ["CLOUDML_ATTEMPT"], flush=True)
if os.environ["CLOUDML_ARRAY_INDEX"] == "2" and os.environ["CLOUDML_ATTEMPT"] == "1":
    sys.exit(7)
"""
    rule = {"exit_codes": [7], "action": "restart-gang"}
    job, log = run("resumed", source, array="0-3%1", framework="python", restart={"rules": [rule]})
    assert job.succeeded, log
    assert (job.attempt, job.retries_used) == (2, 1)
    assert sorted(re.findall(r"\[(task-\d)\] ran (\d)", log)) == [
        ("task-0", "1"),
        ("task-1", "1"),
        ("task-2", "1"),
        ("task-2", "2"),
        ("task-3", "2"),
    ]
    assert [(task.name, task.reason) for task in job.tasks] == [
        (f"task-{index}", "Completed") for index in range(4)
    ]
    tasks = client.train_job_tasks("resumed").items
    assert [task.name for task in tasks] == [f"task-{index}" for index in range(4)]


def test_a_paused_array_goes_on_with_what_is_left(
    client: CloudMlClient, code: Callable[..., str], server: RealServer
) -> None:
    source = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # as code does that saves a checkpoint
print("ran", os.environ["CLOUDML_ATTEMPT"], flush=True)
while os.environ["CLOUDML_ARRAY_INDEX"] == "1" and os.environ["CLOUDML_ATTEMPT"] == "1":
    time.sleep(0.01)
"""
    job = TrainJob("rested", "trainer.task", code(source), array="0-2%1", framework="python")
    handle = client.submit_train_job(job)
    output = b""
    for chunk in handle.logs(task="task-1", follow=True):
        output += chunk
        if b"ran 1" in output:
            break
    eventually(
        lambda: [one.running for one in handle.tasks()] == [False, True, False],
        "that the second task runs is told",
    )
    shown = server.cli("jobs", "describe", "rested").good().out
    assert "Tasks: 1 completed, 1 running, 1 waiting" in shown
    assert re.search(r"task-2 +Waiting", shown)
    server.cli("jobs", "pause", "rested").good()
    server.cli("jobs", "resume", "rested").good()
    ended = handle.wait(60)
    log = b"".join(handle.logs()).decode()
    assert ended.succeeded, log
    assert sorted(re.findall(r"\[(task-\d)\] ran (\d)", log)) == [
        ("task-0", "1"),
        ("task-1", "1"),
        ("task-1", "2"),
        ("task-2", "2"),
    ]


def test_an_array_is_asked_for_on_the_command_line(
    server: RealServer, code: Callable[..., str]
) -> None:
    folder = code("import os; print('index', os.environ['CLOUDML_ARRAY_INDEX'])")
    words = ("typed", "trainer.task", folder, "--array", "4-8:4%1", "--max-failed", "1")
    out = server.cli("jobs", "submit", *words, "-F", "python", "-W").good().out
    assert re.findall(r"^\[task-\d\] index (\d)$", out, re.MULTILINE) == ["4", "8"]
    again = server.cli("jobs", "rerun", "typed", "--array", "5", "-W").good().out
    assert "[task-5] index 5" in again or "index 5" in again


def test_an_array_has_no_members_on_the_original_wire(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    """A job may have the name that would be a member's."""
    source = "print('done')"
    for name, fields in (("sweep", {"array": "0-1"}), ("sweep-task-0", {})):
        job = TrainJob(name, "trainer.task", code(source), framework="python", **fields)
        assert client.submit_train_job(job).wait(60).succeeded
