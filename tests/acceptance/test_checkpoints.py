"""Jobs that go on from where they were."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Conflict
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "checkpoints.md"


def test_the_example_of_the_page_goes_on_from_its_checkpoint(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    example = re.search(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert example is not None
    job, log = run("halving-again", example[1], max_retries=3)
    assert job.succeeded, log
    assert [line for line in log.splitlines() if line.startswith("starts at")] == [
        "starts at step 0",
        "starts at step 10",
    ]
    found = client.get_train_job("halving-again").checkpoints()
    assert [one.step for one in found] == [10, 20, 30]
    assert [one.path for one in found] == ["step-10.json", "step-20.json", "step-30.json"]
    newest = client.describe_train_job("halving-again").checkpoint
    assert newest is not None
    assert (newest.path, newest.uri, newest.step) == (found[-1].path, found[-1].uri, 30)
    assert (newest.saved_at, newest.attempt) == (found[-1].saved_at, found[-1].attempt)
    shown = server.cli("jobs", "describe", "halving-again").good().out
    assert re.search(r"^Checkpoint: +step 30 \(step-30\.json\), saved .+ ago$", shown, re.MULTILINE)
    longer, log = run("longer", example[1], restore_from="halving-again")
    assert longer.succeeded, log
    assert "starts at step 30" in log
    (given,) = [
        one.message for one in client.train_job_events("longer") if one.reason == "RestoreFrom"
    ]
    assert given.startswith(f"to go on from {found[-1].uri} (step 30), your code loads the path")
    source = "from cloud_ml import job\nprint('goes on at', job.latest().step)"
    _, log = run("with-step", source, restore_from="halving-again")
    assert "goes on at 30" in log
    assert client.storage.head(found[-1].uri).size == found[-1].size > 0


def test_code_without_our_module_finds_the_newest_complete_one(run: Run) -> None:
    source = """
import os, sys, json, time
folder, before = os.environ["CLOUDML_CHECKPOINT_DIR"], os.environ.get("CLOUDML_RESTORE_FROM")
print("restore from", before and os.path.relpath(before, folder), sorted(os.listdir(folder)))
if before:
    sys.exit()
open(folder + "/good-1", "w").close()
with open(folder + "/.saved.jsonl", "w") as note:
    note.write(json.dumps({"path": "good-1", "step": 1, "time": time.time()}))
open(folder + "/torn-2", "w").close()
sys.exit(1)
"""
    job, log = run("by-hand", source, max_retries=1)
    assert job.succeeded, log
    assert "restore from None []" in log
    assert "restore from good-1 ['.saved.jsonl', 'good-1', 'torn-2']" in log


def test_code_that_renames_its_checkpoints_reports_nothing(run: Run, client: CloudMlClient) -> None:
    source = """
import os, shutil, sys, time
from cloud_ml import job
folder, before = os.environ["CLOUDML_CHECKPOINT_DIR"], os.environ.get("CLOUDML_RESTORE_FROM")
print("restore from", before and os.path.relpath(before, folder))
if before:
    assert job.latest().path == before, job.latest()
    sys.exit()
shutil.rmtree(folder)
os.mkdir(folder)
late = time.monotonic() + 30
while not os.path.exists(f"{folder}/.renamed.jsonl"):  # the new folder is watched
    assert time.monotonic() < late
    open(f"{folder}/step-1.pt.tmp", "w").close()
    os.replace(f"{folder}/step-1.pt.tmp", f"{folder}/step-1.pt")
    time.sleep(0.01)
os.unlink(f"{folder}/step-1.pt")
for step in (5, 7, 10):
    path = f"{folder}/step-{step}.pt"
    with open(f"{path}.tmp", "w") as file:
        file.write("state")
    os.replace(f"{path}.tmp", path)
os.rename(f"{folder}/step-5.pt", f"{folder}/old-5.pt")
open(f"{folder}/torn-15.pt", "w").close()
sys.exit(1)
"""
    job, log = run("renaming", source, max_retries=1)
    assert job.succeeded, log
    assert [line for line in log.splitlines() if line.startswith("restore")] == [
        "restore from None",
        "restore from step-10.pt",
    ]
    found = client.get_train_job("renaming").checkpoints()
    assert [(one.path, one.step, one.attempt, one.size) for one in found] == [
        ("step-7.pt", 7, 1, 5),
        ("step-10.pt", 10, 1, 5),
    ]


def test_jobs_with_one_folder_go_on_from_each_other(run: Run, client: CloudMlClient) -> None:
    source = """
import os, sys
from cloud_ml import job
start = job.latest()
step = start.step if start else 0
given = os.environ.get("CLOUDML_RESTORE_FROM")
print("starts at", step, given and os.path.basename(given), job.checkpoint_dir())
path = os.path.join(job.checkpoint_dir(), f"step-{step + 1}")
open(path, "w").close()
job.saved(path, step + 1)
sys.exit(os.environ["CLOUDML_ATTEMPT"] == "1" and step == 0)
"""
    policy = {"path": "fds://cloudml/kept/line/"}
    first, log = run("line-one", source, checkpoint=policy, max_retries=1)
    assert first.succeeded, log
    started = [line for line in log.splitlines() if line.startswith("starts")]
    folder = started[0].split()[-1]  # below the job's own folder without a sandbox
    assert folder.endswith("/storage/cloudml/kept/line")
    assert started == [f"starts at 0 None {folder}", f"starts at 1 step-1 {folder}"]
    second, log = run("line-two", source, checkpoint=policy)
    assert second.succeeded, log
    assert "starts at 2 step-2 /" in log
    found = client.get_train_job("line-two").checkpoints()
    assert [one.uri for one in found] == [f"fds://cloudml/kept/line/step-{n}" for n in (1, 2, 3)]
    other, log = run("line-three", source, restore_from="line-two")
    assert other.succeeded, log
    assert "starts at 3 step-3" in log
    anew, log = run("line-four", source, checkpoint=policy, restore_from=found[0].uri)
    assert anew.succeeded, log
    assert " step-1 " in log  # what was asked for goes first


def test_a_job_does_not_run_without_the_folder_that_it_has_chosen(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    client.storage.create_bucket("lines")
    train_job = TrainJob("folderless", "trainer.task", code("print('runs')"), save_mode=True)
    train_job.checkpoint = {"path": "fds://lines/kept"}  # type: ignore[assignment]
    job = client.submit_train_job(train_job)
    client.storage.delete_bucket("lines")
    job.start()
    ended = job.wait(60)
    assert (ended.phase, ended.reason) == ("Failed", "StartFailed")
    assert "no bucket for checkpoint.path, which is fds://lines/kept" in ended.message


def test_a_job_without_checkpoints_leaves_no_folder(run: Run, client: CloudMlClient) -> None:
    job, log = run(
        "none-saved", "import os; print(os.listdir(os.environ['CLOUDML_CHECKPOINT_DIR']))"
    )
    assert job.succeeded, log
    assert log.endswith("[]\n")
    assert client.get_train_job("none-saved").checkpoints() == []


def test_a_paused_job_goes_on_where_it_was(client: CloudMlClient, code: Callable[..., str]) -> None:
    source = """
import os, sys, time
from cloud_ml import job
start = job.latest()
print("starts with", start and start.step, flush=True)
def save():
    print("stops:", job.notice().reason, job.notice().deadline > time.time())
    path = os.path.join(job.checkpoint_dir(), "state")
    open(path, "w").close()
    job.saved(path, 7)
    sys.exit(1)
if start is None:
    job.on_preempt(save)
    print("ready", flush=True)
    time.sleep(600)
"""
    job = client.submit_train_job(TrainJob("pausing", "trainer.task", code(source)))
    for chunk in job.logs(follow=True):
        if b"ready" in chunk:
            break
    assert job.pause().phase in ("Starting", "Running", "Stopping", "Paused")
    state = job.wait_until_paused(60)
    assert (state.state, state.attempt, state.retries_used) == ("pending", 2, 0)
    job.pause()
    with pytest.raises(Conflict, match="only a job that runs can be restarted") as refused:
        job.restart()
    assert refused.value.hint == "use: cloudml jobs resume pausing"
    job.resume()
    ended = job.wait(60)
    assert ended.succeeded
    assert b"stops: Paused True" in b"".join(job.logs(attempt=1))
    assert b"starts with 7" in b"".join(job.logs(attempt=2))
    with pytest.raises(Conflict, match="only a job that waits or runs can be paused"):
        job.pause()
    with pytest.raises(Conflict, match="only a paused job can be resumed"):
        job.resume()


def test_a_job_that_runs_is_restarted_by_hand(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    source = """
import os, time
from cloud_ml import job
if os.environ["CLOUDML_ATTEMPT"] == "1":
    job.on_preempt(lambda: os._exit(0 if job.notice() is None else 9))
    print("ready", flush=True)
    time.sleep(600)
"""
    job = client.submit_train_job(TrainJob("restarted", "trainer.task", code(source)))
    for chunk in job.logs(follow=True):
        if b"ready" in chunk:
            break
    job.restart()
    ended = job.wait(60)
    assert ended.succeeded
    assert (ended.attempt, ended.retries_used) == (2, 0)
    messages = [event.message for event in client.train_job_events("restarted")]
    assert any("attempt 2 follows, as requested; attempt 1 ran for " in one for one in messages), (
        messages
    )
    with pytest.raises(Conflict) as refused:
        job.restart()
    assert refused.value.hint == "submit it again: cloudml jobs rerun restarted"
