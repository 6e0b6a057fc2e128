"""Which parameters of a study local code does not mention."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from cloud_ml.sdk.trainers.unread_parameters import unread_parameters


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ('add_argument("--lr", type=float)', []),
        ('os.environ["lr"]', []),
        ("def train(lr): ...", []),
        ('add_argument("--lr-decay")', ["lr"]),
        ("clr = lrs", ["lr"]),
        ("", ["lr"]),
    ],
)
def test_a_name_is_looked_for_as_a_word(tmp_path: Path, text: str, unread: list[str]) -> None:
    (tmp_path / "train.py").write_text(text)
    assert unread_parameters(tmp_path, ["lr"]) == unread


def test_dashes_and_underscores_are_the_same_and_any_file_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('add_argument("--batch-size")')
    (tmp_path / "defaults.yaml").write_text("drop_out: 0.1")
    assert unread_parameters(tmp_path, ["batch_size", "drop-out", "depth"]) == ["depth"]


def test_of_what_is_not_read_nothing_is_said(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "code.tar.gz", "w:gz"):
        pass
    assert unread_parameters(tmp_path / "code.tar.gz", ["lr"]) == []
    assert unread_parameters(tmp_path / "none", ["lr"]) == []
    (folder := tmp_path / "large").mkdir()
    (folder / "train.py").write_text("")
    (folder / "data.bin").write_bytes(b"\0" * (2 << 20))
    assert unread_parameters(folder, ["lr"]) == []
