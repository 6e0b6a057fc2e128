"""What of a log is shown: the output of the code alone, and times before lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cloud_ml.engines.abilities import LogView
from cloud_ml.engines.local.logs.logfile import LogReader, LogWriter
from cloud_ml.engines.local.logs.logview import ShownLog, format_moment, note_code

CODE = LogView(installation=False)
TIMES = LogView(timestamps=True)


def _shown(folder: Path, view: LogView, *, step: int = 5) -> bytes:
    reader, shown = LogReader(folder, "m-0"), ShownLog(folder, "m-0", view)
    found, position = b"", 0
    while chunk := reader.read(step):
        found += shown.select(position, reader.position, chunk)
        position = reader.position
    return found


def _write(folder: Path, *parts: bytes) -> None:
    """Parts of a log, with a note between every two."""
    writer = LogWriter(folder, "m-0", 1 << 20)
    for number, part in enumerate(parts):
        if number:
            note_code(folder, "m-0", writer.written)
        writer.write(part)
    writer.close()


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_the_output_of_the_code_alone_is_shown_byte_for_byte(tmp_path: Path, step: int) -> None:
    _write(tmp_path, b"installing\n", b"\xff\r\n\x00code", b"finishing\n")
    assert _shown(tmp_path, CODE, step=step) == b"\xff\r\n\x00code"


def test_code_that_has_not_begun_has_no_output(tmp_path: Path) -> None:
    _write(tmp_path, b"installing\n")
    assert ShownLog(tmp_path, "m-0", CODE).bounds() == (math.inf, math.inf)
    assert _shown(tmp_path, CODE) == b""


def test_a_follower_that_began_during_the_installation_sees_all_of_the_code(tmp_path: Path) -> None:
    writer, reader = LogWriter(tmp_path, "m-0", 1 << 20), LogReader(tmp_path, "m-0")
    shown = ShownLog(tmp_path, "m-0", CODE)
    found, position = b"", 0
    for part in (b"installing\n", None, b"one\n", b"two\n", None, b"finishing\n"):
        if part is None:
            note_code(tmp_path, "m-0", writer.written)
        else:
            writer.write(part)
        while chunk := reader.read():
            found += shown.select(position, reader.position, chunk)
            position = reader.position
    writer.close()
    assert found == b"one\ntwo\n"


def test_the_last_lines_are_those_of_the_code(tmp_path: Path) -> None:
    _write(tmp_path, b"installing\n", b"one\ntwo\nthree\n", b"finishing\nmore\n")
    reader, shown = LogReader(tmp_path, "m-0"), ShownLog(tmp_path, "m-0", CODE)
    first, end = shown.bounds()
    reader.skip_to_last_lines(2, end)
    assert (reader.position, first) == (15, 11)
    data = reader.read()
    assert shown.select(15, reader.position, data) == b"two\nthree\n"


def test_each_line_has_the_time_of_the_last_mark_before_it(tmp_path: Path) -> None:
    (tmp_path / "m-0.log").write_bytes(b"one\ntwo\rtwo\nthree")
    (tmp_path / "m-0.times").write_text("1000.000 0\n1002.500 4\n")
    early, late = format_moment(1000.0), format_moment(1002.5)
    assert len(early) == len(late) == 25
    assert late == b"1970-01-01T00:16:42.500Z "
    for step in (1, 4, 100):
        assert (
            _shown(tmp_path, TIMES, step=step)
            == early + b"one\n" + late + b"two\rtwo\n" + late + b"three"
        )


def test_lines_of_a_log_that_was_written_at_once_have_the_time_of_the_file(tmp_path: Path) -> None:
    _write(tmp_path, b"one\n")
    written = (tmp_path / "m-0.log").stat().st_mtime
    assert _shown(tmp_path, TIMES) == format_moment(written) + b"one\n"


def test_a_sentence_about_a_gap_is_shown_among_the_output_of_the_code(tmp_path: Path) -> None:
    note_code(tmp_path, "m-0", 10)
    shown = ShownLog(tmp_path, "m-0", CODE)
    assert shown.select(20, 5000, b"[dropped]\n") == b"[dropped]\n"
    assert shown.select(0, 10, b"[dropped]\n") == b""


@pytest.mark.parametrize("content", [b"", b"x\n", b"12", b"12\n9\nrest", b"\xff" * 100])
def test_a_note_that_was_torn_hides_nothing_else(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m-0.log").write_bytes(b"0123456789abcdef")
    (tmp_path / "m-0.code").write_bytes(content)
    assert _shown(tmp_path, CODE) in (b"", b"cdef")
