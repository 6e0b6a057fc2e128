"""What is seen under a base path, and what is not seen too early."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.serving.versions.folders import Interest, look, select_versions
from cloud_ml.serving.versions.model_config import AllVersions, Latest, Specific, VersionPolicy

LONG_AGO = 0.0


def version(base: Path, name: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text("x")
    return folder


def test_only_numbers_are_versions(tmp_path: Path) -> None:
    for name in ("1", "007", "tmp", "3.part", "-1", "9" * 19, "9" * 25, "٣"):
        version(tmp_path, name)
    (tmp_path / "5").write_text("a file")
    assert look(tmp_path, Interest(AllVersions(), settle_s=LONG_AGO)).numbers == {1, 7}


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (Latest(), {3}),
        (Latest(2), {2, 3}),
        (AllVersions(), {1, 2, 3}),
        (Specific(frozenset({1, 9})), {1}),
    ],
)
def test_policies_choose(tmp_path: Path, policy: VersionPolicy, chosen: set[int]) -> None:
    for name in "123":
        version(tmp_path, name)
    seen = look(tmp_path, Interest(policy, settle_s=LONG_AGO))
    assert select_versions(policy, seen, (), ()) == chosen


def test_what_is_written_yet_waits_and_the_one_before_it_is_taken(tmp_path: Path) -> None:
    version(tmp_path, "1")
    version(tmp_path, "2")
    interest = Interest(Latest(), settle_s=3600)
    assert look(tmp_path, interest).whole == {}
    assert set(look(tmp_path, interest).growing) == {1, 2}
    assert set(look(tmp_path, Interest(Latest(), settle_s=LONG_AGO)).whole) == {2}


def test_a_file_that_says_it_is_old_is_not_believed(tmp_path: Path) -> None:
    """Tools that copy keep times of change; when a file was really touched last, they cannot
    set.
    """
    folder = version(tmp_path, "1")
    for path in (folder / "model.onnx", folder):
        os.utime(path, (1e9, 1e9))
    assert set(look(tmp_path, Interest(Latest(), settle_s=3600)).growing) == {1}


def test_an_empty_folder_is_no_version_yet(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    assert look(tmp_path, Interest(Latest(), settle_s=LONG_AGO)).whole == {}


def test_clocks_that_run_ahead_are_settled_by_looking_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version(tmp_path, "1")
    monkeypatch.setattr("time.time", lambda: 1e9)  # the files are from the future
    first = look(tmp_path, Interest(Latest()))
    assert set(first.growing) == {1}
    assert set(look(tmp_path, Interest(Latest(), before=first.growing)).whole) == {1}
    (tmp_path / "1" / "more").write_text("y")
    assert set(look(tmp_path, Interest(Latest(), before=first.growing)).growing) == {1}


def test_the_print_changes_with_the_files(tmp_path: Path) -> None:
    folder = version(tmp_path, "1")
    before = look(tmp_path, Interest(Latest(), settle_s=LONG_AGO)).whole[1]
    (folder / "model.onnx").write_text("other")
    after = look(tmp_path, Interest(Latest(), settle_s=LONG_AGO)).whole[1]
    assert before.print != after.print
    assert (before.size, after.size) == (1, 5)


def test_what_runs_is_not_walked_again_and_who_failed_gets_a_stand_in(tmp_path: Path) -> None:
    for name in "123":
        version(tmp_path, name)
    running = look(tmp_path, Interest(Latest(), loaded=frozenset({3}), settle_s=LONG_AGO))
    assert running.whole == {}
    assert select_versions(Latest(), running, {3}, ()) == {3}
    failed = look(tmp_path, Interest(Latest(), failed=frozenset({3}), settle_s=LONG_AGO))
    assert select_versions(Latest(), failed, (), {3}) == {2, 3}


def test_a_base_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "No such file" in look(tmp_path / "none", Interest(Latest())).error
