"""Jobs that do nothing: where they are, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.task_table import progress_words
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]

HANGING = """
import multiprocessing, threading, time
def thread_that_waits():
    threading.Event().wait()
def child_that_waits():
    time.sleep(600)
def main_that_waits(child):
    child.join()
if __name__ == "__main__":
    threading.Thread(target=thread_that_waits, daemon=True).start()
    child = multiprocessing.get_context("spawn").Process(target=child_that_waits)
    child.start()
    print("ready", flush=True)
    main_that_waits(child)
"""

SILENT = """
import os, subprocess, sys, threading
def wait_for_nobody():
    threading.Event().wait()
if "child" not in sys.argv:
    print("attempt", os.environ["CLOUDML_ATTEMPT"], flush=True)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
wait_for_nobody()
"""


def test_stacks_of_all_processes_come_to_the_log_and_the_job_runs_on(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    job = client.submit_train_job(TrainJob("stuck", "trainer.task", code(HANGING)))
    awaited = [b"main_that_waits", b"thread_that_waits", b"child_that_waits"]
    for state in job.watch():
        if state.phase == "Running":
            break
    log = b""
    for chunk in job.logs(follow=True):
        log += chunk
        if log.endswith(b"ready\n") or b"child_that_waits" not in log:
            # the child may not have come to its function: it is asked again
            assert client.dump_train_job_stacks("stuck").tasks == ["master-0"]
        if all(words in log for words in awaited):
            break
    assert b"cloudml: stacks of master-0, process " in log
    with pytest.raises(NotFound, match="no task worker-7"):
        job.dump_stacks("worker-7")
    assert job.refresh().phase == "Running"
    job.cancel(grace="0")
    job.wait(60)
    with pytest.raises(Conflict, match="stuck does not run"):
        job.dump_stacks()


def test_a_job_that_hangs_is_ended_and_starts_again(run: Run) -> None:
    job, log = run("silent", SILENT, hang_timeout="2s", max_retries=1)
    assert (job.phase, job.reason, job.attempt) == ("Failed", "Hung", 2)
    assert "gave no sign of life for 2s" in job.message
    assert job.signal == "SIGABRT"
    assert log.count("Fatal Python error: Aborted") == 2
    assert log.count("in wait_for_nobody") == 2
    assert log.count("cloudml: stacks of master-0, process ") == 2


FAILING = """
import os, sys
from cloud_ml import job
attempt = int(os.environ["CLOUDML_ATTEMPT"])
if "report" in sys.argv:
    job.report(min(attempt, 2), loss=1 / attempt)
if "save" in sys.argv:
    path = os.path.join(job.checkpoint_dir(), "state")
    open(path, "w").close()
    job.saved(path)
sys.exit(attempt > 4 and "save" in sys.argv and 5 or 1)
"""


@pytest.mark.parametrize(
    ("words", "attempts", "reason"),
    [
        ([], 3, "NoProgress"),
        (["report"], 4, "NoProgress"),  # its second attempt came farther than its first
        # each attempt saved something new
        pytest.param(["save"], 5, "NonZeroExit", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_fails_again_and_again_at_the_same_place_is_given_up(
    run: Run, words: list[str], attempts: int, reason: str
) -> None:
    name = "-".join(["no", *words, "progress"])
    rules = {"rules": [{"exit_codes": [5], "action": "fail"}]}
    job, log = run(name, FAILING, job_args=words, max_retries=9, restart=rules)
    assert (job.phase, job.reason, job.attempt) == ("Failed", reason, attempts), log


REPORTING = """
import sys, time
from cloud_ml import job
for step in range(15):
    job.report(step, loss=0.5)
    time.sleep(0.2)
job.progress(step=15, of=20)
if "waits" in sys.argv:
    print("ready", flush=True)
    time.sleep(600)
"""


def test_reports_are_signs_of_life(run: Run) -> None:
    job, log = run("reporting", REPORTING, hang_timeout="2s")
    assert job.succeeded, log


def test_what_a_job_reports_is_shown(
    client: CloudMlClient, code: Callable[..., str], server: RealServer
) -> None:
    source = code(REPORTING)
    job = client.submit_train_job(
        TrainJob("reports-shown", "trainer.task", source, job_args=["waits"])
    )
    for chunk in job.logs(follow=True):
        if b"ready" in chunk:
            break
    for state in job.watch():
        if state.phase == "Running":
            break
    [task] = job.tasks().items
    assert task.progress is not None
    assert (task.progress.step, task.progress.of, task.progress.fraction) == (15, 20, 0.75)
    assert task.progress.metrics == {"loss": 0.5}
    assert task.started_at is not None
    assert task.progress.remaining_s is not None
    ran_s = (task.progress.at - task.started_at).total_seconds()
    assert task.progress.remaining_s == pytest.approx(ran_s / 3, abs=0.01)
    left = figures.span(task.progress.remaining_s)
    words = f"step 15 of 20, 75%, about {left} left, loss 0.5"
    assert progress_words(task.progress) == words
    assert words in server.cli("jobs", "top", "reports-shown", "--once").good().out
    job.cancel(grace="0")
    job.wait(60)
    [task] = job.tasks().items
    assert task.progress is not None
    assert task.progress.step == 15


TOGETHER = """
import os, time, threading
from cloud_ml import job
first, index = os.environ["CLOUDML_ATTEMPT"] == "1", job.cluster().task_index
def wait_for_the_other():
    path = os.path.expanduser("~/works")
    while first or not os.path.exists(path):
        time.sleep(0.1)
def work():
    for step in range(40):
        time.sleep(0.1)
        job.report(step)
    open(os.path.expanduser("~/works"), "w").close()
work() if index == 1 and not first else wait_for_the_other()
"""


def test_several_tasks_hang_only_together(run: Run) -> None:
    job, log = run(
        "hung-together",
        TOGETHER,
        worker_count=2,
        recipe="cluster",
        hang_timeout="2s",
        max_retries=1,
    )
    assert job.succeeded, log  # one waited for the other for longer than that
    assert (job.attempt, job.retries_used) == (2, 1)
    assert log.count(" in wait_for_the_other") == 2
