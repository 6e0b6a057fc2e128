"""The recorded terminal session of the documentation."""

from __future__ import annotations

import html
import json
import re
import shlex
from typing import Any

import click
import pytest
from cloud_ml_docs.recording import OUT, SCENES, Recording, joined, screen

from cloud_ml.cli.main import cli


def _text(screen_lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(letter for letter, _ in line) for line in screen_lines]


def test_what_was_drawn_anew_is_not_left_on_the_screen() -> None:
    assert _text(screen("waiting 1\r\x1b[Kdone\r\nnext\r\x1b[2mN")) == ["done", "Next"]
    assert _text(screen("x" * 101)) == ["x" * 100, "x"]
    assert screen("\x1b[31mr\x1b[0mn")[0] == [("r", "#ff7b72"), ("n", "")]


def test_pictures_hold_text_as_text() -> None:
    recording = Recording()
    recording.add("<a> & \x1b[32mb\x1b[0m\n", 0)
    assert '&lt;a&gt; &amp; <tspan fill="#7ee787">b</tspan>' in recording.svg()
    header, event = map(json.loads, recording.cast().splitlines())
    assert (header["version"], event[1:]) == (2, ["o", "<a> & \x1b[32mb\x1b[0m\n"])


def test_a_moving_picture_shows_each_line_for_as_long_as_it_stood() -> None:
    recording = Recording()
    for text in ("$ ", "run", "\r\n", "waiting", "\r\x1b[Kdone\n", "next\n"):
        recording.add(text, 1)
    moving = recording.moving()
    found = re.findall(r'<text [^>]*?y="\d+"(?: class="(\w+)" style="([^"]+)")?>([^<]+)<', moving)
    assert found == [
        ("now", "animation-delay: 1.00s; animation-duration: 1.00s", "waiting"),
        ("", "", "$ run"),  # there from the beginning: the picture is never empty
        ("later", "animation-duration: 2.00s", "done"),  # there at the end
        ("later", "animation-duration: 3.00s", "next"),
    ]
    assert [at for at, _ in joined([recording, recording]).events] == list(range(1, 13))
    assert "<set" not in moving, "readers who want no motion cannot stop it"
    assert re.search(r"@media \(prefers-reduced-motion: no-preference\) {\s+\.now {", moving)


def test_the_picture_of_the_first_page_shows_a_command_at_once_and_stands_still_on_request() -> (
    None
):
    picture = (OUT / "session-submit.svg").read_text()
    first = re.search(r'<text x="14" y="25">(.*)</text>', picture)
    assert first is not None
    assert "cloudml jobs submit" in re.sub("<[^>]*>", "", first[1])
    rows = re.findall(r"<text [^>]*>", picture)
    assert sum('class="later"' not in row for row in rows) >= len(rows) / 3, (
        "it begins as a box that is nearly empty"
    )
    assert "prefers-reduced-motion" in picture
    assert "<set" not in picture


def test_the_session_that_is_shown_is_the_one_that_is_recorded() -> None:
    cast = [json.loads(line) for line in (OUT / "session.cast").read_text().splitlines()]
    text = "".join(event[2] for event in cast[1:])
    for name, commands in SCENES.items():
        shown = re.sub(r"<[^>]*>", "", (OUT / f"session-{name}.svg").read_text())
        for command in commands:
            assert command in text
            assert command in html.unescape(shown)
    assert not re.search(r"/(home|root|tmp|work)/", text)


COMMANDS = [command for commands in SCENES.values() for command in commands]


@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if line != "cloudml jobs submit . --epochs 4"]
)
def test_its_commands_exist(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: parsed.append(context))
    cli.main(shlex.split(line.partition(";")[0])[1:], standalone_mode=False)
    assert parsed
