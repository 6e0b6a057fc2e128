"""The server's own log: with JSON, every line of a process that uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

BEGIN = """
import logging, sys, threading, warnings
from cloud_ml.observability import logging as logs
logs.configure("json")
log = logging.getLogger("x")
"""


def _lines(code: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stderr.splitlines()]
    assert all({"time", "level", "logger", "event"} <= line.keys() for line in lines)
    return lines


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("log.info('two\\nlines')", "two\nlines"),
        ("log.info('a %d', 'word')", "a %d ('word',)"),
        ("log.info('numbers', extra={'ratio': float('nan'), 'most': float('inf')})", "numbers"),
        ("log.info('keys', extra={'table': {(1, 2): 3}})", "keys"),
        ("log.info('half a pair: \\ud800')", "half a pair: \ud800"),
        ("threading.Thread(target=lambda: 1 / 0, name='w').start()", "an exception ended a thread"),
        ("1 / 0", "an exception ended the process"),
        (
            "class X:\n  def __del__(self): 1 / 0\nX()",
            "an exception could not be raised: in a finaliser",
        ),
    ],
)  # fmt: skip
def test_every_line_is_json(code: str, event: str) -> None:
    (line,) = _lines(code)
    assert line["event"].startswith(event)


def test_warnings_are_lines_too() -> None:
    (line,) = _lines("warnings.warn('an old way', UserWarning)")
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")
    assert "an old way" in line["event"]


def test_an_exception_is_a_field() -> None:
    (line,) = _lines("threading.Thread(target=lambda: 1 / 0, name='worker').start()")
    assert line["thread_name"] == "worker"
    assert line["exception"].startswith("Traceback")
    assert "ZeroDivisionError" in line["exception"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_error_that_passes_is_a_sentence_without_its_traceback(form: str) -> None:
    code = (
        f"from cloud_ml.errors import Unavailable\nlogs.configure({form!r})\n"
        "try:\n    raise Unavailable('the database does not answer')\n"
        "except Unavailable:\n    log.warning('trying again', exc_info=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True
    )
    (line,) = done.stderr.splitlines()
    assert "the database does not answer (code: unavailable)" in line
    assert "Traceback" not in line
