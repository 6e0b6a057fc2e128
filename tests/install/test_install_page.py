"""The install page is typed as it stands, on a fresh Debian, with the mistakes that people make in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from install import machine
from support.pages import ROOT
from support.reader import Shell, steps

PAGE = ROOT / "docs/howto/install.md"
CONFIG = "--config /etc/cloud-ml/server.toml"
JOB = "import time\nprint('runs', flush=True)\ntime.sleep(600)\n"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    tmp_path.chmod(0o755)
    root = machine.fresh(tmp_path)
    (root / "root/wait.py").write_text(JOB)
    opened = machine.shell(root)
    opened.type("cd /root")
    yield opened
    opened.close()


def _type(shell: Shell, command: str) -> str:
    code, printed = shell.type(command)
    assert code == 0, (
        f"{command} ended with {code}:\n{printed}\n{shell.type('tail -50 /var/log/cloud-ml.log')[1]}"
    )
    return printed


def test_from_an_empty_machine_to_a_job_and_back(shell: Shell) -> None:
    commands = [step.command for step in steps(PAGE)]
    first_start = next(at for at, command in enumerate(commands) if "enable --now" in command)
    upgrade = next(
        at
        for at, command in enumerate(commands)
        if command.startswith("install -d -o cloud-ml -m 700")
    )
    removal = next(at for at, command in enumerate(commands) if "disable --now" in command)
    goodbye = next(
        at for at, command in enumerate(commands) if command.startswith("rm -rf /var/lib")
    )
    for command in commands[:first_start]:
        _type(shell, command)
    for command in commands[first_start:upgrade]:
        _type(shell, command)
    _type(shell, "cloudml jobs submit first ./wait.py")
    log = _type(shell, "for i in $(seq 100); do cloudml jobs logs first | grep runs && break; done")
    assert "runs" in log, _type(shell, "cloudml jobs describe first")
    for command in commands[upgrade:removal]:
        _type(shell, command)
    assert "Running" in _type(shell, "cloudml jobs describe first"), (
        "the job ran on during the restart"
    )
    _mistakes(shell)
    for command in commands[removal:goodbye]:
        printed = _type(shell, command)
        if "--everything" in command:
            assert "Ended: 1 job of users: default/first" in printed
    left = _type(
        shell, "ps -eo user,args || for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"
    )
    assert "cloud_ml" not in left
    for command in commands[goodbye:]:
        _type(shell, command)
    code, _ = shell.type("id cloud-ml")
    assert code != 0


def _mistakes(shell: Shell) -> None:
    """Each is refused with the way out, and the server that runs is unharmed."""
    _type(shell, "install -d -o games /srv/games")
    for command, message in (
        (f"cloudml server {CONFIG}", "belongs to the user cloud-ml"),
        (f"cloudml server {CONFIG}", "runuser -u cloud-ml -- cloudml server"),
        (f"cloudml server --port 0 {CONFIG}", "A server runs on it"),
        ("cloudml server --port 0 --data-dir /srv/games", "belongs to the user games"),
        (
            "runuser -u nobody -- cloudml server --port 0 --data-dir /var/lib/cloud-ml",
            "belongs to the user cloud-ml",
        ),
        ("cloudml server --port 0 --data-dir /tmp", "shared by all users"),
        (f"runuser -u cloud-ml -- cloudml server {CONFIG}", "Address already in use"),
        (f"runuser -u cloud-ml -- cloudml server --port 0 {CONFIG}", "another server"),
        (f"cloudml server migrate {CONFIG}", "another server"),
        (
            "runuser -u nobody -- cloudml server --port 0 --data-dir /var/lib/mine",
            "install -d -o nobody",
        ),
        (
            "runuser -u nobody -- cloudml server stop --data-dir /var/lib/cloud-ml",
            "belongs to the user cloud-ml",
        ),
    ):
        code, printed = shell.type(command)
        assert (code, message in printed) == (1, True), f"{command} ended with {code}:\n{printed}"
        assert "Traceback" not in printed
    assert "admin" in _type(shell, "cloudml whoami")
    assert _type(shell, "ls -A /srv/games") == "\n", "root leaves nothing in the folder of another"
    assert "drwxrwxrwt" in _type(shell, "ls -ld /tmp")
    _type(shell, f"cloudml server check {CONFIG}")
    assert _type(shell, "find /var/lib/cloud-ml ! -user cloud-ml").strip() == "", (
        "root left nothing of its own"
    )
