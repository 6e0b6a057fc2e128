"""Jobs that fail: the answer names what is wrong, and nothing of them is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, trainer

Run = Callable[..., tuple[Job, str]]
SECOND_TIME = """
import os, pathlib, sys
attempt, checkpoint = int(os.environ["CLOUDML_ATTEMPT"]), pathlib.Path("checkpoint")
print("attempt", attempt, "finds", checkpoint.read_text() if checkpoint.exists() else "nothing")
checkpoint.write_text(f"step {attempt}")
sys.exit(0 if attempt == int(sys.argv[1]) else 3)
"""


# ---- retries


def test_a_failed_attempt_is_repeated_and_finds_its_checkpoint(
    client: CloudMlClient, run: Run
) -> None:
    job, log = run("second-time", SECOND_TIME, job_args=["2"], max_retries=3)
    assert (job.phase, job.attempt, job.exit_code) == ("Succeeded", 2, 0)
    attempts = [line for line in log.splitlines() if line.startswith("attempt")]
    assert attempts == ["attempt 1 finds nothing", "attempt 2 finds step 1"]
    assert b"".join(client.train_job_logs("second-time", attempt=1)).endswith(
        b"attempt 1 finds nothing\n"
    )
    events = {event.reason: event for event in client.train_job_events("second-time")}
    assert re.fullmatch(
        r"master-0 exited with code 3: last output: attempt 1 finds nothing; "
        r"attempt 2 in 1 s \(retry 1 of 3\); attempt 1 ran for [0-9.]+s",
        events["Restarting"].message,
    )
    assert events["Started"].at - events["Restarting"].at >= timedelta(seconds=1)


def test_when_no_retry_is_left_the_job_has_failed(client: CloudMlClient, run: Run) -> None:
    job, log = run("never", SECOND_TIME, job_args=["99"], max_retries=1)
    assert (job.phase, job.attempt, job.reason, job.exit_code) == ("Failed", 2, "NonZeroExit", 3)
    assert log.count("attempt 1 finds") == log.count("attempt 2 finds") == 1


def test_without_retries_code_runs_once(run: Run) -> None:
    job, log = run("once", SECOND_TIME, job_args=["2"])
    assert (job.phase, job.attempt, log.count("finds")) == ("Failed", 1, 1)


def test_a_package_that_does_not_install_is_not_tried_again(
    client: CloudMlClient, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path / "c", "pass", setup_py="raise SystemExit('never')"))
    job = client.submit_train_job(TrainJob("hopeless", "trainer.task", code, max_retries=5)).wait(
        60
    )
    assert (job.phase, job.attempt, job.reason) == ("Failed", 1, "EnvironmentFailed")


# ---- limits and endings


def test_the_time_limit_ends_a_job(server: RealServer, run: Run) -> None:
    job, _ = run("too-long", "import time\nwhile True: time.sleep(1)", wall_time_limit="1s")
    assert (job.phase, job.reason) == ("Failed", "TimeLimitExceeded")
    assert "1 s" in job.message
    assert server.processes_of(job.uid) == []


def test_a_job_that_eats_memory_harms_only_itself(
    server: RealServer, client: CloudMlClient, run: Run
) -> None:
    if client.server_info().isolation["limits"] == "none":
        pytest.skip("no control groups here: " + "; ".join(client.server_info().missing))
    job, _ = run("greedy", "b = []\nwhile True: b.append(bytearray(1 << 20))", memory_limit="50M")
    assert (job.phase, job.reason) == ("Failed", "OOMKilled")
    assert "50M" in job.message
    assert server.process is not None
    assert server.process.poll() is None


def test_daemons_end_with_the_job(server: RealServer, run: Run) -> None:
    source = """
import os, subprocess, sys
for number in range(3):
    subprocess.Popen(
        ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: os.read(os.pipe()[0], 1)
    os._exit(0)
print("leaving four behind")
"""
    job, log = run("parents", source)
    assert job.succeeded
    assert log.endswith("leaving four behind\n")
    assert server.processes_of(job.uid) == []


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("raise SystemExit(7)", 7, "exited with code 7"),
        ("import os; os.kill(os.getpid(), 11)", 139, "SIGSEGV"),
        ("1 / 0", 1, "exited with code 1"),
        ("import os; os._exit(255)", 255, "exited with code 255"),
    ],
)
def test_watch_exits_as_the_job_did(
    server: RealServer, tmp_path: Path, source: str, code: int, words: str
) -> None:
    name = f"exit-{code}"
    ran = server.cli(
        "jobs", "submit", name, "trainer.task", str(trainer(tmp_path / "c", source)), "-W"
    )
    assert ran.code == code
    assert f"{name} failed" in ran.err
    assert words in ran.err


# ---- code that cannot run


@pytest.mark.parametrize(
    ("name", "module", "source", "files", "code", "words"),
    [
        ("missing-module", "nowhere.task", "pass", {}, 3, "has no module nowhere.task"),
        ("misspelled-module", "trainer.tsk", "pass", {}, 1, "Did you mean trainer.task?"),
        ("syntax-error", "trainer.task", "def f(:\n", {}, 1, "SyntaxError"),
        ("import-error", "trainer.task", "import nothing_of_that_name", {}, 1, "nothing_of_that_name"),
        ("no-such-package", "trainer.task", "pass",
         {"requirements_txt": "cloudml-test-no-such-package==9"}, 3, "cloudml-test-no-such-package"),
        ("bad-requirement", "trainer.task", "pass", {"requirements_txt": "=== nonsense"}, 3, "nonsense"),
        ("failing-setup", "trainer.task", "pass", {"setup_py": "raise SystemExit('the words of "
                                                               "setup')"}, 3,
         "the words of setup"),
        ("broken-pyproject", "trainer.task", "pass", {"pyproject_toml": "[project\n"}, 3, "pyproject.toml"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    server: RealServer,
    tmp_path: Path,
    name: str,
    module: str,
    source: str,
    files: dict[str, str],
    code: int,
    words: str,
) -> None:
    ran = server.cli(
        "jobs", "submit", name, module, str(trainer(tmp_path / "c", source, **files)), "-W"
    )
    assert ran.code == code, ran.out + ran.err
    assert words in ran.out + ran.err
    if code == 3:
        assert words in ran.err, "the verdict says it, not the log alone"
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "uri", ["fds://cloudml/no/such.tar.gz", "fds://somebody-elses/secret.tar.gz"]
)
def test_a_trainer_that_is_not_there_and_one_of_somebody_else_are_told_apart_nowhere(
    client: CloudMlClient, uri: str
) -> None:
    handle = client.submit_train_job(
        TrainJob(f"absent-{len(uri)}", "trainer.task", uri, check_uris=False)
    )
    job = handle.wait(30)
    assert (job.phase, job.reason, job.message) == (
        "Failed",
        "TrainerNotFound",
        f"the trainer {uri} does not exist",
    )


def test_an_archive_that_climbs_out_is_refused(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    import io
    import tarfile

    evil = tmp_path / "evil.tar.gz"
    with tarfile.open(evil, "w:gz") as archive:
        member = tarfile.TarInfo("../../../../tmp/climbed-out")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    client.storage.upload(evil, "fds://cloudml/evil.tar.gz")
    job = client.submit_train_job(
        TrainJob("evil", "trainer.task", "fds://cloudml/evil.tar.gz")
    ).wait(30)
    assert (job.phase, job.reason) == ("Failed", "TrainerInvalid")
    assert "climbed-out" in job.message
    assert not Path("/tmp/climbed-out").exists()
