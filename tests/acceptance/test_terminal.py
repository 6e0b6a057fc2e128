"""The command line as a person at a terminal sees it, against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from support.server import RealServer, eventually
from support.terminal import Seen, interrupting, left_over, on_a_terminal, screen

SCRIPT = """
import pathlib, sys, time
print("half", end="", flush=True)
go = pathlib.Path(sys.argv[1])
while not go.exists():
    time.sleep(0.01)
print(" a line")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "shown"
    place.mkdir()
    (place / "train.py").write_text(SCRIPT)
    return place


def _cloudml(server: RealServer, *words: str, **more: object) -> Seen:
    environment = server.environment(server.user_home, **server.known, PYTHONIOENCODING="utf-8")
    return on_a_terminal([*server.command, *words], environment=environment, **more)  # type: ignore[arg-type]


def test_a_folder_is_submitted_and_watched_to_its_end(server: RealServer, folder: Path) -> None:
    def go(seen: str, _pid: int) -> bytes:
        if "half" in seen:
            server.bucket("shown-go").touch()
        return b""

    shown = _cloudml(
        server,
        "jobs",
        "submit",
        ".",
        "-W",
        "--",
        "fds://cloudml/shown-go",
        cwd=str(folder),
        react=go,
    )
    assert shown.code == 0
    assert "Uploading shown  " in shown.seen
    assert re.search(
        r"shown: (Queued: waiting|Starting: |Running)", shown.seen
    )  # whichever a quick server leaves to see
    lines = left_over(shown.seen)
    assert lines[0] == "shown is submitted (Queued). Ctrl-C stops the output, not the job."
    assert "half a line" in lines
    assert lines[-1].startswith("\x1b[32mshown succeeded after ")
    assert not [line for line in lines if "Starting:" in line or "Uploading" in line]


SEVERAL = """
import os, pathlib, sys, time
from cloud_ml import job
if os.environ["CLOUDML_INDEX"] == "1":
    if os.environ["CLOUDML_TASK_RESTART"] == "0":
        sys.exit(3)
    job.progress(step=7, of=9)
print("ready", flush=True)
go = pathlib.Path(sys.argv[1])
while not go.exists():
    time.sleep(0.01)
"""


def _submit_several(folder: Path, name: str) -> list[str]:
    (folder / "train.py").write_text(SEVERAL)
    words = ["jobs", "submit", name, "train", ".", "-w", "2", "--recipe", "cluster", "-F", "python"]
    words += ["--on-exit", "3=restart-task", "-W", "--", f"fds://cloudml/{name}-go"]
    return words


def test_tasks_of_a_job_are_a_table_below_its_log(server: RealServer, folder: Path) -> None:
    row = re.compile(r"  worker-1  Running  1 +step 7 of 9, 78% +worker-1 exited with code 3")

    listed = []

    def go(seen: str, _pid: int) -> bytes:
        if row.search(seen) and seen.count("] ready") == 2 and not listed:
            command = ("jobs", "list", "-n", "tasks-table", "--columns", "progress,loss")
            listed.extend(server.cli(*command).good().out.splitlines())
            server.bucket("tasks-table-go").touch()
        return b""

    words = _submit_several(folder, "tasks-table")
    shown = _cloudml(server, *words, cwd=str(folder), columns=160, react=go)
    assert shown.code == 0
    lines = screen(shown.seen)
    assert "[worker-0] ready" in lines
    assert lines[-1].startswith("tasks-table succeeded after ")
    assert not [line for line in lines if "RESTARTS" in line or row.search(line)]
    assert listed[0].split()[-2:] == ["PROGRESS", "LOSS"]
    assert re.search(r"  step 7 of 9, 78% +-$", listed[1])


def test_restarts_of_tasks_are_lines_on_a_pipe(server: RealServer, folder: Path) -> None:
    lines = []
    with server.spawn(*_submit_several(folder, "tasks-lines"), folder=folder) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if "starts again" in line:
                server.bucket("tasks-lines-go").touch()
    (again,) = [line for line in lines if "starts again" in line]
    assert again.startswith("tasks-lines: worker-1: starts again (1): worker-1 exited with code 3")
    assert lines[-1].startswith("tasks-lines succeeded after "), lines
    assert "RESTARTS" not in "".join(lines)


def test_whoever_says_no_keeps_everything(server: RealServer, client: CloudMlClient) -> None:
    client.storage.create_bucket("kept")

    def refuse(seen: str, _pid: int) -> bytes:
        return b"n\n" if seen.endswith("[y/N]: ") else b""

    shown = _cloudml(server, "storage", "rb", "--force", "kept", react=refuse)
    assert (shown.code, left_over(shown.seen)[-1]) == (1, "Nothing is removed.")
    assert "kept" in [bucket.name for bucket in client.storage.list_buckets()]


def test_interrupting_ends_the_watching_and_says_how_to_go_on(
    server: RealServer, client: CloudMlClient, folder: Path
) -> None:
    enough = interrupting(lambda seen: "half" in seen)
    words = ["jobs", "submit", "interrupted", "train", ".", "-W", "--", "/never"]
    shown = _cloudml(server, *words, cwd=str(folder), react=enough)
    assert shown.code == 130
    assert "the job keeps running" in shown.seen
    assert "cloudml jobs logs interrupted -f" in shown.seen
    assert client.describe_train_job("interrupted").phase == "Running"
    client.delete_train_job("interrupted")


def test_what_a_running_task_uses_is_told(
    server: RealServer, client: CloudMlClient, folder: Path
) -> None:
    server.cli(
        "jobs", "submit", "using", "train", str(folder), "-c", "0.5", "-M", "200M", "--", "/never"
    ).good()
    handle = client.get_train_job("using")

    def sampled() -> bool:
        items = handle.tasks().items
        return bool(items) and items[0].memory_bytes is not None

    eventually(sampled, "its memory was sampled")
    tasks = handle.tasks()
    (task,) = tasks.items
    assert (task.name, task.running, task.cpu_limit, task.exit_code) == (
        "master-0",
        True,
        0.5,
        None,
    )
    assert task.memory_bytes is not None
    assert task.memory_limit_bytes == 200 * 2**20
    assert 0 < task.memory_bytes <= (task.memory_peak_bytes or 0) < 200 * 2**20
    assert set(tasks.stages) >= {"claimed", "environment", "started"}
    handle.delete()


def test_waiting_describing_and_running_again(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys\nprint('said')\nsys.exit(int(sys.argv[1]))")
    assert (
        server.cli("jobs", "submit", str(script), "-o", "name", "--", "7").good().out == "fails\n"
    )
    waited = server.cli("jobs", "wait", "fails")
    assert waited.code == 7
    assert "fails failed after " in waited.err
    again = server.cli("jobs", "rerun", "fails", "-W", "--", "0").good()
    assert again.out.endswith("said\n")
    assert "fails-2 succeeded after " in again.err
    described = _cloudml(server, "jobs", "describe", "fails", columns=70).seen
    for words in (
        "queue ",
        "environment ",
        "run ",
        "━",
        "exited with code 7",
        "cloudml jobs logs fails -n 50",
    ):
        assert words in described
    assert all(len(line) <= 70 for line in described.splitlines() if "…" in line)
    file = tmp_path / "job.yaml"
    file.write_text(server.cli("jobs", "export", "fails-2").good().out)
    server.cli("jobs", "delete", "--wait", "fails", "fails-2").good()
    server.cli("jobs", "submit", "-f", str(file), "-W").good()
    assert client.describe_train_job("fails-2").succeeded


def test_top_is_drawn_on_a_screen_of_its_own_until_it_is_interrupted(
    server: RealServer, client: CloudMlClient, folder: Path
) -> None:
    server.cli("jobs", "submit", "topped", "train", str(folder), "--", "/never").good()
    eventually(lambda: client.describe_train_job("topped").phase == "Running", "it runs")

    enough = interrupting(lambda seen: seen.count("topped") >= 2)
    shown = _cloudml(server, "jobs", "top", "topped", "--every", "1", react=enough)
    assert shown.code == 0
    assert shown.seen.startswith("\x1b[?1049h")
    assert shown.seen.endswith("\x1b[?1049l")
    client.delete_train_job("topped")
