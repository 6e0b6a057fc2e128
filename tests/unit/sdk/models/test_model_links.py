"""Links in a model's folder: what nobody named is not sent along."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.folders import files_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "versions"
    for number in ("1", "2"):
        (folder / number).mkdir(parents=True)
        (folder / number / "model.onnx").write_bytes(b"\x08\x07model")
    return folder


def _keys(source: Path) -> list[str]:
    return [file.key for file in files_of(source)]


@pytest.mark.parametrize("place", ["1/notes.txt", "2/model.onnx", "2/assets", "3", "1/sub/key"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_link_that_leads_out_is_refused(
    model: Path, tmp_path: Path, place: str, is_folder: bool
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "id_rsa").write_text("secret")
    link = model / place
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(secrets if is_folder or place == "3" else secrets / "id_rsa")
    with pytest.raises(InvalidRequest, match=f"^the link {place} leads out of the folder, to") as e:
        files_of(model)
    assert e.value.hint == (
        f"If this is meant to be sent, deploy a copy without links: cp -rL {model} COPY"
    )


def test_a_link_to_a_folder_whose_name_begins_alike_leads_out(model: Path, tmp_path: Path) -> None:
    (tmp_path / "versions-old").mkdir()
    (model / "1/old").symlink_to("../../versions-old")
    with pytest.raises(InvalidRequest, match=r"^the link 1/old leads out of the folder"):
        files_of(model)


def test_links_within_are_followed(model: Path) -> None:
    (model / "shared").mkdir()
    (model / "shared/words.txt").write_text("a\n")
    (model / "2/assets").symlink_to("../shared")
    (model / "2/words.txt").symlink_to(model / "shared/words.txt")
    (model / "3").symlink_to("1")
    assert _keys(model) == [
        "1/model.onnx",
        "2/assets/words.txt",
        "2/model.onnx",
        "2/words.txt",
        "3/model.onnx",
    ]


def test_a_folder_that_was_named_by_a_link_is_sent(model: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(model)
    (tmp_path / "newest").symlink_to(model / "2")
    assert _keys(tmp_path / "current") == ["1/model.onnx", "2/model.onnx"]
    assert _keys(tmp_path / "newest") == ["1/model.onnx"]


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("nothing", "leads nowhere"),
        ("loop", "leads nowhere"),
        (".", "leads to a folder that holds it"),
        ("..", "leads to a folder that holds it"),
    ],
)
def test_a_link_in_a_circle_or_to_nothing_is_refused(model: Path, target: str, what: str) -> None:
    (model / "1/loop").symlink_to(target)
    with pytest.raises(InvalidRequest, match=f"^the link 1/loop {what}$"):
        files_of(model)


def test_folders_with_links_to_each_other_are_refused(model: Path) -> None:
    (model / "1/there").symlink_to("../2")
    (model / "2/back").symlink_to("../1")
    with pytest.raises(InvalidRequest, match=r"^the link 1/there/back leads to a folder that"):
        files_of(model)


def test_hidden_links_stay_behind(model: Path) -> None:
    (model / "1/.key").symlink_to("/etc/passwd")
    assert _keys(model) == ["1/model.onnx", "2/model.onnx"]


def test_a_link_beside_a_single_file_stays_behind(model: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    (model / "1/model.onnx.data").symlink_to(tmp_path / "key")
    assert _keys(model / "1/model.onnx") == ["1/model.onnx"]


def test_weights_beside_what_a_link_to_a_model_leads_to_are_sent(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / "blobs" / name).write_bytes(b"\x08\x07model")
        (tmp_path / "snapshot" / name).symlink_to(f"../blobs/{name}")
    assert _keys(tmp_path / "snapshot/model.onnx") == ["1/model.onnx", "1/model.onnx.data"]


def test_a_name_that_is_no_text_is_refused(model: Path) -> None:
    Path(os.fsdecode(os.fsencode(model / "1") + b"/\xff")).write_bytes(b"")
    with pytest.raises(InvalidRequest, match="whose names are text"):
        files_of(model)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
@pytest.mark.parametrize("place", ["", "1", "1/assets"])
@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_folder_that_cannot_be_read_is_named(model: Path, place: str, mode: int) -> None:
    """It was left out without a word, or ended the command with a traceback."""
    (model / "1/assets").mkdir()
    (model / "1/assets/words.txt").write_text("a\n")
    closed = model / place
    closed.chmod(mode)
    try:
        with pytest.raises(InvalidRequest, match=r"cannot be read: Permission denied"):
            files_of(model)
    finally:
        closed.chmod(0o700)
