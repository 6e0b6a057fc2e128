"""What a job has noted about its checkpoints."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloud_ml.domain.workloads.checkpoints import (
    NotedCheckpoint,
    believed,
    bucket_of,
    by_tensorflow,
    folder_of,
    is_finished,
    line_of_rename,
    parse_saved,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = b'{"path": "step-1.pt", "step": 1, "time": 1767225600}'
FIRST = NotedCheckpoint("step-1.pt", 1, AT)


def test_a_folder_belongs_to_one_job_for_ever() -> None:
    assert folder_of("linear", "u1") == ".checkpoints/linear-u1"


@pytest.mark.parametrize(
    ("own", "default", "bucket"),
    [
        ("mine", "main", "mine"),
        ("gone", "main", "main"),
        (None, "main", "main"),
        (None, "gone", ""),
        (None, "", ""),
        ("", "", ""),
    ],
)
def test_checkpoints_lie_in_the_own_bucket_or_the_default_one(
    own: str | None, default: str, bucket: str
) -> None:
    assert bucket_of(own, default, ["main", "mine"]) == bucket


def test_lines_are_read_in_their_order_and_torn_ones_are_left_out() -> None:
    note = b'ath": "x", "step": 1}\n' + GOOD + b'\n\n{"path": "b", "step": null, "time": 1767225600'
    assert parse_saved(note) == [FIRST]
    assert parse_saved(note + b"}\n") == [FIRST, NotedCheckpoint("b", None, AT)]


def test_the_attempt_is_known_where_a_note_names_it() -> None:
    for attempt, known in ((b"2", 2), (b"0", None), (b"true", None), (b'"2"', None), (b"-1", None)):
        note = b'{"path": "a", "step": 1, "time": 1767225600, "attempt": ' + attempt + b"}"
        assert parse_saved(note) == [NotedCheckpoint("a", 1, AT, known)], attempt


@pytest.mark.parametrize(
    "line",
    [
        b'{"path": "../other", "step": 1, "time": 1}',
        b'{"path": "/etc/passwd", "step": 1, "time": 1}',
        b'{"path": "a//b", "step": 1, "time": 1}',
        b'{"path": "", "step": 1, "time": 1}',
        b'{"path": "a\\u0000b", "step": 1, "time": 1}',
        b'{"path": 3, "step": 1, "time": 1}',
        b'{"path": "a", "step": "1", "time": 1}',
        b'{"path": "a", "step": true, "time": 1}',
        b'{"path": "a", "step": 1, "time": 1e300}',
        b'{"path": "a", "step": 1, "time": NaN}',
        b'{"path": "a", "step": 1, "time": "1"}',
        b'{"path": "a", "step": 1}',
        b"[" * 4000,
        b'{"path": "\\ud800", "step": 1, "time": 1}',
        b"7",
        b"\xff\xfe",
        b'{"path": "' + b"a" * 5000 + b'", "step": 1, "time": 1}',
    ],
)
def test_what_no_checkpoint_can_be_is_left_out(line: bytes) -> None:
    assert parse_saved(line + b"\n" + GOOD) == [FIRST]


@pytest.mark.parametrize(
    ("note", "path", "step"),
    [
        (b'model_checkpoint_path: "model.ckpt-900"\nall_model', "model.ckpt-900", 900),
        (b'all: "x"\nmodel_checkpoint_path: "/fds/a/ckpt-3"\n', "ckpt-3", 3),
        (b'model_checkpoint_path: "weights"', "weights", None),
    ],
)
def test_tensorflow_notes_the_newest(note: bytes, path: str, step: int | None) -> None:
    assert by_tensorflow(note, AT) == NotedCheckpoint(path, step, AT)


@pytest.mark.parametrize("note", [b"", b"model_checkpoint_path: x", b'model_checkpoint_path: ".."'])
def test_another_file_of_this_name_notes_nothing(note: bytes) -> None:
    assert by_tensorflow(note, AT) is None


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("step-5.pt.tmp", "step-5.pt"),
        (".step-5.pt", "step-5.pt"),
        ("tmp8a_k2x1c", "model.joblib"),
        ("tmp-checkpoint-500", "checkpoint-500"),
        ("100.orbax-checkpoint-tmp-1767225600", "100"),
        ("ckpt.part", "ckpt"),
        ("model_new.pt", "model.pt"),
        ("last.ckpt~", "last.ckpt"),
        ("", "from-another-folder"),
    ],
)
def test_what_gets_its_name_last_is_complete(source: str, name: str) -> None:
    assert is_finished(source, name)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("step-5.pt", "step-5.pt.old"),
        ("checkpoint-500", "to-be-removed-500"),
        ("temperature.pt", "parts.pt"),
        ("step-5.pt", "tmp-step-5"),
        ("a.tmp", "b.tmp"),
        ("x.tmp", ".hidden"),
        ("checkpoint.tmp81f2", "checkpoint"),
        ("ckpt-1.data-00000-of-00001.tempstate12.tmp", "ckpt-1.data-00000-of-00001"),
        ("x.tmp", "ckpt-1.index"),
        ("graph.pbtxt.tmp8d1c", "graph.pbtxt"),
        ("", "\udcff"),
        ("", ".."),
    ],
)
def test_another_rename_says_nothing(source: str, name: str) -> None:
    assert not is_finished(source, name)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-30.pt", 30),
        ("epoch=3-step=400.ckpt", 400),
        ("100", 100),
        ("model_12.tar.gz", 12),
        ("model_v2.pt", None),
        ("best.pt", None),
        ("a-9999999999999999999", None),
    ],
)
def test_the_step_of_what_was_renamed_is_in_its_name(name: str, step: int | None) -> None:
    found = parse_saved(b'{"pat' + line_of_rename(name, AT.timestamp(), 2))
    assert found == [NotedCheckpoint(name, step, AT, 2)]


def test_what_was_renamed_counts_only_without_a_report() -> None:
    line = line_of_rename("best.pt", AT.timestamp(), 1)
    assert believed(b"", None, line) == [NotedCheckpoint("best.pt", None, AT, 1)]
    assert believed(GOOD, None, line) == [FIRST]
    assert believed(b"", FIRST, line) == [FIRST]


def test_the_newest_come_first_and_of_those_noted_at_once_the_last() -> None:
    lines = [line_of_rename(name, at, 1) for name, at in (("c", 3), ("a", 1), ("b", 1))]
    assert [one.path for one in believed(b"", None, b"".join(lines))] == ["c", "b", "a"]
