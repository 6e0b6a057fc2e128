"""One file is as good as a folder, and a folder as good as a numbered one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.sdk.models import folders as model_folders
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.versions.folders import Interest, look
from cloud_ml.serving.versions.model_config import AllVersions, Latest, Specific, parse_policy
from cloud_ml.serving.versions.single_model import MODEL_FILES, base_of


def _seen(base: Path) -> dict[int, set[str]]:
    found = look(base, Interest(AllVersions(), settle_s=0))
    return {
        number: {each.name for each in folder.path.iterdir()}
        for number, folder in found.whole.items()
    }


def test_a_folder_that_holds_a_model_is_version_1_until_it_has_numbered_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert _seen(tmp_path) == {}
    (tmp_path / "model.onnx").write_text("x")
    assert _seen(tmp_path) == {1: {"notes.txt", "model.onnx"}}
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "model.onnx").write_text("x")
    assert _seen(tmp_path) == {7: {"model.onnx"}}


def test_a_file_is_linked_under_the_name_of_its_format_with_what_belongs_to_it(
    tmp_path: Path,
) -> None:
    for name in ("net.onnx", "net.onnx.data", "signature.json", "other.onnx", "weights.bin"):
        (tmp_path / name).write_text(name)
    base = base_of(tmp_path / "net.onnx")
    assert _seen(base) == {1: {"model.onnx", "net.onnx.data", "signature.json"}}
    assert (base / "model.onnx").read_text() == "net.onnx"
    for path in (tmp_path, tmp_path / "weights.bin", tmp_path / "absent.onnx"):
        assert base_of(path) == path


def test_both_sides_know_the_same_files() -> None:
    assert MODEL_FILES == model_folders.MODEL_FILES


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("latest", Latest(1)),
        ("latest:2", Latest(2)),
        ("all", AllVersions()),
        ("3", Specific(frozenset({3}))),
        ("1, 2", Specific(frozenset({1, 2}))),
    ],
)
def test_versions_side_by_side(text: str, policy: object) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    "text", ["", "newest", "latest:", "latest:0", "latest:x", "all:1", "1,", "-1", "1:2", "9" * 30]
)
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(BadRequest, match="use latest, latest:2, all, or numbers such as 1,2"):
        parse_policy(text)
