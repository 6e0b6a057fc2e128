"""``storage mv`` loses nothing: plans that overlap are refused, and a source goes only after its
verified copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cloud_ml.cli.storage import checks as storage_checks
from support.fake_api import FakeApi
from support.fake_server import FakeServer, Reply, Seen

if TYPE_CHECKING:
    from unit.cli.conftest import Run

HERE = "fds://cloudml"


def fill(api: FakeApi, *keys: str) -> dict[str, bytes]:
    api.objects = {f"{HERE}/{key}": key.encode() for key in keys}
    return dict(api.objects)


@pytest.mark.parametrize("command", ["mv", "cp"])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("x", "x"), f"{HERE}/x: source and target are the same"),
        (("x", ""), f"{HERE}/x: source and target are the same"),
        (("x", "y", ""), f"{HERE}/x, {HERE}/y: source and target are the same"),
        (("*", ""), f"{HERE}/x, {HERE}/y: source and target are the same"),
        (("s/**", "s/t/"), f"{HERE}/s/t/c: source and target are the same"),
        (("x", "s/x", "y/"), f"{HERE}/x, {HERE}/s/x would all become {HERE}/y/x"),
        (
            ("**/model.bin", "out/"),
            f"{HERE}/runs/1/model.bin, {HERE}/runs/2/model.bin would all become",
        ),
        (("-r", "s", "s"), "lies in it"),
        (("-r", "s/", "s"), "lies in it"),
        (("-r", "s/", "s/t/"), "lies in it"),
        (("-r", "s", "s/t/u/v"), "lies in it"),
        (("-r", "", "s/"), "lies in it"),
        (("-r", "s", "runs", ""), "lies in it"),
        (("-r", "s/t", "s/", "s/"), "lies in it"),
    ],
)
def test_what_overlaps_is_refused_by_name_and_changes_nothing(
    run: Run, api: FakeApi, server: FakeServer, command: str, arguments: tuple[str, ...], named: str
) -> None:
    before = fill(
        api, "x", "y", "s/a", "s/b", "s/t/c", "s/x", "runs/1/model.bin", "runs/2/model.bin"
    )
    places = [one if one.startswith("-") else f"{HERE}/{one}" for one in arguments]
    ended = run("storage", command, *places)
    assert (ended.exit_code, named in ended.stderr) == (1, True), ended.stderr
    assert "nothing was copied" in ended.stderr
    assert api.objects == before
    assert not [seen for seen in server.seen if seen.method in ("POST", "PUT", "DELETE")]


def test_two_objects_for_one_local_name_stay(run: Run, api: FakeApi, tmp_path: Path) -> None:
    before = fill(api, "runs/1/model.bin", "runs/2/model.bin", "runs/3/model.bin")
    ended = run("storage", "mv", f"{HERE}/runs/*/model.bin", f"{tmp_path}/out/")
    assert (ended.exit_code, "would all become" in ended.stderr) == (1, True)
    assert api.objects == before
    assert not (tmp_path / "out").exists()


def test_two_files_for_one_object_stay(run: Run, api: FakeApi, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    ended = run("storage", "mv", f"{tmp_path}/a/x", f"{tmp_path}/b/x", f"{HERE}/d/")
    assert (ended.exit_code, api.objects) == (1, {})
    assert [(tmp_path / name / "x").read_text() for name in ("a", "b")] == ["a", "b"]


def test_folders_that_links_make_one_are_one_target(run: Run, api: FakeApi, tmp_path: Path) -> None:
    before = fill(api, "s/a/x", "s/b/x")
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "b").symlink_to("a")
    ended = run("storage", "mv", "-r", f"{HERE}/s", f"{tmp_path}/out")
    assert (ended.exit_code, "would all become" in ended.stderr, api.objects) == (1, True, before)


@pytest.mark.parametrize(
    ("keys", "one"),
    [(("s/Model", "s/model"), False), (("s/A/x", "s/a/x"), True), (("s/é", "s/e\u0301"), True)],
)
def test_names_that_differ_in_spelling_only(
    run: Run,
    api: FakeApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
    one: bool,
) -> None:
    if (
        one
    ):  # a file system that folds names is seldom at hand; the real one is asked in the other case
        monkeypatch.setattr(storage_checks, "names_mean_one_file", lambda *_: True)
    before = fill(api, *keys)
    ended = run("storage", "mv", "-r", f"{HERE}/s", f"{tmp_path}/out")
    assert ended.exit_code == (1 if one else 0), ended.stderr
    assert api.objects == (before if one else {})


def test_one_source_named_twice_is_moved_once(run: Run, api: FakeApi) -> None:
    fill(api, "x1", "x2")
    ended = run("storage", "mv", f"{HERE}/x*", f"{HERE}/x1", f"{HERE}/d/")
    assert (ended.exit_code, set(api.objects)) == (0, {f"{HERE}/d/x1", f"{HERE}/d/x2"})


def test_two_names_of_one_file_are_moved_both(run: Run, api: FakeApi, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").write_text("content")
    os.link(top / "a", top / "b")
    (top / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_text("kept")
    ended = run("storage", "mv", "-r", str(top), f"{HERE}/d")
    assert ended.exit_code == 0, ended.stderr
    assert api.objects == {
        f"{HERE}/d/a": b"content",
        f"{HERE}/d/b": b"content",
        f"{HERE}/d/link": b"kept",
    }
    assert list(top.iterdir()) == []
    assert (tmp_path / "kept").read_text() == "kept"


def between(
    server: FakeServer, api: FakeApi, method: str, path: str, change: Callable[[], object]
) -> None:
    """Have ``change`` happen right after the server has carried out a request."""

    def handler(seen: Seen) -> Reply:
        reply = api(seen)
        if seen.method == method and seen.path.endswith(path):
            change()
        return reply

    server.handler = handler


def test_an_object_that_changes_while_it_is_moved_stays(
    run: Run, api: FakeApi, server: FakeServer
) -> None:
    fill(api, "x")
    between(server, api, "POST", "/-/copy", lambda: api.objects.update({f"{HERE}/x": b"newer"}))
    ended = run("storage", "mv", f"{HERE}/x", f"{HERE}/y")
    assert (ended.exit_code, "copied to fds://cloudml/y, but not removed" in ended.stderr) == (
        1,
        True,
    )
    assert api.objects == {f"{HERE}/x": b"newer", f"{HERE}/y": b"x"}


@pytest.mark.parametrize("late", [b"x" * 7, b"much longer"])
def test_an_object_that_changes_while_it_is_fetched_stays(
    run: Run, api: FakeApi, server: FakeServer, tmp_path: Path, late: bytes
) -> None:
    api.objects = {f"{HERE}/x": b"content"}
    between(server, api, "GET", "/x", lambda: api.objects.update({f"{HERE}/x": late}))
    assert run("storage", "mv", f"{HERE}/x", f"{tmp_path}/x").exit_code == 1
    assert api.objects == {f"{HERE}/x": late}


@pytest.mark.parametrize("late", ["CHANGED", "much longer"])
def test_a_file_that_changes_while_it_is_sent_stays(
    run: Run, api: FakeApi, server: FakeServer, tmp_path: Path, late: str
) -> None:
    file = tmp_path / "x"
    file.write_text("content")
    between(server, api, "PUT", "/x", lambda: file.write_text(late))
    ended = run("storage", "mv", str(file), f"{HERE}/x")
    assert (ended.exit_code, "the source has changed meanwhile" in ended.stderr) == (1, True)
    assert file.read_text() == late


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_target_that_somebody_else_takes_keeps_the_source(
    run: Run, api: FakeApi, server: FakeServer, tmp_path: Path, change: str
) -> None:
    def interfere() -> None:
        if change == "replaced":
            api.objects[f"{HERE}/y"] = b"another's"
        else:
            del api.objects[f"{HERE}/y"]

    file = tmp_path / "y"
    file.write_text("content")
    between(server, api, "PUT", "/y", interfere)
    ended = run("storage", "mv", str(file), f"{HERE}/")
    assert (ended.exit_code, f"the target was {change} meanwhile" in ended.stderr) == (1, True)
    assert file.read_text() == "content"
