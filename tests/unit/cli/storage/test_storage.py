from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.fake_api import FakeApi
from support.fake_server import FakeServer

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def test_make_and_list_buckets(run: Run) -> None:
    assert run("storage", "mb", "models", "fds://more").stdout == "fds://models\nfds://more\n"
    assert run("storage", "ls", "-o", "name").stdout == "cloudml\nmodels\nmore\n"


def test_list_one_level_or_all(run: Run, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": b"abc" for key in ("a/1", "a/2", "b")}
    assert (
        run("storage", "ls", "fds://cloudml", "-o", "name").stdout
        == "fds://cloudml/a/\nfds://cloudml/b\n"
    )
    assert (
        run("storage", "ls", "-r", "fds://cloudml/a/", "-o", "name").stdout
        == "fds://cloudml/a/1\nfds://cloudml/a/2\n"
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


@pytest.mark.parametrize("command", ["cp", "mv"])
def test_a_folder_of_objects_keeps_the_names_of_sources(
    run: Run, api: FakeApi, tmp_path: Path, command: str
) -> None:
    (tmp_path / "a.csv").write_text("a")
    api.objects = {"fds://cloudml/d/old": b"old", "fds://cloudml/b.csv": b"b"}
    for source in (str(tmp_path / "a.csv"), "fds://cloudml/b.csv"):
        assert run("storage", command, source, "fds://cloudml/d").exit_code == 0
    assert set(api.objects) - {"fds://cloudml/b.csv"} == {
        f"fds://cloudml/d/{name}" for name in ("old", "a.csv", "b.csv")
    }


def test_an_object_is_no_folder_beside_one_of_its_name(
    run: Run, api: FakeApi, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a")
    api.objects = {"fds://cloudml/d": b"d", "fds://cloudml/d/old": b"old"}
    assert run("storage", "cp", str(tmp_path / "a.csv"), "fds://cloudml/d").exit_code == 0
    assert api.objects == {"fds://cloudml/d": b"a", "fds://cloudml/d/old": b"old"}


def test_a_bucket_that_is_missing_is_reported_once(run: Run, api: FakeApi, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_text("x")
    for words in (("-r", str(tmp_path)), (str(tmp_path / "1"), str(tmp_path / "2"))):
        refused = run("storage", "cp", *words, "fds://nob/many")
        assert (refused.exit_code, refused.stderr.count("there is no bucket nob")) == (1, 1)
        assert "cloudml storage mb nob" in refused.stderr
    assert not api.objects


def test_copy_down(run: Run, api: FakeApi, tmp_path: Path) -> None:
    api.objects["fds://cloudml/d/f.txt"] = b"hello"
    assert run("storage", "cp", "fds://cloudml/d/f.txt", str(tmp_path)).exit_code == 0
    assert run("storage", "cp", "fds://cloudml/d/f.txt", str(tmp_path / "g")).exit_code == 0
    assert (tmp_path / "f.txt").read_text() == (tmp_path / "g").read_text() == "hello"


def test_a_remote_folder_is_copied_with_r_and_nothing_is_named(
    run: Run, api: FakeApi, tmp_path: Path
) -> None:
    api.objects["fds://cloudml/d/f.txt"] = b"hello"
    folder = run("storage", "cp", "fds://cloudml/d", str(tmp_path))
    assert folder.exit_code != 0
    assert "fds://cloudml/d is a folder: copy it with -r" in str(folder.exception) + folder.output
    nothing = run("storage", "cp", "fds://cloudml/e", str(tmp_path))
    assert nothing.exit_code != 0
    assert "there is no object fds://cloudml/e" in str(nothing.exception) + nothing.output


def test_an_output_of_a_job_is_copied_by_another_command(run: Run, tmp_path: Path) -> None:
    result = run("storage", "cp", "churn:model.pt", str(tmp_path))
    assert f"cloudml jobs cp churn:model.pt {tmp_path}" in str(result.exception) + result.output


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


@pytest.mark.parametrize("options", [(), ("-u",)])
def test_a_tilde_in_a_key_is_no_home_folder(
    run: Run,
    api: FakeApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    """Jobs choose the names of their outputs, and editors leave files such as ``~$report``."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    names = ("~", "~$report", "~root/a", "sub/~b")
    api.objects = {f"fds://cloudml/x/{name}": name.encode() for name in names}
    done = run("storage", "cp", *options, "-r", "fds://cloudml/x", ".")
    assert (done.exit_code, done.stderr.count("lies outside")) == (0, 0)
    assert {name: (tmp_path / "here" / name).read_text() for name in names} == {
        name: name for name in names
    }
    assert list((tmp_path / "home").iterdir()) == []
    assert run("storage", "cp", *options, "fds://cloudml/x/~$report", ".").exit_code == 0
    assert run("storage", "cp", *options, "-r", ".", "fds://cloudml/y").exit_code == 0
    assert {f"fds://cloudml/y/{name}" for name in names} <= set(api.objects)
    assert run("storage", "cp", *options, "./~", "fds://cloudml/plain").exit_code == 0
    assert api.objects["fds://cloudml/plain"] == b"~"


def test_a_tilde_that_was_typed_is_the_home_folder(
    run: Run, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    api.objects["fds://cloudml/x/a"] = b"a"
    assert run("storage", "cp", "-r", "fds://cloudml/x", "~/down").exit_code == 0
    assert (tmp_path / "down" / "a").read_text() == "a"
    assert run("storage", "cp", "~/down/a", "fds://cloudml/up").exit_code == 0
    assert api.objects["fds://cloudml/up"] == b"a"


@pytest.mark.parametrize(
    "command",
    [
        ("storage", "cp", "fds://cloudml/x/{name}", "{folder}/a"),
        ("storage", "cp", "-r", "fds://cloudml/x", "{folder}/b"),
        ("storage", "cp", "-r", "--dry-run", "fds://cloudml/x", "{folder}/b"),
        ("storage", "mv", "-r", "fds://cloudml/x", "{folder}/c"),
        ("storage", "rm", "-r", "fds://cloudml/x"),
        ("storage", "ls", "fds://cloudml/x/"),
        ("storage", "ls", "-o", "json", "fds://cloudml/x/"),
        ("storage", "ls", "-o", "yaml", "fds://cloudml/x/"),
    ],
)
def test_names_of_others_cannot_turn_a_line_around(
    run: Run, api: FakeApi, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A right-to-left override makes ``fdp.exe`` of ``exe.pdf``. Jobs choose the names of their
    outputs.
    """
    name = "\u6570\u202efdp.exe"
    api.objects = {f"fds://cloudml/x/{name}": b"1", "fds://cloudml/x/other": b"2"}
    done = run(*(part.format(name=name, folder=tmp_path) for part in command))
    output = done.stdout + done.stderr
    assert "\u202e" not in output
    assert "\\u202e" in output.lower()


def test_names_for_a_pipe_are_as_they_are(run: Run, api: FakeApi) -> None:
    api.objects = {"fds://cloudml/x/a\u202eb": b"1"}
    assert (
        run("storage", "ls", "-o", "name", "fds://cloudml/x/").stdout
        == "fds://cloudml/x/a\u202eb\n"
    )


def test_cat_and_rm(run: Run, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": key.encode() + b"\xff" for key in ("a", "b/1", "b/2")}
    assert (
        run("storage", "cat", "fds://cloudml/a", "fds://cloudml/b/1").stdout_bytes
        == b"a\xffb/1\xff"
    )
    assert run("storage", "rm", "fds://cloudml/a").stdout == "removed fds://cloudml/a\n"
    assert run("storage", "rm", "-r", "fds://cloudml/b/").exit_code == 0
    assert api.objects == {}
    assert run("storage", "rm", "fds://cloudml/a").exit_code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rm", "fds://cloudml/many"), "many is a folder: remove it with `cloudml storage rm -r`"),
        (("rm", "fds://cloudml/many/"), "many/ is a folder: remove it with"),
        (("rm", "--dry-run", "fds://cloudml/many"), "many is a folder: remove it with"),
        (("rm", "fds://cloudml"), "is a bucket: remove it with `cloudml storage rb cloudml`"),
        (("rm", "fds://nob/many"), "there is no bucket nob"),
        (("rm", "fds://cloudml/man"), "there is no object fds://cloudml/man"),
        (("rm", "--dry-run", "fds://cloudml/man"), "there is no object fds://cloudml/man"),
        (("rm", "-r", "--dry-run", "fds://cloudml/man"), "there is no object fds://cloudml/man"),
        (("cat", "fds://cloudml/many"), "is a folder: name its objects, such as 'fds://cloudml/many/**'"),
        (("cat", "fds://cloudml/many/"), "is a folder: name its objects, such as 'fds://cloudml/many/**'"),
        (("cat", "fds://cloudml"), "is a bucket: name its objects, such as 'fds://cloudml/**'"),
        (("cat", "fds://cloudml/man"), "there is no object fds://cloudml/man"),
        (("cp", "fds://cloudml/many", "-"), "is a folder: name its objects"),
    ],
)  # fmt: skip
def test_a_folder_is_called_so_with_the_command_that_works(
    run: Run, api: FakeApi, words: tuple[str, ...], message: str
) -> None:
    api.objects = {"fds://cloudml/many/a": b"a"}
    refused = run("storage", *words)
    assert refused.exit_code != 0
    assert message in refused.stderr
    assert api.objects


def test_a_folder_does_not_keep_the_other_objects_from_removal(run: Run, api: FakeApi) -> None:
    api.objects = {"fds://cloudml/many/a": b"a", "fds://cloudml/b": b"b"}
    ended = run("storage", "rm", "fds://cloudml/many", "fds://cloudml/b")
    assert (ended.exit_code, "many is a folder" in ended.stderr) == (1, True)
    assert set(api.objects) == {"fds://cloudml/many/a"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cp", "s3://foo/bar", "."), "s3://foo/bar: only local paths and URIs such as fds://"),
        (("cp", "fds://cloudml/a", "s3://foo/bar"), "s3://foo/bar: only local paths and URIs"),
        (("mv", "gs://foo/bar", "fds://cloudml/b"), "gs://foo/bar: only local paths and URIs"),
        (("cp", "fds:/cloudml/a", "."), "did you mean fds://cloudml/a?"),
        (("cp", "fds://cloudml/a", "fds:/cloudml/b"), "did you mean fds://cloudml/b?"),
        (("cp", "FDS://cloudml/a", "."), "did you mean fds://cloudml/a?"),
    ],
)
def test_a_uri_of_another_scheme_is_no_local_path(
    run: Run,
    api: FakeApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    api.objects = {"fds://cloudml/a": b"a"}
    refused = run("storage", *words)
    assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert (list(tmp_path.iterdir()), set(api.objects)) == ([], {"fds://cloudml/a"})


def test_a_local_file_may_look_like_a_uri(
    run: Run, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    (tmp_path / "s3:" / "a").write_text("a")
    assert run("storage", "cp", "s3:/a", "fds://cloudml/a").exit_code == 0
    assert api.objects == {"fds://cloudml/a": b"a"}


def test_local_files_are_not_copied_to_each_other(run: Run) -> None:
    assert run("storage", "cp", "a", "b").exit_code == 2


def test_copies_within_the_server(run: Run, api: FakeApi) -> None:
    api.objects = {f"fds://cloudml/{key}": key.encode() for key in ("a/1", "a/b/2")}
    assert run("storage", "cp", "-r", "fds://cloudml/a", "fds://cloudml/c").exit_code == 0
    assert run("storage", "mv", "fds://cloudml/a/1", "fds://cloudml/moved").exit_code == 0
    assert set(api.objects) == {
        f"fds://cloudml/{key}" for key in ("a/b/2", "c/1", "c/b/2", "moved")
    }


def test_several_sources_and_patterns(run: Run, api: FakeApi, tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).write_text(name)
    assert (
        run("storage", "cp", str(tmp_path / "x"), str(tmp_path / "y"), "fds://cloudml/d").exit_code
        == 0
    )
    assert set(api.objects) == {"fds://cloudml/d/x", "fds://cloudml/d/y"}
    api.objects["fds://cloudml/d/e/x"] = b"deep"
    assert (
        run("storage", "ls", "fds://cloudml/d/*", "-o", "name").stdout
        == "fds://cloudml/d/x\nfds://cloudml/d/y\n"
    )
    assert len(run("storage", "ls", "fds://cloudml/**x", "-o", "name").stdout.splitlines()) == 2
    assert run("storage", "cp", "fds://cloudml/d/[!x]", str(tmp_path / "down")).exit_code == 0
    assert [one.name for one in (tmp_path / "down").iterdir()] == ["y"]
    missing = run("storage", "rm", "fds://cloudml/*.none")
    assert (missing.exit_code, "nothing matches" in missing.stderr) == (1, True)


def test_a_failure_does_not_keep_the_others(run: Run, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    ended = run("storage", "cp", str(tmp_path / "none"), str(tmp_path / "x"), "fds://cloudml/d/")
    assert (ended.exit_code, set(api.objects)) == (1, {"fds://cloudml/d/x"})
    assert f"{tmp_path}/none cannot be read" in ended.stderr
    assert "1 copied (1 B), 1 failed" in ended.stderr


def test_odd_things_in_a_folder_are_told(run: Run, api: FakeApi, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "empty").mkdir(parents=True)
    (top / "a b ü").write_text("1")
    (top / "nothing").touch()
    (top / "bad\nname").touch()
    (top / "loop").symlink_to(top)
    (top / "link").symlink_to(top / "a b ü")
    (top / "broken").symlink_to(top / "absent")
    os.mkfifo(top / "pipe")
    ended = run("storage", "cp", "-r", str(top), "fds://cloudml/t")
    assert ended.exit_code == 1
    assert set(api.objects) == {f"fds://cloudml/t/{key}" for key in ("a b ü", "nothing", "link")}
    for message in (
        "loop: a link to a folder",
        "pipe: no plain file",
        "broken: a link to nothing",
        "can be no key",
    ):
        assert message in ended.stderr
    empty = run("storage", "cp", "-r", str(top / "empty"), "fds://cloudml/e")
    assert (empty.exit_code, "no file in it" in empty.stderr) == (0, True)


def test_update_leaves_out_what_is_the_same(
    run: Run, api: FakeApi, server: FakeServer, tmp_path: Path
) -> None:
    for name, text in (("same", "1"), ("changed", "2"), ("new", "3")):
        (tmp_path / name).write_text(text)
    api.objects = {"fds://cloudml/t/same": b"1", "fds://cloudml/t/changed": b"x"}
    ended = run("storage", "cp", "-r", "-u", str(tmp_path), "fds://cloudml/t")
    assert (ended.exit_code, "2 copied (2 B), 1 unchanged" in ended.stderr) == (0, True)
    assert {seen.path.rpartition("/")[2] for seen in server.seen if seen.method == "PUT"} == {
        "changed",
        "new",
    }
    before = len(server.seen)
    ended = run("storage", "cp", "-r", "--sync", "fds://cloudml/t", str(tmp_path))
    assert "3 unchanged" in ended.stderr
    assert not [
        seen for seen in server.seen[before:] if seen.method == "GET" and "/t/" in seen.path
    ]


def test_a_dry_run_changes_nothing(run: Run, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    api.objects["fds://cloudml/a"] = b"1"
    assert (
        "x -> fds://cloudml/x"
        in run("storage", "cp", "--dry-run", str(tmp_path / "x"), "fds://cloudml/").stderr
    )
    assert (
        run("storage", "rm", "--dry-run", "fds://cloudml/a").stdout
        == "would remove fds://cloudml/a\n"
    )
    assert api.objects == {"fds://cloudml/a": b"1"}


@pytest.mark.parametrize("key", ["../out", "a/../../out", "/out", "sub/link/out"])
def test_nothing_is_written_outside_of_the_target(
    run: Run, api: FakeApi, tmp_path: Path, key: str
) -> None:
    target = tmp_path / "target"
    (target / "sub").mkdir(parents=True)
    (target / "sub" / "link").symlink_to(tmp_path)
    api.objects = {f"fds://cloudml/t/{key}": b"evil", "fds://cloudml/t/good": b"good"}
    ended = run("storage", "cp", "-r", "fds://cloudml/t", str(target))
    assert ended.exit_code == 1
    assert not (tmp_path / "out").exists()
    assert (target / "good").read_text() == "good"


def test_a_whole_bucket_is_not_emptied_unasked(run: Run, api: FakeApi) -> None:
    api.objects["fds://cloudml/a"] = b"1"
    for command in (
        ("rm", "-r", "fds://cloudml"),
        ("rm", "-r", "fds://cloudml/"),
        ("rb", "--force", "cloudml"),
    ):
        refused = run("storage", *command)
        assert (refused.exit_code, "--yes" in refused.stderr) == (1, True)
    assert api.objects
    assert run("storage", "rm", "-r", "--yes", "fds://cloudml").exit_code == 0
    assert not api.objects


def test_sizes_as_people_read_them(run: Run, api: FakeApi) -> None:
    api.objects["fds://cloudml/a"] = bytes(3000)
    assert "2.9 KiB" in run("storage", "ls", "-h", "fds://cloudml").stdout
    assert "ETAG" in run("storage", "ls", "-l", "fds://cloudml").stdout


def test_standard_output_is_a_target(run: Run, api: FakeApi) -> None:
    api.objects["fds://cloudml/a"] = b"\xffbytes"
    assert run("storage", "cp", "fds://cloudml/a", "-").stdout_bytes == b"\xffbytes"
    assert run("storage", "cp", "fds://cloudml/a", "fds://cloudml/b", "-").exit_code == 2


def test_settings_of_transfers_are_checked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    ended = run(
        "storage",
        "cp",
        str(tmp_path / "x"),
        "fds://cloudml/",
        env={"CLOUDML_TRANSFER_PARALLEL": "many"},
    )
    assert (ended.exit_code, "CLOUDML_TRANSFER_PARALLEL" in ended.stderr) == (1, True)


def test_a_planted_link_is_not_written_through(run: Run, api: FakeApi, tmp_path: Path) -> None:
    """Whoever may write to the folder of a download names no file of ours for it to write to."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / ".large.cloudml-version").symlink_to(victim)
    api.objects["fds://cloudml/large"] = bytes(300_000)
    assert run("storage", "cp", "fds://cloudml/large", str(folder / "large")).exit_code == 0
    assert victim.read_text() == "precious"


def test_a_draft_that_is_longer_than_the_object_begins_anew(
    run: Run, api: FakeApi, tmp_path: Path
) -> None:
    content = bytes(range(250)) * 1000
    api.objects["fds://cloudml/large"] = content
    (tmp_path / ".large.cloudml-part").write_bytes(bytes(len(content) + 10))
    (tmp_path / ".large.cloudml-version").write_text(f'"{hashlib.sha256(content).hexdigest()}"')
    assert run("storage", "cp", "fds://cloudml/large", str(tmp_path / "large")).exit_code == 0
    assert (tmp_path / "large").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_a_link_lasts_as_long_as_the_server_allows(run: Run, api: FakeApi) -> None:
    refused = run("storage", "presign", "fds://cloudml/a", "--expires", "30d")
    assert refused.exit_code == 1
    assert "expires is '30d'; allowed is at most 7d, the limit of the server" in refused.stderr
    made = run("storage", "presign", "fds://cloudml/a", "--expires", "7d")
    assert (made.exit_code, "The link works until 20" in made.stderr) == (0, True)
    api.presign_limit_s = 3_000.0
    refused = run("storage", "presign", "fds://cloudml/a", "--expires", "1h")
    assert "at most 3000s" in refused.stderr
    api.presign_limit_s = 2_592_000.0
    assert (
        "X-Cloudml-Expires"
        in run("storage", "presign", "fds://cloudml/a", "--expires", "30d").stdout
    )
