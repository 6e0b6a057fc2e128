"""The recorded terminal session of the documentation."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import click
import pytest
from cloud_ml_docs.recording import OUT, SESSION, Recording, screen

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


def test_the_session_that_is_shown_is_the_one_that_is_recorded() -> None:
    shown = (OUT / "session.svg").read_text()
    cast = [json.loads(line) for line in (OUT / "session.cast").read_text().splitlines()]
    text = "".join(event[2] for event in cast[1:])
    for command in SESSION:
        assert command in text
        assert command in re.sub(r"</?tspan[^>]*>", "", shown)
    assert not re.search(r"/(home|root|tmp|work)/", text)


@pytest.mark.parametrize("line", [line for line in SESSION if "wrong" not in line])
def test_its_commands_exist(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, context: parsed.append(context))
    cli.main(shlex.split(line.partition(";")[0])[1:], standalone_mode=False)
    assert parsed
