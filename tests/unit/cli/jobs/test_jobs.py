from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cloud_ml.cli.display.watching import print_log
from support.fake_api import FakeApi, make_job

if TYPE_CHECKING:
    from unit.cli.conftest import Run

SPEC = {"module_name": "trainer.task", "hdfs_krb_password": "hunter2"}


@pytest.fixture(autouse=True)
def some_jobs(api: FakeApi) -> None:
    api.jobs = {
        "linear": make_job("linear", phase="Running", spec=SPEC),
        "a-longer-name": make_job(
            "a-longer-name", phase="Failed", reason="NonZeroExit", message="a\x1b[2Jb"
        ),
    }


def test_a_list_without_a_job_says_why(run: Run) -> None:
    nothing = run("jobs", "list", "-n", "2", "-s", "saved")
    assert nothing.exit_code == 0
    assert nothing.stderr == "No job meets these conditions. To limit the list: --limit 2.\n"
    assert run("jobs", "list", "-s", "saved").stderr == "No job meets these conditions.\n"


def test_the_list_is_aligned(run: Run) -> None:
    lines = run("jobs", "list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "REASON", "DURATION", "CREATED"]
    assert lines[1].startswith("linear         Running                         2026-01-31 ")
    assert lines[2].split()[:4] == ["a-longer-name", "Failed", "NonZeroExit", "2026-01-31"]
    assert "\x1b" not in "".join(lines)


def test_other_forms_of_the_list(run: Run) -> None:
    assert run("jobs", "list", "-o", "name").stdout == "linear\na-longer-name\n"
    assert [job["name"] for job in json.loads(run("jobs", "list", "-o", "json").stdout)] == [
        "linear",
        "a-longer-name",
    ]
    assert "uid-linear" in run("jobs", "list", "-o", "wide").stdout
    assert run("jobs", "list", "--state", "failed", "-o", "name").stdout == "a-longer-name\n"


def test_a_list_that_was_cut_says_so(run: Run) -> None:
    result = run("jobs", "list", "--limit", "1", "-o", "name")
    assert result.stdout == "linear\n"
    assert "--limit 0" in result.stderr
    assert run("jobs", "list", "--limit", "0", "-o", "name").stderr == ""


def test_describe(run: Run) -> None:
    text = run("jobs", "describe", "a-longer-name").stdout
    assert "Reason:" in text
    assert "NonZeroExit" in text
    assert "\x1b" not in text
    document = json.loads(run("jobs", "describe", "linear", "-o", "json").stdout)
    assert document["spec"] == {"module_name": "trainer.task", "hdfs_krb_password": "…"}
    assert "hunter2" not in run("jobs", "describe", "linear").output


def test_logs(run: Run, api: FakeApi) -> None:
    assert run("jobs", "logs", "linear").stdout == api.log.decode()
    assert run("jobs", "logs", "linear", "-n", "1").stdout == "epoch 3\n"
    assert run("jobs", "logs", "linear", "-f").stdout == api.log.decode()


def test_bytes_of_a_log_are_handed_on_as_they_are(run: Run, api: FakeApi) -> None:
    api.log = b"\xff\x00 50%\r100%\n"
    assert run("jobs", "logs", "linear").stdout_bytes == api.log


def test_enough_of_a_log_is_not_the_end_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"epoch 1\n"
        raise KeyboardInterrupt

    assert print_log(chunks(), "linear", goes_on=True) == 130
    out, err = capsys.readouterr()
    assert out == "epoch 1\n"
    assert "the job keeps running" in err


def test_events(run: Run) -> None:
    assert "Submitted  submitted by admin" in run("jobs", "events", "linear").stdout
    assert (
        json.loads(run("jobs", "events", "linear", "-o", "json").stdout)[0]["reason"] == "Submitted"
    )


def test_cancel_start_delete(run: Run, api: FakeApi) -> None:
    assert run("jobs", "cancel", "linear").stdout == "linear is being stopped\n"
    ended = run("jobs", "cancel", "a-longer-name")
    assert (ended.exit_code, "has ended already" in ended.stderr) == (1, True)
    api.jobs["saved"] = make_job("saved", phase="Saved")
    assert run("jobs", "start", "saved").stdout == "saved is started\n"
    assert run("jobs", "delete", "linear", "a-longer-name").stdout.count("is being deleted") == 2
