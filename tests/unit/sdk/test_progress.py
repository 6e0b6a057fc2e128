from __future__ import annotations

import io
from pathlib import Path

from cloud_ml.client import CloudMlClient
from cloud_ml.sdk.progress import CountedReader, report_progress


def test_chunks_are_reported_when_they_were_taken_on() -> None:
    progress: list[tuple[int, int | None]] = []
    chunks = report_progress(
        [b"abc", b"de"], lambda done, total: progress.append((done, total)), total=9, done=4
    )
    assert next(chunks) == b"abc"
    assert progress == [(4, 9)]
    assert next(chunks) == b"de"
    assert list(chunks) == []
    assert progress == [(4, 9), (7, 9), (9, 9)]


def test_nobody_need_be_told() -> None:
    assert list(report_progress([b"abc"], None, total=None)) == [b"abc"]


def test_a_readable_reports_its_reads() -> None:
    progress: list[tuple[int, int | None]] = []
    reader = CountedReader(
        io.BytesIO(b"abcde"), lambda done, total: progress.append((done, total)), total=5
    )
    assert (reader.read(3), reader.read(), reader.read(1)) == (b"abc", b"de", b"")
    assert progress == [(3, 5), (5, 5), (5, 5)]


def test_uploads_and_downloads_are_told_of(client: CloudMlClient, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(200_000))
    for transfer in (
        lambda progress: client.storage.upload(
            tmp_path / "a", "fds://cloudml/a", progress=progress
        ),
        lambda progress: client.storage.download(
            "fds://cloudml/a", tmp_path / "b", progress=progress
        ),
    ):
        progress: list[tuple[int, int | None]] = []
        transfer(lambda done, total, seen=progress: seen.append((done, total)))
        assert (progress[0], progress[-1]) == ((0, 200_000), (200_000, 200_000))
        assert len(progress) > 2
        assert progress == sorted(progress)
