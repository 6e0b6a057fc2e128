"""Paths as people type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.cli.jobs.defaults import module_for, name_for
from cloud_ml.models.paths.local import local_path
from cloud_ml.sdk.models.folders import files_of
from cloud_ml.settings import load


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~/x", "/home/mei/x"),
        ("~", "/home/mei"),
        ("~root/x", "/root/x"),
        ("./~x", "~x"),
        ("~nobody-has-this-name", "~nobody-has-this-name"),
        ("a/~/b", "a/~/b"),
        ("", "."),
    ],
)
def test_only_a_home_folder_at_the_start_is_expanded(
    text: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/mei")
    assert local_path(text) == Path(path)


def test_a_folder_whose_name_begins_with_a_tilde_can_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "~churn").mkdir()
    (tmp_path / "~churn" / "train.py").write_text("print()")
    (tmp_path / "~churn" / "model.onnx").write_bytes(b"\x08")
    monkeypatch.chdir(tmp_path)
    for text in ("./~churn", "~churn"):
        assert name_for(text) == "churn"
        assert module_for(text) == "train"
        assert [file.path.name for file in files_of(local_path(text))]


def test_a_setting_may_begin_with_a_tilde_that_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(environment={"CLOUDML_SERVER_DATA_DIR": "~data"})
    assert settings.data_dir == tmp_path / "~data"
