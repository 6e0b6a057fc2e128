from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from cloud_ml import lock_file
from cloud_ml.errors import InvalidRequest, TooLarge
from cloud_ml.models.paths.ignoring import DATA_FOLDER_MARKS
from cloud_ml.sdk.trainers import packaging
from cloud_ml.sdk.trainers.packaging import pack_source


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "linear"
    for name, text in {
        "setup.py": "from setuptools import setup\n",
        "trainer/__init__.py": "",
        "trainer/task.py": "print(1)\n",
        "trainer/__pycache__/task.pyc": "x",
        ".git/config": "x",
        "build/lib/x.py": "x",
        "run.sh": "#!/bin/sh\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "run.sh").chmod(0o755)
    return root


def _members(folder: Path) -> dict[str, tarfile.TarInfo]:
    with pack_source(folder) as package, tarfile.open(package.body.path) as archive:
        return {member.name: member for member in archive.getmembers()}


def _digest(folder: Path) -> str:
    with pack_source(folder) as package:
        return package.body.sha256


def test_a_project_is_packed_without_what_is_made_from_it(project: Path) -> None:
    assert list(_members(project)) == [
        "run.sh",
        "setup.py",
        "trainer/__init__.py",
        "trainer/task.py",
    ]


def test_the_package_says_what_it_is(project: Path) -> None:
    with pack_source(project) as package:
        content = package.body.path.read_bytes()
        assert package.name == "linear.tar.gz"
        assert package.body.size == len(content)
        assert package.body.sha256 == hashlib.sha256(content).hexdigest()
    assert not package.body.path.exists()


def test_a_package_folder_keeps_its_name_so_that_it_can_be_imported(project: Path) -> None:
    assert list(_members(project / "trainer")) == ["trainer/__init__.py", "trainer/task.py"]


def test_the_same_files_give_the_same_bytes(project: Path, tmp_path: Path) -> None:
    first = _digest(project)
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    (project / "run.sh").chmod(0o711)
    assert _digest(project) == first
    with pack_source(project) as package:
        header = package.body.path.read_bytes()[:10]
    assert header[3] == 0  # no name
    assert header[4:8] == bytes(4)  # no time
    members = _members(project)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members.values()} == {
        (0, 0, 0, "", "")
    }
    assert (members["run.sh"].mode, members["setup.py"].mode) == (0o755, 0o644)
    (project / "trainer" / "task.py").write_text("print(2)\n")
    assert _digest(project) != first


def test_own_patterns_leave_more_behind(project: Path) -> None:
    (project / ".cloudmlignore").write_text("# data stays here\n*.sh\n/trainer/task.py\n")
    assert list(_members(project)) == [".cloudmlignore", "setup.py", "trainer/__init__.py"]


def test_too_much_names_the_biggest_files(project: Path) -> None:
    for i in range(7):
        (project / f"data{i}.bin").write_bytes(bytes(1000 + i))
    with pytest.raises(TooLarge) as caught, pack_source(project, size_limit_bytes=2000):
        pass
    assert "data6.bin, data5.bin" not in caught.value.message
    assert caught.value.message.index("data6.bin") < caught.value.message.index("data5.bin")
    assert "data0.bin" not in caught.value.message
    assert ".cloudmlignore" in (caught.value.hint or "")


def test_a_folder_of_many_files_is_too_large_before_all_are_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaging, "_ENOUGH_FILES", 3)
    for number in range(10):
        (project / f"data{number}.bin").write_bytes(b"0" * 1000)
    with (
        pytest.raises(TooLarge, match=r"linear holds more than 1\.95K to be packed"),
        pack_source(project, size_limit_bytes=2000),
    ):
        pass


def test_a_home_folder_is_not_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(InvalidRequest, match="is your home folder"), pack_source(project):
        pass
    (project / ".cloudmlignore").touch()
    assert "setup.py" in _members(project)


def test_links_within_stay_links(project: Path) -> None:
    (project / "trainer" / "alias.py").symlink_to("task.py")
    (project / "absolute").symlink_to(project / "trainer")
    members = _members(project)
    assert members["trainer/alias.py"].linkname == "task.py"
    assert members["absolute"].linkname == "trainer"


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "trainer/../../secret"])
def test_links_that_leave_are_refused(project: Path, target: str) -> None:
    (project.parent / "secret").write_text("s")
    (project / "leak").symlink_to(target)
    with pytest.raises(InvalidRequest, match="leak leads out of the folder"), pack_source(project):
        pass


def test_a_link_that_leads_nowhere_is_refused_unless_ignored(project: Path) -> None:
    (project / "gone").symlink_to("nothing")
    with pytest.raises(InvalidRequest, match="gone leads nowhere"), pack_source(project):
        pass
    (project / ".cloudmlignore").write_text("gone\n")
    assert "gone" not in _members(project)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
@pytest.mark.parametrize("place", ["", "src", ".cloudmlignore"])
@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_what_cannot_be_read_is_named(project: Path, place: str, mode: int) -> None:
    (project / ".cloudmlignore").touch()
    (project / "src").mkdir(exist_ok=True)
    (project / "src/more.py").touch()
    if place == ".cloudmlignore":
        mode = 0o000
    (project / place).chmod(mode)
    try:
        with (
            pytest.raises(InvalidRequest, match=r" cannot be read: Permission denied$"),
            pack_source(project),
        ):
            pass
    finally:
        (project / place).chmod(0o700)


def test_a_pipe_is_refused(project: Path) -> None:
    os.mkfifo(project / "pipe")
    with (
        pytest.raises(InvalidRequest, match=r"^pipe is a pipe, which cannot be sent") as refused,
        pack_source(project),
    ):
        pass
    assert ".cloudmlignore" in (refused.value.hint or "")


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_an_environment_stays_behind_whatever_its_name(project: Path, mark: str) -> None:
    """It holds links to the interpreter outside, and thousands of files."""
    for folder in ("venv", "tools/env"):
        (project / folder / mark).mkdir(parents=True)
        (project / folder / "python3").symlink_to("/usr/bin/python3")
    before = set(_members(project))
    assert not any("env" in name for name in before)


def test_the_data_folder_of_a_server_stays_behind(project: Path, tmp_path: Path) -> None:
    """Its keys and everybody's data are in it."""
    assert lock_file.NAME in DATA_FOLDER_MARKS
    before = set(_members(project))
    data = project / "srv"
    (data / "engine").mkdir(parents=True)
    for name in (lock_file.NAME, "sealing.key", "credentials.json"):
        (data / name).write_text("secret")
    (data / "engine" / "python3").symlink_to("/usr/bin/python3")
    assert set(_members(project)) == before
    with (
        pytest.raises(InvalidRequest, match="srv is the data folder of a server"),
        pack_source(data),
    ):
        pass


def test_links_that_lead_in_a_circle_lead_nowhere(project: Path) -> None:
    (project / "one").symlink_to("two")
    (project / "two").symlink_to("one")
    with (
        pytest.raises(InvalidRequest, match=r"the link (one|two) leads nowhere"),
        pack_source(project),
    ):
        pass


def test_a_link_to_the_folder_itself_is_kept(project: Path) -> None:
    (project / "loop").symlink_to(".")
    assert _members(project)["loop"].linkname == "."


def test_a_name_that_is_no_text_is_refused(project: Path) -> None:
    (project / os.fsdecode(b"bad\xff.py")).write_text("")
    with pytest.raises(InvalidRequest, match="names are text"), pack_source(project):
        pass


def test_empty_folders_are_sent(project: Path) -> None:
    """Code that writes into one failed as a job only."""
    before = _digest(project)
    for name in ("out/plots", "build/left", "only_ignored/__pycache__"):
        (project / name).mkdir(parents=True)
    (project / "only_ignored" / "__pycache__" / "x.pyc").write_bytes(b"x")
    found = {name: each for name, each in _members(project).items() if each.isdir()}
    assert {name: each.mode for name, each in found.items()} == {"out/plots": 0o755}
    (project / "out" / "plots").rmdir()
    (project / "out").rmdir()
    assert _digest(project) == before


def test_a_folder_with_empty_folders_only_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code" / "inner").mkdir(parents=True)
    with pytest.raises(InvalidRequest, match="not ignored"), pack_source(tmp_path / "code"):
        pass


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "x").write_text("x")
    with pytest.raises(InvalidRequest, match="not ignored"), pack_source(tmp_path):
        pass


@pytest.mark.parametrize(
    "name", ["trainer-1.0.tar.gz", "t-1.0-py3-none-any.whl", "t.zip", "task.py"]
)
def test_a_file_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    with pack_source(tmp_path / name) as package:
        assert (package.name, package.body.path) == (name, tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"content"


def test_other_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1")
    with pytest.raises(InvalidRequest, match=r"\.whl"), pack_source(tmp_path / "data.csv"):
        pass
    with pytest.raises(InvalidRequest, match="that exists"), pack_source(tmp_path / "none"):
        pass


def test_names_that_are_hard_to_write_in_a_uri_are_made_plain(tmp_path: Path) -> None:
    root = tmp_path / "mein Projekt (2)"
    root.mkdir()
    (root / "a.py").write_text("")
    with pack_source(root) as package:
        assert package.name == "mein-Projekt-2.tar.gz"


def test_a_script_is_sent_with_what_it_imports_and_requires(tmp_path: Path) -> None:
    """And with nothing else: the folder may be somebody's home."""
    for name, text in {
        "train.py": "import os, utils\nfrom lib.data import load\nimport numpy\ndef f():\n    "
        "import "
        "late\n",
        "utils.py": "import deeper\n",
        "deeper.py": "import train\n",
        "late.py": "print 'python 2'\n",
        "lib/data.py": "from . import other\nimport further\n",
        "lib/other.py": "",
        "lib/__pycache__/x.pyc": "",
        "further.py": "",
        "numpy.txt": "",
        "secrets.env": "x",
        "requirements.txt": "numpy\n",
        "pyproject.toml": "[build-system]\n",
        "notes/more.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    sent = [
        "deeper.py",
        "further.py",
        "late.py",
        "lib/data.py",
        "lib/other.py",
        "requirements.txt",
        "train.py",
        "utils.py",
    ]
    assert list(_members(tmp_path / "train.py")) == sent
    with pack_source(tmp_path / "train.py") as package:
        assert package.name == "train.tar.gz"


def test_a_script_alone_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import numpy\n")
    (tmp_path / "data.csv").write_text("1")
    with pack_source(tmp_path / "train.py") as package:
        assert (package.name, package.body.path) == ("train.py", tmp_path / "train.py")
