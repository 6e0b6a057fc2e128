"""Standard output and standard error that are closed, full or without a reader: a line at most,
and no traceback.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_api import FakeApi, make_job
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, serving
from support.server import CLOUDML

pytestmark = pytest.mark.timeout(300)

COMMANDS = (
    "--help",
    "--version",
    "jobs --help",
    "completion bash",
    "whoami",
    "org_id",
    "jobs list",
    "jobs list -o json",
    "jobs list -o yaml",
    "jobs list -o name",
    "jobs describe a",
    "jobs logs a",
    "jobs logs -f a",
    "jobs cancel a",
    "framework list",
    "storage ls",
    "storage ls fds://cloudml",
    "storage cat fds://cloudml/a",
    "storage cp fds://cloudml/a -",
    "storage rm fds://cloudml/b",
)
FULL = "cloudml: cannot write to standard output: No space left on device (code: output)\n"
CLOSED = "cloudml: cannot write to standard output: it is closed (code: output)\n"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    api = FakeApi()
    api.jobs["a"] = make_job("a", phase="Running")
    api.objects = {"fds://cloudml/a": b"content\n" * 50_000, "fds://cloudml/b": b"x"}
    with serving(api) as fake:
        yield fake


@pytest.fixture
def environment(server: FakeServer, tmp_path: Path) -> dict[str, str]:
    names = {"ENDPOINT": server.endpoint, "ACCESS_KEY": ACCESS_KEY, "SECRET_KEY": SECRET_KEY}
    found = {f"CLOUDML_{name}": value for name, value in names.items()}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **found}


def shell(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line, "bash", str(CLOUDML)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written(environment: dict[str, str], command: str) -> None:
    full = shell(f'"$1" {command} > /dev/full', environment)
    assert (full.returncode, full.stderr) == (1, FULL)


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_is_closed(environment: dict[str, str], command: str) -> None:
    closed = shell(f'"$1" {command} >&-', environment)
    assert (closed.returncode, closed.stderr) == (1, CLOSED)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_leaves_is_no_error(environment: dict[str, str], command: str) -> None:
    left = shell(f'"$1" {command} | true; echo ${{PIPESTATUS[0]}}', environment)
    assert left.stderr == ""
    assert left.stdout in (
        "141\n",
        "0\n",
    )  # 0: what was written fitted the pipe before its reader left


def test_much_output_ends_by_the_convention_of_signals(environment: dict[str, str]) -> None:
    left = shell('"$1" storage cat fds://cloudml/a | head -1; echo ${PIPESTATUS[0]}', environment)
    assert (left.stdout, left.stderr) == ("content\n141\n", "")


@pytest.mark.parametrize(
    "stream", ["2>&-", "2> /dev/full", "2>&1 >&2 2>&-", "< /dev/null 2>&-", "<&- 2>&-"]
)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("whoami", 0),
        ("jobs list", 0),
        ("storage rm fds://cloudml/none", 1),
        ("jobs none", 2),
        ("storage rb -f", 2),
    ],
)
def test_messages_that_nobody_can_read_change_nothing(
    environment: dict[str, str], stream: str, command: str, code: int
) -> None:
    ended = shell(f'"$1" {command} {stream}', environment)
    assert (ended.returncode, "Traceback" in ended.stdout) == (code, False)


def test_a_closed_output_is_not_taken_by_a_connection(
    environment: dict[str, str], server: FakeServer
) -> None:
    ended = shell('"$1" storage cat fds://cloudml/a <&- >&- 2>&-', environment)
    assert ended.returncode == 1
    assert {seen.method for seen in server.seen} <= {"GET", "HEAD"}
    assert server.bad_signatures == []
