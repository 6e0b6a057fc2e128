"""The life of jobs, from the command line of both generations and from Python."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import NotFound
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.environments import EXAMPLES, pack
from support.server import RealServer, eventually, made

PLAIN = str(EXAMPLES / "plain")
UNTIL_GO = """
import pathlib, sys, time
print("line 1")
print("line 2")
print("line 3")
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
print("line 4")
"""


# ---- submitting


@pytest.mark.parametrize(
    "words",
    [
        ["WORDS", "trainer.task", PLAIN, "--", "--epochs", "3"],
        ["-n", "WORDS", "-m", "trainer.task", "-u", PLAIN, "-a", "--epochs 3"],
        [
            "--job_name",
            "WORDS",
            "--module-name",
            "trainer.task",
            "--trainer_uri",
            PLAIN,
            "--job-args",
            "--epochs 3",
        ],
        ["-n", "WORDS", "trainer.task", PLAIN, "-c", "0.5", "-M", "200M", "--", "--epochs", "3"],
    ],
    ids=["words", "short options", "long options of both spellings", "mixed, with limits"],
)
def test_both_generations_of_submit(server: RealServer, words: list[str]) -> None:
    name = "forms-" + str(len(words)) + words[0].strip("-")[:1].lower()
    ran = server.cli(
        "jobs", "submit", "-W", *[name if word == "WORDS" else word for word in words]
    ).good()
    assert ran.out.endswith("argument 1: --epochs\nargument 2: 3\n")


def test_a_job_file(server: RealServer, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'job_name = "from-file"\nmodule_name = "trainer.task"\ntrainer_uri = '
        f'"{PLAIN}"\njob_args = ["a b"]\n'
    )
    ran = server.cli("jobs", "submit", "-f", str(file), "-W").good()
    assert "argument 1: a b\n" in ran.out


def test_a_single_script(server: RealServer, tmp_path: Path) -> None:
    script = tmp_path / "count.py"
    script.write_text("print(sum(range(101)))")
    assert (
        server.cli("jobs", "submit", "script", "count", str(script), "-W")
        .good()
        .out.endswith("5050\n")
    )


# What people's own scripts do: data and modules beside the script, and files that are written
# beside it.
CHURN = {
    "train.py": """
import csv, os
from pathlib import Path
import utils

with open("data/churn.csv") as file:
    rows = list(csv.DictReader(file))
print("mean", utils.mean(float(row["bill"]) for row in rows))
print("beside the script", (Path(__file__).parent / "data" / "churn.csv").exists())
os.makedirs("outputs", exist_ok=True)
open("outputs/model.txt", "w").write("weights")
open("data/churn.csv", "a").write("d,9\\n")
""",
    "utils.py": "def mean(values):\n    values = list(values)\n    return sum(values) / "
    "len(values)\n",
    "data/churn.csv": "name,bill\na,1\nb,3\n",
}
# What pytorch/examples do: the data set goes to the parent folder.
MNIST = """
import argparse, gzip, os, struct

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--save-model", action="store_true")
options = parser.parse_args()
raw = os.path.join("../data", "MNIST", "raw")
os.makedirs(raw, exist_ok=True)
with gzip.open(os.path.join(raw, "train-images-idx3-ubyte.gz"), "wb") as file:
    file.write(struct.pack(">4i", 2051, 1, 28, 28) + bytes(784))
for epoch in range(1, options.epochs + 1):
    print(f"Train Epoch: {epoch}")
if options.save_model:
    open("mnist_cnn.pt", "wb").write(b"weights")
print(sorted(os.listdir(".")), sorted(os.listdir("../data")))
"""


def test_a_folder_runs_as_it_does_by_hand(server: RealServer, tmp_path: Path) -> None:
    folder = made(tmp_path / "churn", CHURN)
    for name in ("churn", "churn-again"):  # what one writes is not what the other reads
        ran = server.cli(
            "jobs", "submit", "-n", name, "-m", "train", ".", "-W", folder=folder
        ).good()
        assert "mean 2.0\nbeside the script True\n" in ran.out


def test_a_script_that_writes_to_the_parent_folder(server: RealServer, tmp_path: Path) -> None:
    made(tmp_path / "mnist", {"main.py": MNIST, "README.md": "# Basic MNIST Example\n"})
    words = ["jobs", "submit", ".", "-W", "--", "--epochs", "1", "--save-model"]
    ran = server.cli(*words, folder=tmp_path / "mnist").good()
    assert "Train Epoch: 1\n" in ran.out
    assert "'mnist_cnn.pt'" in ran.out
    assert "['MNIST']\n" in ran.out


def test_a_project_is_installed_and_runs_in_its_folder(server: RealServer, tmp_path: Path) -> None:
    folder = made(
        tmp_path / "project",
        {
            "setup.py": "from setuptools import setup\nsetup(name='ours', version='1.2', "
            "package_dir={'': 'src'}, "
            "packages=['ours'], entry_points={'console_scripts': ['ours-tool=ours.tool:main']})",
            "src/ours/__init__.py": "",
            "src/ours/tool.py": "def main():\n    print('the tool ran')\n",
            "src/ours/task.py": "import importlib.metadata, subprocess\n"
            "print(importlib.metadata.version('ours'), __file__, open('data.txt').read())\n"
            "subprocess.run(['ours-tool'], check=True)\n",
            "data.txt": "beside setup.py",
        },
    )
    ran = server.cli(
        "jobs", "submit", "-n", "project", "-m", "ours.task", ".", "-W", folder=folder
    ).good()
    assert (
        "1.2 /work/code/src/ours/task.py beside setup.py\n" in ran.out
        or "/src/ours/task.py beside" in ran.out
    )
    assert "the tool ran\n" in ran.out


def test_every_attempt_runs_in_the_same_folder(server: RealServer, tmp_path: Path) -> None:
    task = "import os, sys\nfirst = not os.path.exists('checkpoint')\nopen('checkpoint', 'w')\nsys.exit(first)\n"
    folder = made(tmp_path / "again", {"task.py": task})
    ran = server.cli(
        "jobs", "submit", "-n", "attempts", "-m", "task", ".", "--retries", "1", "-W", folder=folder
    )
    assert "(attempt 2)" in ran.good().err, (
        "the first attempt left the file that the second one finds"
    )


def test_an_sdist_that_was_uploaded(server: RealServer, tmp_path: Path) -> None:
    pack(EXAMPLES / "plain", tmp_path / "plain-1.0.tar.gz", top="plain-1.0")
    server.cli("storage", "cp", str(tmp_path / "plain-1.0.tar.gz"), "fds://cloudml/mine/").good()
    listed = server.cli("storage", "ls", "fds://cloudml/mine/", "-o", "name").good().out
    assert listed == "fds://cloudml/mine/plain-1.0.tar.gz\n"
    ran = server.cli(
        "jobs", "submit", "sdist", "trainer.task", "fds://cloudml/mine/plain-1.0.tar.gz", "-W"
    ).good()
    assert "Hello from Python" in ran.out


def test_a_wheel_that_was_uploaded(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    wheel = tmp_path / "counting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("counting/__init__.py", "")
        archive.writestr(
            "counting/task.py",
            "import importlib.metadata\nprint(importlib.metadata.version('counting'))",
        )
        archive.writestr(
            "counting-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n",
        )
        archive.writestr(
            "counting-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("counting-1.0.dist-info/RECORD", "")
    client.storage.upload(wheel, f"fds://cloudml/mine/{wheel.name}")
    ran = server.cli(
        "jobs", "submit", "wheel", "counting.task", f"fds://cloudml/mine/{wheel.name}", "-W"
    ).good()
    assert ran.out.endswith("1.0\n")


def test_the_same_code_is_uploaded_once(server: RealServer, client: CloudMlClient) -> None:
    first = client.submit_train_job(TrainJob("twice-a", "trainer.task", PLAIN, save_mode=True))
    second = client.submit_train_job(TrainJob("twice-b", "trainer.task", PLAIN, save_mode=True))
    assert first.job.spec["trainer_uri"] == second.job.spec["trainer_uri"]


def test_a_dry_run_sends_nothing(server: RealServer, client: CloudMlClient) -> None:
    ran = server.cli("jobs", "submit", "rehearsed", "trainer.task", PLAIN, "--dry-run").good()
    assert ran.json()["job_name"] == "rehearsed"
    with pytest.raises(NotFound):
        client.describe_train_job("rehearsed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--recipe", "dask", "-p", "1", "-w", "1"), "recipe dask knows none"),
        (("--recipe", "mpi"), "recipe mpi has workers"),
        (("-M", "900000G"), "memory_limit"),
        (("-fb", "nobodys-bucket"), "nobodys-bucket"),
    ],
)
def test_a_dry_run_refuses_what_the_server_refuses(
    server: RealServer, options: tuple[str, ...], message: str
) -> None:
    words = ("jobs", "submit", "rehearsed", "trainer.task", PLAIN, "--dry-run", *options)
    ran = server.cli(*words)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err


# ---- looking at jobs


def test_list_describe_logs_and_events_of_a_job_that_runs(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    handle = client.submit_train_job(
        TrainJob("watched", "trainer.task", code(UNTIL_GO), job_args=["fds://cloudml/watched-go"])
    )
    eventually(lambda: b"line 3\n" in b"".join(handle.logs()), "it has printed")
    listed = server.cli("jobs", "list", "--state", "running").good().out
    assert ["watched", "Running"] in [line.split()[:2] for line in listed.splitlines()]
    described = server.cli("jobs", "describe", "watched", "-o", "json").good().json()
    assert (described["phase"], described["attempt"]) == ("Running", 1)
    assert described["spec"]["job_args"] == ["fds://cloudml/watched-go"]
    assert server.cli("jobs", "logs", "watched", "-n", "2").good().out == "line 2\nline 3\n"

    with server.spawn("jobs", "logs", "watched", "-f", "-n", "1") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "line 3\n"
        server.bucket("watched-go").touch()
        assert follower.stdout.read() == "line 4\n"
        assert follower.wait(30) == 0
    assert handle.wait(30).succeeded
    reasons = [
        event["reason"]
        for event in server.cli("jobs", "events", "watched", "-o", "json").good().json()
    ]
    assert reasons == ["Submitted", "Starting", "Started", "Completed"]
    assert (
        "watched"
        in server.cli("jobs", "list", "--state", "Succeeded", "-o", "name").good().out.split()
    )


def test_cancel_ends_a_running_job_and_every_process_of_it(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    handle = client.submit_train_job(
        TrainJob("endless", "trainer.task", code(UNTIL_GO), job_args=["/nowhere"])
    )
    eventually(lambda: handle.refresh().phase == "Running", "it runs")
    assert "endless is being stopped" in server.cli("jobs", "cancel", "endless").good().out
    ended = handle.wait(30)
    assert (ended.phase, ended.state, ended.reason) == ("Stopped", "failed", "Cancelled")
    assert server.processes_of(handle.uid) == []
    again = server.cli("jobs", "cancel", "endless")
    assert again.code == 0, "repeating a cancel is no error"


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
print("up", flush=True)
while True:
    time.sleep(60)
"""


def _until(log: Iterator[bytes], end: bytes) -> bytes:
    """What comes until it ends so: an unbuffered ``print`` writes a line and its end one after
    the other.
    """
    found = b""
    while not found.endswith(end):
        found += next(log)
    return found


def test_a_job_that_ignores_the_stop_is_killed_by_name(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    options = ["--grace", "50m", "--detach"]
    server.cli("run", "deaf", "trainer.task", code(STUBBORN), *options).good()
    handle = client.get_train_job("deaf")
    log = handle.logs(follow=True)
    assert _until(log, b"up\n")
    server.cli("stop", "deaf").good()
    assert _until(log, b"asked\n") == b"asked\n"
    assert handle.refresh().phase == "Stopping"
    assert "its processes have 3000 s to end" in [event.message for event in handle.events()][-1]
    server.cli("kill", "deaf").good()
    assert handle.wait(30).phase == "Stopped"
    assert b"".join(log) == b""


def test_a_job_over_its_time_limit_has_its_own_grace_time(
    run: Callable[..., tuple[Job, str]],
) -> None:
    job, log = run("deaf-limit", STUBBORN, wall_time_limit="2s", grace_time="0s")
    assert job.reason == "TimeLimitExceeded"
    assert log.endswith("up\n"), log


def test_no_task_has_failed_that_the_server_itself_has_ended(
    client: CloudMlClient, code: Callable[..., str], run: Callable[..., tuple[Job, str]]
) -> None:
    handle = client.submit_train_job(
        TrainJob("ended-thrice", "trainer.task", code(UNTIL_GO), job_args=["/nowhere"])
    )
    eventually(lambda: handle.refresh().phase == "Running", "it runs")
    handle.restart()
    eventually(lambda: handle.refresh().attempt == 2 and handle.job.phase == "Running", "again")
    handle.pause()
    eventually(lambda: handle.refresh().phase == "Paused", "it is paused")
    handle.resume()
    eventually(lambda: handle.refresh().phase == "Running", "it goes on")
    handle.cancel()
    assert handle.wait(30).reason == "Cancelled"
    run("ended-by-limit", UNTIL_GO, job_args=["/nowhere"], wall_time_limit="2s")
    run("killed-by-limit", STUBBORN, wall_time_limit="2s", grace_time="1s")
    for name in ("ended-thrice", "ended-by-limit", "killed-by-limit"):
        events = client.train_job_events(name)
        assert [one.message for one in events if one.reason == "TaskFailed"] == []
    [task] = client.train_job_tasks("killed-by-limit")
    assert (task.message, task.signal) == ("stopped with the whole job", "SIGKILL")


PRINTS_BYTES = """
import sys
sys.stdout.buffer.write(bytes([255, 13, 10, 0]) + b"loss=0.5")
"""


def test_the_output_of_the_code_alone_comes_byte_for_byte_and_lines_have_times(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    shell = {"prepare_command": "echo preparing", "finish_command": "echo finishing"}
    handle = client.submit_train_job(TrainJob("bytes", "trainer.task", code(PRINTS_BYTES), **shell))  # type: ignore[arg-type]
    followed = b"".join(handle.logs(follow=True, installation=False))
    assert handle.wait(60).succeeded
    expected = b"\xff\r\n\x00loss=0.5"
    assert followed == expected
    for more in ({}, {"lines": 9}, {"since": handle.job.created_at}):
        assert b"".join(handle.logs(installation=False, **more)) == expected  # type: ignore[arg-type]
    assert b"".join(handle.logs(installation=False, lines=1)) == b"\x00loss=0.5"
    assert (
        b"".join(handle.logs(installation=False, since=handle.job.finished_at + timedelta(hours=1)))
        == b""
    )  # type: ignore[operator]
    whole = b"".join(handle.logs())
    assert whole.index(b"preparing\n") < whole.index(expected) < whole.index(b"finishing\n")
    stamped = server.cli("logs", "bytes", "--timestamps", "--tail", "1").good().out
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z .*finishing\n", stamped)
    times = b"".join(handle.logs(timestamps=True))
    assert [line[25:] for line in times.split(b"\n")[:-1]] == whole.split(b"\n")[:-1]
    assert (
        b"".join(handle.logs(timestamps=True, since=handle.job.created_at - timedelta(minutes=1)))
        == times
    )
    assert (
        b"".join(handle.logs(timestamps=True, since=handle.job.created_at + timedelta(days=1)))
        == b""
    )


def test_watching_a_job_that_is_cancelled_ends_with_its_own_exit_code(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    submit = [
        "jobs",
        "submit",
        "watched-end",
        "trainer.task",
        code(UNTIL_GO),
        "-W",
        "--",
        "/nowhere",
    ]
    with server.spawn(*submit) as process:
        assert process.stdout is not None
        assert any("line 3" in line for line in process.stdout)  # reads until the job runs
        client.cancel_train_job("watched-end")
        process.stdout.read()
        assert process.wait(30) == 4


def test_a_saved_job_waits_to_be_started(server: RealServer, client: CloudMlClient) -> None:
    server.cli("jobs", "submit", "later", "trainer.task", PLAIN, "--save_mode").good()
    assert client.describe_train_job("later").phase == "Saved"
    server.cli("jobs", "start", "later").good()
    assert client.get_train_job("later").wait(30).succeeded


def test_deleting_takes_the_job_its_log_and_its_folders_away_and_frees_the_name(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    handle = client.submit_train_job(
        TrainJob("gone", "trainer.task", code(UNTIL_GO), job_args=["/nowhere"])
    )
    eventually(lambda: handle.refresh().phase == "Running", "it runs")
    server.cli("jobs", "delete", "gone").good()
    eventually(lambda: server.cli("jobs", "describe", "gone").code == 1, "it is gone")
    assert not (server.data / "engine" / "jobs" / handle.uid).exists()
    assert server.processes_of(handle.uid) == []
    assert server.cli("jobs", "submit", "gone", "trainer.task", PLAIN, "-W").code == 0


def test_output_for_scripts_survives_a_reader_that_stops_early(server: RealServer) -> None:
    with server.spawn("jobs", "list", "-o", "json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.wait(30) in (0, 141)


# ---- what a job sees


def test_uris_in_arguments_and_variables_are_paths_and_outputs_are_visible_while_it_runs(
    server: RealServer, client: CloudMlClient, code: Callable[..., str]
) -> None:
    source = """
import os, pathlib, sys, time
data, flag, out = sys.argv[1], sys.argv[2], pathlib.Path(os.environ["CLOUDML_OUTPUT_PATH"])
print(open(data).read(), flag, os.environ["OWN"])
out.mkdir(parents=True)
(out / "early").write_text("half way")
while not (out / "go").exists():
    time.sleep(0.01)
"""
    client.storage.upload(Path(__file__), "fds://cloudml/in/data.txt")
    handle = client.submit_train_job(
        TrainJob(
            "paths", "trainer.task", code(source),
            job_args=["fds://cloudml/in/data.txt", "--log=fds://cloudml/logs/x"],
            environment={"OWN": "fds://cloudml/own"},
            output_path="fds://cloudml/paths-out",
        )
    )  # fmt: skip
    eventually(
        lambda: list(client.storage.list_objects("fds://cloudml/paths-out/")), "the output is there"
    )
    ran = server.cli("storage", "cat", "fds://cloudml/paths-out/early").good()
    assert ran.out == "half way"
    assert handle.refresh().phase == "Running"
    server.bucket("paths-out", "go").touch()
    assert handle.wait(30).succeeded
    log = b"".join(handle.logs()).decode()
    assert Path(__file__).read_text() in log
    assert log.splitlines()[-1].endswith("storage/cloudml/logs/x " + log.split()[-1])
    assert log.split()[-1].endswith("storage/cloudml/own")


def test_the_job_knows_itself_and_holds_no_key_of_the_platform(
    server: RealServer, run: Callable[..., object]
) -> None:
    job, log = run("self-aware", "import os\nfor pair in os.environ.items(): print('%s=%s' % pair)")  # type: ignore[misc]
    lines = dict(line.split("=", 1) for line in log.splitlines() if "=" in line)
    assert (lines["CLOUDML_JOB_NAME"], lines["CLOUDML_JOB_ID"], lines["CLOUDML_ATTEMPT"]) == (
        "self-aware",
        job.uid,
        "1",
    )
    assert server.credentials["secret_key"] not in log
    assert server.credentials["access_key"] not in log


def test_commands_before_and_after_the_trainer(
    run: Callable[..., object], client: CloudMlClient
) -> None:
    job, log = run(  # type: ignore[misc]
        "around",
        "print('middle', open('made').read())",
        prepare_command="printf ready > made",
        finish_command="echo end",
    )
    assert job.succeeded
    assert log.endswith("middle ready\nend\n")


def test_help_of_every_command_works_without_a_server(server: RealServer) -> None:
    for words in ([], ["jobs"], ["jobs", "submit"], ["storage"], ["config"], ["server"]):
        ran = subprocess.run(
            [*server.command, *words, "--help"],
            env=server.environment(server.user_home),
            capture_output=True,
            check=True,
        )
        assert b"Usage: cloudml" in ran.stdout


def test_a_command_before_or_after_the_code_that_takes_too_much_memory(
    client: CloudMlClient, run: Callable[..., tuple[Job, str]]
) -> None:
    hungry = "python -c \"print(len(b'1' * (300 << 20)))\""
    for which in ("prepare", "finish"):
        fields = {f"{which}_command": hungry, "memory_limit": "64M"}
        job, _ = run(f"hungry-{which}", "print('runs')", framework="python", **fields)
        assert (job.phase, job.reason) == ("Failed", "OOMKilled"), job.message
        assert job.message.endswith(f"exceeded by the {which} command"), job.message
        reasons = [event.reason for event in client.train_job_events(job.name)]
        assert ("Started" in reasons) == (which == "finish"), reasons


def test_what_a_job_printed_since_a_moment(
    server: RealServer, client: CloudMlClient, run: Callable[..., tuple[Job, str]]
) -> None:
    source = "import time\nprint('early')\ntime.sleep(1.3)\nprint('late', time.time())"
    _, log = run("since", source, framework="python")
    late = log.splitlines(keepends=True)[-1]
    moment = datetime.fromtimestamp(float(late.split()[1]) - 0.05, UTC)
    handle = client.get_train_job("since")
    assert b"".join(handle.logs(since=moment)).decode() == late
    assert b"".join(handle.logs(since=moment, follow=True)).decode() == late
    assert b"".join(handle.logs(since=moment - timedelta(minutes=1))).decode() == log
    ran = server.cli("jobs", "logs", "since", "--since", moment.isoformat())
    assert ran.good().out == late
    assert (
        server.cli("jobs", "logs", "since", "--since", "2030-01-01").err
        == "since has no output since then\n"
    )
    both = server.cli("jobs", "logs", "since", "--since", "1h", "-n", "1")
    assert (both.code, "exclude each other" in both.err) == (2, True)
