"""Several jobs at once, waiting, the story of a job, and running it again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cloud_ml.cli.jobs import group as jobs
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.models.jobs.checkpoints import JobCheckpoint
from cloud_ml.models.jobs.job import JobRecoveries, JobRecovery, JobTask
from cloud_ml.models.jobs.outputs import JobOutputs
from cloud_ml.models.jobs.train_job import TrainJob
from support.fake_api import START, FakeApi, make_job
from support.fake_server import FakeServer
from support.pages import ROOT

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def test_the_others_are_done_when_one_fails(run: Run, api: FakeApi) -> None:
    api.jobs = {name: make_job(name, phase="Running") for name in ("a", "b")}
    result = run("jobs", "cancel", "a", "none", "b")
    assert result.exit_code == 1
    assert result.stdout == "a is being stopped\nb is being stopped\n"
    assert "there is no job none" in result.stderr


def test_a_deletion_that_is_waited_for(run: Run, api: FakeApi) -> None:
    api.jobs, api.deletes_at_once = {"a": make_job("a"), "b": make_job("b")}, True
    assert run("jobs", "delete", "--wait", "a").stdout == "a is deleted\n"
    assert run("jobs", "delete", "-n", "b").stdout == "b is being deleted\n"


def test_all_jobs_are_deleted_after_a_question(
    run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.jobs = {"a": make_job("a", phase="Failed"), "b": make_job("b", phase="Running")}
    refused = run("jobs", "delete", "--all")
    assert refused.exit_code == 2
    assert "this deletes all 2 jobs of your organisation (1 not ended); add --yes" in refused.stderr
    for wrong in ((), ("--all", "a")):
        assert "name the jobs, or give --all" in run("jobs", "delete", *wrong).stderr
    assert run("jobs", "delete", "-a", "-y").stdout.count("is being deleted") == 2
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "is_person", lambda: True)
        kept = run("jobs", "delete", "--all", text="n\n")
        assert (kept.stdout, "Nothing is deleted" in kept.stderr) == ("", True)
        assert "is being deleted" in run("jobs", "delete", "--all", text="y\n").stdout
    api.jobs = {}
    nothing = run("jobs", "delete", "--all", "--yes")
    assert (nothing.exit_code, nothing.stderr) == (0, "There are no jobs.\n")


def test_waiting_tells_how_jobs_ended(run: Run, api: FakeApi) -> None:
    api.jobs = {
        "good": make_job("good", phase="Succeeded"),
        "bad": make_job(
            "bad", phase="Failed", exit_code=7, reason="NonZeroExit", message="exited with code 7"
        ),
        "worse": make_job("worse", phase="Stopped", reason="Cancelled"),
        "on": make_job("on", phase="Running"),
    }
    assert run("jobs", "wait", "good").exit_code == 0
    result = run("jobs", "wait", "good", "bad", "worse", "-o", "name")
    assert (result.exit_code, result.stdout) == (7, "good\nbad\nworse\n")
    assert "bad failed: NonZeroExit: exited with code 7" in result.stderr
    assert "cloudml jobs logs bad -n 50" in result.stderr
    result = run("jobs", "wait", "on", "--timeout", "1s")
    assert (result.exit_code, "Timed out after 1s; on is still Running" in result.stderr) == (
        124,
        True,
    )
    bare = run("jobs", "wait", "on", "--timeout", "1")
    assert "Timed out after 1s; on is still Running" in bare.stderr
    assert run("jobs", "wait", "good", "none").exit_code == 1
    assert "timeout is 'soon'" in run("jobs", "wait", "on", "--timeout", "soon").stderr


def test_a_job_is_run_again_with_changes_and_without_its_secrets(run: Run, api: FakeApi) -> None:
    uri = "fds://cloudml/a.whl"
    assert (
        run(
            "jobs", "submit", "a", "m", uri, "-c", "1", "--env", "X=1", "--", "--epochs", "3"
        ).exit_code
        == 0
    )
    assert run("jobs", "rerun", "a", "-o", "name").stdout == "a-2\n"
    assert (
        run(
            "jobs", "rerun", "a-2", "-M", "2G", "--env", "Y=2", "-o", "name", "--", "--epochs", "9"
        ).stdout
        == "a-3\n"
    )
    same, changed = api.jobs["a-2"].spec, api.jobs["a-3"].spec
    assert {**same, "job_name": "a"} == dict(api.jobs["a"].spec)
    assert (changed["memory_limit"], changed["cpu_limit"], changed["job_args"]) == (
        "2G",
        "1",
        ["--epochs", "9"],
    )
    assert changed["environment"] == {"X": "1", "Y": "2"}

    api.jobs["a"] = make_job("a", spec={**api.jobs["a"].spec, "hdfs_krb_password": "******"})
    refused = run("jobs", "rerun", "a")
    assert (refused.exit_code, "hdfs_krb_password" in refused.stderr) == (1, True)
    assert run("jobs", "rerun", "a", "-hkp", "new", "-n", "b").exit_code == 0


def test_what_stands_behind_two_dashes_are_the_arguments_of_a_clone(run: Run, api: FakeApi) -> None:
    run("jobs", "submit", "a", "m", "fds://cloudml/a.whl", "--", "--lr", "1", "7")
    assert run("jobs", "clone", "a", "-o", "name", "--", "0").stdout == "a-2\n"
    assert run("jobs", "clone", "a", "b", "-o", "name", "--", "--lr", "2").stdout == "b\n"
    changed = run("jobs", "clone", "a", "c", "--set", "lr=4", "--", "--lr=3", "--", "x")
    assert (changed.exit_code, "is new" in changed.stderr) == (0, False)
    assert [api.jobs[name].spec["job_args"] for name in ("a-2", "b", "c")] == [
        ["0"],
        ["--lr", "2"],
        ["--lr=4", "--", "x"],
    ]


def test_a_copy_of_a_job_that_failed_says_that_it_begins_anew(run: Run, api: FakeApi) -> None:
    spec = {"job_name": "a", "module_name": "m", "trainer_uri": "fds://cloudml/a.whl"}
    kept = JobOutputs(uri="fds://cloudml/o", files=1)
    api.jobs["a"] = make_job("a", phase="Failed", spec=spec, outputs=kept)
    assert "without the files that a left" in run("jobs", "rerun", "a", "-n", "b").stderr
    api.checkpoints = [JobCheckpoint(path="1.pt", uri="fds://cloudml/1.pt", saved_at=START)]
    assert "add --restore-from a;" in run("jobs", "rerun", "a", "-n", "c").stderr
    goes_on = run("jobs", "rerun", "a", "-n", "d", "--restore-from", "a")
    assert "from the beginning" not in goes_on.stderr


@pytest.mark.parametrize(
    ("workers", "elastic"),
    [("4", None), ("2:3", {"worker": {"min": 2, "max": 3}, "every_s": 60})],
)
def test_a_number_of_workers_replaces_an_elastic_one(
    run: Run, api: FakeApi, tmp_path: Path, workers: str, elastic: object
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "job_name: a\nmodule_name: m\ntrainer_uri: fds://cloudml/a.whl\nrecipe: pytorch\n"
        "elastic: {worker: {min: 1, max: 8}, every_s: 60}\n"
    )
    assert run("jobs", "submit", "-f", str(file)).exit_code == 0
    assert run("jobs", "rerun", "a", "-w", workers, "-n", "b").exit_code == 0
    assert api.jobs["b"].spec.get("elastic") == elastic
    assert str(api.jobs["b"].spec["worker_count"]) == workers


@pytest.mark.parametrize(
    ("options", "elastic"),
    [
        (("-w", "2:8", "--elastic-every", "5m"), {"worker": {"min": 2, "max": 8}, "every_s": 300}),
        (("-w", "2:8", "--elastic-every", "0"), {"worker": {"min": 2, "max": 8}, "every_s": 0}),
        (("-w", "2:8"), None),
    ],
)
def test_how_often_an_elastic_job_grows_is_an_option(
    run: Run, api: FakeApi, options: tuple[str, ...], elastic: object
) -> None:
    words = ("jobs", "submit", "a", "task", "fds://cloudml/a.whl", "--recipe", "pytorch")
    result = run(*words, *options)
    assert result.exit_code == 0, result.stderr
    assert api.jobs["a"].spec.get("elastic") == elastic
    assert run("jobs", "rerun", "a", "--elastic-every", "90", "-n", "b").exit_code == 0
    again = {"worker": {"min": 2, "max": 8}, "every_s": 90}
    assert api.jobs["b"].spec["elastic"] == again
    assert run("jobs", "rerun", "b", "-w", "3:4", "-n", "c").exit_code == 0
    assert api.jobs["c"].spec["elastic"] == {"worker": {"min": 3, "max": 4}, "every_s": 90}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-w", "4", "--elastic-every", "5m"), "--elastic-every is for elastic jobs"),
        (("--elastic-every", "5m"), "--elastic-every is for elastic jobs"),
        (
            ("-w", "2:8", "--elastic-every", "soon"),
            "--elastic-every is 'soon'; allowed is a duration",
        ),
    ],
)
def test_only_elastic_jobs_grow(run: Run, options: tuple[str, ...], message: str) -> None:
    result = run("jobs", "submit", "a", "task", "fds://cloudml/a.whl", *options)
    assert result.exit_code > 0
    assert message in result.stderr


def test_the_job_file_of_the_page_is_elastic(run: Run, api: FakeApi, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "several-processes.md").read_text("utf-8")
    snippet = page.split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "job.yaml"
    file.write_text(f"trainer_uri: fds://cloudml/a.whl\nmodule_name: m\n{snippet}")
    assert run("jobs", "submit", "-f", str(file), "-n", "a").exit_code == 0
    made = from_wire(TrainJob(**api.jobs["a"].spec)).workload
    (workers,) = made.roles
    assert (workers.least, workers.replicas, made.elastic_every_s) == (2, 8, 300)
    assert workers.resources.memory_bytes == 600 * 2**20


def test_an_exported_job_can_be_submitted(run: Run, api: FakeApi, tmp_path: Path) -> None:
    assert (
        run(
            "jobs", "submit", "a", "m", "fds://cloudml/a.whl", "-M", "100M", "--label", "x=1"
        ).exit_code
        == 0
    )
    spec = api.jobs.pop("a").spec
    for kind in ("yaml", "json"):
        api.jobs["a"] = make_job("a", spec={**spec, "hdfs_krb_keytab": "******"})
        result = run("jobs", "export", "a", "-o", kind)
        assert "hdfs_krb_keytab is left out" in result.stderr
        file = tmp_path / f"job.{kind}"
        file.write_text(result.stdout)
        del api.jobs["a"]
        assert run("jobs", "submit", "-f", str(file)).exit_code == 0
        assert api.jobs["a"].spec == spec


def test_describe_tells_the_story(run: Run, api: FakeApi) -> None:
    api.jobs["a"] = make_job(
        "a",
        phase="Failed",
        reason="OOMKilled",
        message="OOMKilled: 100M exceeded",
        queued_at=START,
        starting_at=START + timedelta(seconds=2),
        finished_at=START + timedelta(seconds=9),
        spec={"memory_limit": "100M", "job_args": ["a b"], "max_retries": 2, "save_mode": False},
        max_retries=2,
        retries_used=1,
        task_restarts_used=4,
    )
    output = run("jobs", "describe", "a").stdout
    for words in (
        "Attempt: ", "1 (1 of 2 retries used)", "Task restarts: 4 in earlier attempts",
        "  queue      12:00:00      2.0 s  ━", "Submitted  submitted by admin",
        "job_args:     'a b'", "Give it more memory: cloudml jobs rerun a -M 200M",
    ):  # fmt: skip
        assert words in output
    assert "save_mode" not in output
    api.tasks = [JobTask(name="master-0", running=True, cores=0.5, memory_bytes=2**20, processes=2)]
    api.jobs["b"] = make_job("b", phase="Running", spec={})
    assert (
        "Uses now: master-0: 50% CPU, 1.0 MiB, 2 processes" in run("jobs", "describe", "b").stdout
    )


def test_top_shows_the_tasks_of_jobs_that_hold_a_place(run: Run, api: FakeApi) -> None:
    assert run("jobs", "top").stdout == "No job is running.\n"
    api.jobs = {
        "a": make_job("a", phase="Running", state="running"),
        "b": make_job("b", phase="Succeeded"),
    }
    api.tasks = [
        JobTask(
            name="master-0",
            running=True,
            started_at=START,
            cores=1.5,
            memory_bytes=2**20,
            memory_peak_bytes=2**21,
            memory_limit_bytes=2**22,
            cpu_limit=2,
            processes=2,
        )
    ]
    header, line = run("jobs", "top").stdout.splitlines()
    assert header.split() == [
        "JOB",
        "TASK",
        "STATE",
        "CPU",
        "MEMORY",
        "PEAK",
        "LIMIT",
        "PROCESSES",
        "FOR",
        "PROGRESS",
    ]
    assert line.startswith("a    master-0  Running  150% of 200%  1.0 MiB  2.0 MiB  4.0 MiB  2 ")
    (found,) = json.loads(run("jobs", "top", "-o", "json").stdout)
    assert (found["job"], found["task"]["cores"]) == ("a", 1.5)
    assert run("jobs", "top", "none").exit_code == 1
    assert run("jobs", "metrics", "a").stdout.splitlines()[0].split() == header.split()
    assert (
        json.loads(run("jobs", "metrics", "a", "-o", "json").stdout)[0]["task"]["memory_bytes"]
        == 2**20
    )


def test_logs_are_searched(run: Run, api: FakeApi) -> None:
    api.jobs["a"] = make_job("a", phase="Succeeded")
    api.log = b"epoch 1\nLOSS 3\nepoch 2\nrest"
    assert run("jobs", "logs", "a", "--grep", r"epoch \d").stdout == "epoch 1\nepoch 2\n"
    assert (
        run("jobs", "logs", "a", "--grep", "loss", "-i", "--invert-match").stdout
        == "epoch 1\nepoch 2\nrest\n"
    )
    assert "a has no such line" in run("jobs", "logs", "a", "--grep", "never").stderr
    api.log = b""
    empty = run("jobs", "logs", "a")
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "a has no output\n")
    of_task = run("jobs", "logs", "a", "--task", "worker-1", "--attempt", "2")
    assert of_task.stderr == "worker-1 of attempt 2 of a has no output\n"
    api.jobs["a"] = make_job("a", phase="Running")
    assert run("jobs", "logs", "a").stderr == "a has no output yet\n"
    api.jobs["a"] = make_job("a", phase="Succeeded", stages={"output": START})
    for options in ((), ("-n", "5"), ("--attempt", "1"), ("--no-installation",)):
        lost = run("jobs", "logs", "a", *options)
        assert "its log is not on the server any more" in lost.stderr
    assert run("jobs", "logs", "a", "-n", "0").stderr == "a has no output\n"
    assert run("jobs", "logs", "a", "--task", "worker-1").stderr == "worker-1 of a has no output\n"
    for wrong, words in ((("--grep", "["), "no regular expression"), (("-i",), "belong to --grep")):
        result = run("jobs", "logs", "a", *wrong)
        assert (result.exit_code, words in result.stderr) == (2, True)


def test_the_list_is_narrowed_by_the_server(run: Run, server: FakeServer) -> None:
    options = (
        "--state",
        "failed",
        "-n",
        "exp*",
        "-F",
        "python",
        "--user",
        "mei",
        "--label",
        "a=1",
        "--label",
        "b=2",
    )
    assert (
        run(
            "jobs", "list", *options, "--since", "2026-01-30T00:00Z", "--until", "2026-01-31T00:00Z"
        ).exit_code
        == 0
    )
    query = server.seen[-1].query
    assert (query["state"], query["name"], query["framework"], query["user"]) == (
        "failed",
        "exp*",
        "python",
        "mei",
    )
    assert query["created_after"].startswith("2026-01-30T00:00:00")
    assert query["created_before"].startswith("2026-01-31T00:00:00")
    assert run("jobs", "list", "--label", "a").exit_code == 2


def test_a_name_that_is_not_there_is_answered_with_those_like_it(run: Run, api: FakeApi) -> None:
    api.jobs = {name: make_job(name) for name in ("linear", "mnist")}
    for words in (
        ("describe", "linaer"),
        ("cancel", "linaer"),
        ("logs", "linaer"),
        ("delete", "mnist2", "linaer"),
    ):
        result = run("jobs", *words)
        assert (result.exit_code, "Did you mean linear?" in result.stderr) == (1, True)
    assert "Did you mean" not in run("jobs", "describe", "zzz").stderr


def test_a_name_that_means_a_task_is_answered_with_the_job(run: Run, api: FakeApi) -> None:
    api.jobs = {name: make_job(name) for name in ("linear", "linear-a")}
    api.tasks = [JobTask(name="worker-1", running=True)]
    for command in ("logs", "restart", "cancel", "describe", "pause", "resume", "delete"):
        result = run("jobs", command, "linear-worker-1")
        assert result.exit_code == 1
        option = " --task worker-1" if command in ("logs", "restart") else ""
        hint = f"It is a task of linear: cloudml jobs {command} linear{option} (code"
        assert hint in result.stderr, command
    assert "is a task of" not in run("jobs", "logs", "linear-worker-7").stderr


def test_describe_shows_fields_as_they_are_written(run: Run, api: FakeApi) -> None:
    spec = {"cluster_spec": {"worker": {"count": 2, "cpu_limit": None}}, "max_retries": 0}
    api.jobs["a"] = make_job("a", phase="Running", spec=spec)
    lines = run("jobs", "describe", "a").stdout.splitlines()
    assert '  cluster_spec: {"worker": {"count": 2}}' in lines
    assert any(line.split() == ["max_retries:", "0"] for line in lines)


def test_describe_tells_what_failures_have_cost(run: Run, api: FakeApi) -> None:
    last = JobRecovery(role="worker", reason="Signaled", recovery_s=0.312, lost_work_s=40)
    once = JobRecoveries(count=1, recovery_s=0.312, lost_work_s=40, last=last)
    api.jobs["a"] = make_job("a", phase="Running", recoveries=once)
    assert (
        "Work lost:       40.0 s\nTime to recover: 312 ms\n" in run("jobs", "describe", "a").stdout
    )
    often = JobRecoveries(count=4, recovery_s=12.0, lost_work_s=200, last=last)
    api.jobs["a"] = make_job("a", phase="Running", recoveries=often)
    output = run("jobs", "describe", "a").stdout
    assert "Work lost:       40.0 s the last time, 3 m 20 s in 4 restarts\n" in output
    unknown = replace(often, lost_work_s=0.0, last=replace(last, lost_work_s=None))
    api.jobs["a"] = make_job("a", phase="Running", recoveries=unknown)
    assert "Work lost" not in run("jobs", "describe", "a").stdout


def test_a_pause_is_waited_for(run: Run, api: FakeApi) -> None:
    api.jobs = {"a": make_job("a", phase="Paused"), "b": make_job("b", phase="Succeeded")}
    result = run("jobs", "pause", "--wait", "a", "b")
    assert (result.exit_code, result.stdout) == (1, "a is paused\n")
    assert "b is not paused: it is Succeeded" in result.stderr


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("Paused", "a is resumed"),
        ("Queued", "a is resumed"),
        ("Running", "a is not paused: it is Running"),
        ("Stopping", "a is resumed; it starts again when its processes have ended"),
    ],
)
def test_resuming_tells_what_follows(run: Run, api: FakeApi, phase: str, expected: str) -> None:
    api.jobs["a"] = make_job("a", phase=phase, state="running")
    assert run("jobs", "resume", "a").stdout == f"{expected}\n"


def test_who_follows_a_paused_job_is_told_how_it_goes_on(run: Run, api: FakeApi) -> None:
    api.jobs["a"] = make_job("a", phase="Paused", state="pending")
    api.log = b"before\n"
    result = run("jobs", "logs", "a", "--follow")
    assert result.stdout == "before\n"
    assert "cloudml jobs resume a" in result.stderr
    assert "resume" not in run("jobs", "logs", "a").stderr
