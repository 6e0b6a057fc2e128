"""Several jobs at once, waiting, the story of a job, and running it again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cloud_ml.cli.jobs import group as jobs
from cloud_ml.models.job import JobTask
from support.fake_api import START, FakeApi, make_job
from support.fake_server import FakeServer

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
    )
    said = run("jobs", "describe", "a").stdout
    for words in (
        "Attempt:  1 of 3", "  queue      12:00:00      2.0 s  ━", "Submitted  submitted by admin",
        "job_args:     'a b'", "Give it more memory: cloudml jobs rerun a -M 200M",
    ):  # fmt: skip
        assert words in said
    assert "save_mode" not in said
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
    assert (empty.exit_code, empty.stdout, empty.stderr) == (0, "", "a has no output yet\n")
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
