"""Bars and spinners: what they show, where, and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.progress import bar, bar_line, spinner
from support.terminal import left_over, on_a_terminal, screen

MIB = 2**20
SHOW = """
import sys
from cloud_ml.cli.display.output import echo, note
from cloud_ml.cli.display.progress import bar, spinner
from cloud_ml.cli.display.terminal import above_the_line
with bar("Uploading a.tar.gz", 4096) as progress:
    progress(1024, None)
    note("halfway")
    progress(4096, None)
with spinner("Queued") as say:
    echo("a result")
    say("Running")
sys.stdout.write("half a line")
sys.stdout.flush()
with above_the_line(sys.stdout, ends_line=False):
    pass
with spinner("Nothing is drawn behind half a line"):
    pass
note("the end")
"""


def _on_a_terminal(code: str, *, columns: int = 80, **environment: str) -> str:
    inherited = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"}
    ran = on_a_terminal(
        [sys.executable, "-c", code], columns=columns, environment=inherited | environment
    )
    assert ran.code == 0
    return ran.seen


def test_a_terminal_sees_lines_that_are_drawn_anew_and_gone_at_the_end() -> None:
    seen = _on_a_terminal(SHOW)
    assert "Uploading a.tar.gz  ━" in seen
    assert "100%  4.0 KiB of 4.0 KiB" in seen
    assert "⠋ Queued  0:00" in seen
    assert left_over(seen) == ["halfway", "a result", "half a line", "the end"]


LATE = """
from cloud_ml.cli.display.progress import bar
with bar("Copying a", 4096) as progress:
    progress(1024, None)
progress(4096, None)
"""


def test_a_thread_that_tells_something_after_the_end_draws_nothing() -> None:
    """After an interrupt, transfers tell how far they are until they have ended."""
    assert left_over(_on_a_terminal(LATE)) == []


TABLE = """
import sys
from cloud_ml.cli.display.output import echo
from cloud_ml.cli.display.terminal import above_the_line, draw, wipe
echo("before")
for count in (3, 5, 2):
    draw(sys.stderr, "\\n".join(f"row {number} of {count}" for number in range(count)))
    echo(f"after {count}")
    draw(sys.stderr, "\\n".join(f"row {number} of {count}" for number in range(count)))
"""


def test_lines_below_each_other_are_drawn_anew_below_what_is_said() -> None:
    lines = ["before", "after 3", "after 5", "after 2"]
    assert screen(_on_a_terminal(TABLE)) == [*lines, "row 0 of 2", "row 1 of 2"]
    assert screen(_on_a_terminal(TABLE + "wipe()")) == lines


def test_a_spinner_shows_as_many_lines_as_a_terminal_has_and_they_fit() -> None:
    code = """
import threading
from cloud_ml.cli.display import progress, terminal
shown = threading.Event()
def draw(stream, text):
    terminal.draw(stream, text)
    if "first" in text:
        shown.set()
progress.draw = draw
with progress.spinner("wide") as say:
    say("\\n".join(["first"] + ["x" * 200 + str(number) for number in range(100)]))
    shown.wait()
"""
    seen = _on_a_terminal(code, columns=40)
    drawn = seen.rpartition("first")[2].partition("\r\x1b[")[0].split("\r\n")[1:]
    assert drawn == ["x" * 38 + "…"] * 21
    assert screen(seen) == []


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"CLOUDML_PROGRESS": "0"}])
def test_dumb_terminals_and_those_who_refuse_see_lines_only(environment: dict[str, str]) -> None:
    assert (
        _on_a_terminal(SHOW, **environment) == "halfway\r\na result\r\nhalf a line\r\nthe end\r\n"
    )


@pytest.mark.parametrize("columns", [12, 30, 50, 200])
def test_a_line_never_takes_more_than_the_terminal_has(columns: int) -> None:
    code = "from cloud_ml.cli.display.progress import bar\nwith bar('x' * 60, 100) as progress: progress(50, None)"
    seen = _on_a_terminal(code, columns=columns)
    drawn = [part for part in seen.split("\r\x1b[K") if part]
    assert drawn
    assert all(len(line) < columns for line in drawn)


def test_without_a_terminal_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("Uploading", 10) as progress, spinner("Queued") as say:
        progress(5, None)
        say("Running")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "Uploading a  ━━━━━━━━━╌╌╌╌╌╌╌╌╌╌   50%  1.0 MiB of 2.0 MiB  512 KiB/s  0:02 left"),
        (60, "Uploading a   50%  1.0 MiB of 2.0 MiB  512 KiB/s  0:02 left"),
        (40, "Uploading a   50%  1.0 MiB of 2.0 MiB"),
        (20, "Uploading a   50%"),
        (8, "Uploadi…"),
    ],
)
def test_the_less_room_the_less_it_tells(width: int, line: str) -> None:
    shown = bar_line("Uploading a", MIB, 2 * MIB, 512 * 1024, width=width)
    assert len(shown) <= width
    assert shown == line


def test_bars_in_words_of_plain_terminals_and_without_a_total() -> None:
    assert (
        bar_line("x", 1, 2, None, width=40, fancy=False)
        == "x  #########----------   50%  1 B of 2 B"
    )
    assert bar_line("x", 2048, None, 1024, width=40) == "x  2.0 KiB  1.0 KiB/s"
    assert bar_line("x", 5, 0, None, width=40) == "x  5 B"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (99.9 * MIB, "99.9 MiB"),
        (120 * 2**30, "120 GiB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert figures.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"), (0.04, "40 ms"), (0.9999, "1.0 s"), (3.21, "3.2 s"), (59.97, "1 m 00 s"), (80, "1 m 20 s"),
        (7500, "2 h 05 m"), (273600, "3 d 04 h"),
    ],
)  # fmt: skip
def test_spans(seconds: float, text: str) -> None:
    assert figures.span(seconds) == text


def test_clocks() -> None:
    assert [figures.clock(seconds) for seconds in (5, 65, 3723)] == ["0:05", "1:05", "1:02:03"]


HALF = """
import sys
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.terminal import above_the_line
for part in ("half ", "a line"):
    with above_the_line(sys.stdout, ends_line=False, goes_on=True):
        sys.stdout.write(part)
        sys.stdout.flush()
note("the end")
"""


def test_a_note_behind_half_a_line_begins_a_new_one_where_both_streams_are_one() -> None:
    command = [sys.executable, "-c", HALF]
    both = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    assert both.stdout == "half a line\nthe end\n"
    apart = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (apart.stdout, apart.stderr) == ("half a line", "the end\n")
