"""Logs: complete up to the limit, marked where the middle is gone, readable while they are
written.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from cloud_ml.engines.local.failures.excerpt import TAIL_BYTES
from cloud_ml.engines.local.logs.logfile import LogReader, LogWriter

LIMIT = 64 * 1024
GAP = re.compile(
    rb"\n\[\xe2\x80\xa6 (\d+) bytes of the log dropped here: over the limit \xe2\x80\xa6\]\n"
)


def writer(folder: Path, limit: int = LIMIT) -> LogWriter:
    return LogWriter(folder, "master-0", limit)


def whole(reader: LogReader, limit: int = 1000) -> bytes:
    return b"".join(iter(lambda: reader.read(limit), b""))


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b"%07d\n" % number for number in range(start, start + count))


def test_nothing_is_read_before_anything_is_written(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, "master-0")
    assert reader.read() == b""
    reader.skip_to_last_lines(5)
    written = writer(tmp_path)
    written.write(b"a")
    assert reader.read() == b"a"
    written.close()


@pytest.mark.parametrize("size", [0, 1, LIMIT // 2 - 1, LIMIT // 2, LIMIT // 2 + 1, LIMIT])
def test_up_to_the_limit_nothing_is_lost(tmp_path: Path, size: int) -> None:
    content = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
    written = writer(tmp_path)
    for start in range(0, size, 777):
        written.write(content[start : start + 777])
    assert written.written == size
    written.close()
    assert whole(LogReader(tmp_path, "master-0")) == content


def test_past_the_limit_the_middle_is_gone_and_its_size_is_told(tmp_path: Path) -> None:
    content = lines(40_000)
    written = writer(tmp_path)
    for start in range(0, len(content), 5000):
        written.write(content[start : start + 5000])
    written.close()
    read = whole(LogReader(tmp_path, "master-0"))
    gap = GAP.search(read)
    assert gap is not None
    head, tail = read[: gap.start()], read[gap.end() :]
    assert content.startswith(head)
    assert content.endswith(tail)
    assert len(head) + int(gap[1]) + len(tail) == len(content)
    assert len(head) == LIMIT // 2
    assert LIMIT // 2 - LIMIT // 16 <= len(tail) <= LIMIT // 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT


def test_a_follower_that_keeps_up_misses_nothing_even_past_the_limit(tmp_path: Path) -> None:
    written, reader, read = writer(tmp_path), LogReader(tmp_path, "master-0"), b""
    for number in range(0, 40_000, 100):
        written.write(lines(100, number))
        read += whole(reader)
    written.close()
    assert read == lines(40_000)


def test_a_follower_that_falls_behind_sees_the_gap(tmp_path: Path) -> None:
    written, reader = writer(tmp_path), LogReader(tmp_path, "master-0")
    written.write(lines(10))
    assert whole(reader) == lines(10)
    written.write(lines(40_000, 10))
    written.close()
    read = whole(reader)
    gap = GAP.search(read)
    assert gap is not None
    assert lines(40_000, 10).startswith(read[: gap.start()])
    assert lines(40_000, 10).endswith(read[gap.end() :])


@pytest.mark.parametrize("before", [0, 100, 3000, 20_000])
def test_a_writer_that_is_opened_again_goes_on(tmp_path: Path, before: int) -> None:
    first = writer(tmp_path)
    first.write(lines(before))
    first.close()
    again = writer(tmp_path)
    assert again.written == before * 8
    again.write(lines(100, before))
    again.close()
    read = whole(LogReader(tmp_path, "master-0"))
    assert read.endswith(lines(100, before))
    assert (GAP.search(read) is None) == (before * 8 <= LIMIT)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT + LIMIT // 16


@pytest.mark.parametrize("total", [10, 6000, 40_000])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_the_last_lines(tmp_path: Path, total: int, count: int) -> None:
    written = writer(tmp_path)
    written.write(lines(total))
    written.close()
    reader = LogReader(tmp_path, "master-0")
    reader.skip_to_last_lines(count)
    shown = min(count, total)
    assert whole(reader) == lines(shown, total - shown)


def test_an_unfinished_last_line_counts(tmp_path: Path) -> None:
    written = writer(tmp_path)
    written.write(b"one\ntwo\nthr")
    reader = LogReader(tmp_path, "master-0")
    reader.skip_to_last_lines(2)
    assert whole(reader) == b"two\nthr"
    written.write(b"ee\n")
    assert whole(reader) == b"ee\n"
    written.close()


def test_a_full_disk_loses_output_but_not_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    written = writer(tmp_path)
    written.write(b"before\n")
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    written.write(b"lost\n")
    monkeypatch.setattr(os, "write", real)
    written.write(b"after\n")
    written.close()
    read = whole(LogReader(tmp_path, "master-0"))
    assert read == b"before\nafter\n"


def test_logs_of_names_that_begin_alike_are_kept_apart(tmp_path: Path) -> None:
    for name in ("worker-1", "worker-10"):
        one = LogWriter(tmp_path, name, LIMIT)
        one.write(name.encode())
        one.close()
    assert whole(LogReader(tmp_path, "worker-1")) == b"worker-1"


def test_what_was_written_since_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    written = writer(tmp_path)
    for now, words in (  # noqa: B007 - the clock reads it
        (1000.0, b"a\n"),
        (1000.5, b"b\n"),
        (1002.0, b"c\n"),
        (1002.9, b"d\n"),
        (4600.0, b"e\n"),
    ):
        written.write(words)
    written.close()
    again = writer(tmp_path)
    now = 5000.0
    again.write(b"f\n")
    again.close()
    os.utime(tmp_path / "master-0.log", (5000.0, 5000.0))
    for moment, rest in (
        (0, b"a\nb\nc\nd\ne\nf\n"), (1000.2, b"a\nb\nc\nd\ne\nf\n"),
        (1001.5, b"c\nd\ne\nf\n"), (1002.5, b"c\nd\ne\nf\n"),
        (2000.0, b"e\nf\n"), (4600.5, b"e\nf\n"), (4700.0, b"f\n"), (5000.0, b"f\n"), (5001.0, b""),
    ):  # fmt: skip
        reader = LogReader(tmp_path, "master-0")
        given = reader.skip_to(moment)
        assert (moment, whole(reader)) == (moment, rest)
        assert given == 12 - len(rest)


def test_a_log_that_is_written_at_once_notes_no_times(tmp_path: Path) -> None:
    written = writer(tmp_path)
    written.write(b"a\n")
    written.write(b"b\n")
    written.close()
    assert [path.name for path in tmp_path.iterdir()] == ["master-0.log"]
    reader = LogReader(tmp_path, "master-0")
    assert reader.skip_to(0) == 0
    assert whole(reader) == b"a\nb\n"


def test_what_was_dropped_does_not_count_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    written = writer(tmp_path)
    written.write(lines(20 * LIMIT // 8))
    now = 2000.0
    written.write(b"late\n")
    written.close()
    everything = whole(LogReader(tmp_path, "master-0"))
    reader = LogReader(tmp_path, "master-0")
    given = reader.skip_to(1500.0)
    assert (whole(reader), given) == (b"late\n", len(everything) - 5)


@pytest.mark.parametrize("count", [1, 2, 9_000, 40_000, 100_000])
def test_the_last_lines_of_a_log_of_many_blocks(tmp_path: Path, count: int) -> None:
    written = writer(tmp_path, 4 << 20)
    written.write(lines(50_000))
    written.close()
    reader = LogReader(tmp_path, "master-0")
    reader.skip_to_last_lines(count)
    assert whole(reader, 1 << 20) == lines(min(count, 50_000), max(0, 50_000 - count))


def test_a_log_that_goes_while_it_is_looked_for_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    real = os.listdir

    def listed(path: Path) -> list[str]:
        names = real(path)
        shutil.rmtree(path)
        return names

    for looks in (lambda reader: reader.read(), lambda reader: reader.skip_to_last_lines(2)):
        folder.mkdir()
        LogWriter(folder, "master-0", 1 << 20).write(b"one\ntwo\n")
        with monkeypatch.context() as patched:
            patched.setattr("os.listdir", listed)
            assert not looks(LogReader(folder, "master-0"))
        assert not folder.exists()


def test_the_end_of_what_was_written_is_at_hand(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "master-0", 1 << 20)
    everything = b""
    for number in range(3000):
        data = b"line %d of the output, which is long\n" % number
        writer.write(data)
        everything += data
        assert everything.endswith(writer.tail)
    assert len(writer.tail) == TAIL_BYTES
    writer.write(b"x" * 3 * TAIL_BYTES)
    assert writer.tail == b"x" * TAIL_BYTES
    writer.close()
