from __future__ import annotations

import sys

import pytest

from cloud_ml.cli.exit_codes import exit_code_of
from cloud_ml.cli.output import echo_facts, echo_table, paint_state
from support.fake_api import make_job


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_states_are_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paint_state("Failed") == "\x1b[31mFailed\x1b[0m"
    assert paint_state("Unheard") == "Unheard"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint_state("Failed") == "Failed"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert paint_state("Failed") == "Failed"


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("A", "LONG HEADER"), [("wide cell", "x"), ("y", "")])
    assert capsys.readouterr().out == "A          LONG HEADER\nwide cell  x\ny\n"
    echo_table(("A", "B"), [])
    assert capsys.readouterr().out == "A  B\n"


def test_facts_leave_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    echo_facts({"Name": "a", "Reason": "", "Exit code": 0, "Node": None})
    assert capsys.readouterr().out == "Name:      a\nExit code: 0\n"


@pytest.mark.parametrize(
    ("phase", "exit_code", "signal", "code"),
    [
        ("Succeeded", 0, None, 0),
        ("Failed", 1, None, 1),
        ("Failed", 255, None, 255),
        ("Failed", 0, None, 3),
        ("Failed", None, None, 3),
        ("Failed", 300, None, 3),
        ("Failed", None, "SIGSEGV", 139),
        ("Failed", None, "SIGWHAT", 3),
        ("Stopped", 0, None, 4),
        ("Stopped", None, "SIGTERM", 4),
    ],
)
def test_exit_codes(phase: str, exit_code: int | None, signal: str | None, code: int) -> None:
    assert exit_code_of(make_job("a", phase=phase, exit_code=exit_code, signal=signal)) == code
