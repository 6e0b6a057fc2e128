from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.fake_api import FakeApi

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def test_make_and_list_buckets(run: Run) -> None:
    assert run("storage", "mb", "models", "fds://more").stdout == "fds://models\nfds://more\n"
    assert run("storage", "ls", "-o", "name").stdout == "cloudml\nmodels\nmore\n"


def test_list_one_level_or_all(run: Run, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": b"abc" for key in ("a/1", "a/2", "b")}
    assert run("storage", "ls", "fds://cloudml", "-o", "name").stdout == "fds://cloudml/a/\nfds://cloudml/b\n"
    assert (
        run("storage", "ls", "-r", "fds://cloudml/a/", "-o", "name").stdout == "fds://cloudml/a/1\nfds://cloudml/a/2\n"
    )
    assert json.loads(run("storage", "ls", "fds://cloudml/b", "-o", "json").stdout)[0]["size"] == 3
    assert "fds://cloudml/b   3     2026-01-31" in run("storage", "ls", "fds://cloudml").stdout


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("fds://cloudml", "fds://cloudml/f.txt"),
        ("fds://cloudml/", "fds://cloudml/f.txt"),
        ("fds://cloudml/d/", "fds://cloudml/d/f.txt"),
        ("fds://cloudml/g", "fds://cloudml/g"),
    ],
)
def test_copy_up(run: Run, api: FakeApi, tmp_path: Path, target: str, uri: str) -> None:
    (tmp_path / "f.txt").write_text("hello")
    assert run("storage", "cp", str(tmp_path / "f.txt"), target).exit_code == 0
    assert api.objects == {uri: b"hello"}


def test_copy_down(run: Run, api: FakeApi, tmp_path: Path) -> None:
    api.objects["fds://cloudml/d/f.txt"] = b"hello"
    assert run("storage", "cp", "fds://cloudml/d/f.txt", str(tmp_path)).exit_code == 0
    assert run("storage", "cp", "fds://cloudml/d/f.txt", str(tmp_path / "g")).exit_code == 0
    assert (tmp_path / "f.txt").read_text() == (tmp_path / "g").read_text() == "hello"


def test_copy_folders(run: Run, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "up" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "a").write_text("1")
    (tmp_path / "up" / "sub" / "b").write_text("2")
    refused = run("storage", "cp", str(tmp_path / "up"), "fds://cloudml/x")
    assert (refused.exit_code, "-r" in refused.stderr) == (2, True)
    assert run("storage", "cp", "-r", str(tmp_path / "up"), "fds://cloudml/x").exit_code == 0
    assert set(api.objects) == {"fds://cloudml/x/a", "fds://cloudml/x/sub/b"}
    assert run("storage", "cp", "-r", "fds://cloudml/x", str(tmp_path / "down")).exit_code == 0
    assert (tmp_path / "down" / "sub" / "b").read_text() == "2"


def test_cat_and_rm(run: Run, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": key.encode() + b"\xff" for key in ("a", "b/1", "b/2")}
    assert run("storage", "cat", "fds://cloudml/a", "fds://cloudml/b/1").stdout_bytes == b"a\xffb/1\xff"
    assert run("storage", "rm", "fds://cloudml/a").stdout == "removed fds://cloudml/a\n"
    assert run("storage", "rm", "-r", "fds://cloudml/b/").exit_code == 0
    assert api.objects == {}
    assert run("storage", "rm", "fds://cloudml/a").exit_code == 1


def test_one_side_is_local(run: Run) -> None:
    for pair in (("a", "b"), ("fds://cloudml/a", "fds://cloudml/b")):
        assert run("storage", "cp", *pair).exit_code == 2
