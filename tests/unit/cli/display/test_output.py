from __future__ import annotations

import json
import sys

import click
import pytest
import yaml
from click.testing import CliRunner

from cloud_ml.cli.display import yamls
from cloud_ml.cli.display.output import (
    echo_as,
    echo_facts,
    echo_table,
    fit_widths,
    output_option,
    paint_state,
)
from cloud_ml.cli.exit_codes import exit_code_of
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


def test_tables_fit_the_terminal_and_pipes_get_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a", "Failed", "x" * 100), ("b", "Running", "日本語" * 20)]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("cloud_ml.cli.display.output.width_of", lambda _: 40)
    echo_table(("NAME", "STATE", "MESSAGE"), rows, painted=1)
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "a     \x1b[31mFailed\x1b[0m   " + "x" * 24 + "…"
    assert shown[2].endswith("日本語日本語日本語日本語…")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    echo_table(("NAME", "STATE", "MESSAGE"), rows)
    assert "x" * 100 in capsys.readouterr().out


def test_the_widest_column_gives_way_first_and_none_below_its_header() -> None:
    assert fit_widths([10, 50, 20], [4, 4, 4], 200) == [10, 50, 20]
    assert fit_widths([10, 50, 20], [4, 4, 4], 60) == [10, 26, 20]
    assert fit_widths([10, 50, 20], [4, 4, 30], 10) == [8, 8, 20]


@click.command()
@output_option("wide")
def _things(output: str | None) -> None:
    jobs = [make_job("a", phase="Failed"), make_job("on")]
    if not echo_as(output, jobs, (one.name for one in jobs)):
        echo_table(("NAME", "STATE"), [(one.name, one.phase) for one in jobs])


def test_numbers_that_json_has_not_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    echo_as("json", [{"value": float("nan"), "all": [float("-inf"), 0.5]}], "")

    def no_constant(text: str) -> None:
        raise AssertionError(text)

    assert json.loads(capsys.readouterr().out, parse_constant=no_constant) == [
        {"value": "NaN", "all": ["-Infinity", 0.5]}
    ]


def test_every_form_of_output_says_the_same() -> None:
    def show(*arguments: str) -> str:
        return CliRunner().invoke(_things, list(arguments)).output

    assert show() == show("-o", "table") == show("-o", "wide")
    assert show("-o", "name") == "a\non\n"
    found = json.loads(show("-o", "json"))
    assert [one["phase"] for one in found] == ["Failed", "Queued"]
    text = show("-o", "yaml")
    assert yaml.safe_load(text) == yamls.load(text) == found
    assert "json, yaml" in show("-o", "xml").replace("'", "").replace("|", ", ")


def test_yaml_has_no_surprises() -> None:
    text = "a: no\nb: 012\nc: 1:30\nd: 2026-01-31\ne: 1.5\nf: true\ng: 7\nh:\ni: 100M\n"
    assert yamls.load(text) == {
        "a": "no",
        "b": "012",
        "c": "1:30",
        "d": "2026-01-31",
        "e": 1.5,
        "f": True,
        "g": 7,
        "h": None,
        "i": "100M",
    }
    for bad in ("a: [", "a: !!python/name:os.system", "\x00"):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            yamls.load(bad)


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


@pytest.mark.parametrize("reason", ["Hung", "NoProgress"])
def test_a_job_that_hung_exits_alike_whether_it_was_given_up_or_not(reason: str) -> None:
    assert exit_code_of(make_job("a", phase="Failed", reason=reason, signal="SIGABRT")) == 134


def test_a_limit_other_than_that_of_hangs_is_no_exit_code_of_the_code() -> None:
    job = make_job("a", phase="Failed", reason="OOMKilled", signal="SIGKILL")
    assert exit_code_of(job) == 3


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "x: {b: 1, b: 1}", "- {a: 1, 'a': 2}"])
def test_a_name_that_is_given_twice_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"the name '[ab]' is given twice"):
        yamls.load(text)
