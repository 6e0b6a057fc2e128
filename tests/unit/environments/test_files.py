from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_ml.environments.files import (
    clear_leftovers,
    digest_of,
    hold_lock,
    is_real_folder,
    make_once,
    read_json,
    write_json,
)


def test_make_once_makes_once(tmp_path: Path) -> None:
    made: list[Path] = []
    for _ in range(2):
        target = make_once(tmp_path / "layers" / "abc", made.append, locks=tmp_path / "locks")
    assert target.is_dir()
    assert len(made) == 1


def test_a_failure_leaves_nothing_and_the_next_one_tries_again(tmp_path: Path) -> None:
    def fail(work: Path) -> None:
        (work / "half").touch()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        make_once(tmp_path / "layers" / "abc", fail, locks=tmp_path / "locks")
    assert [entry.name for entry in (tmp_path / "layers").iterdir()] == [".abc.unsettled"]
    make_once(
        tmp_path / "layers" / "abc", lambda work: (work / "whole").touch(), locks=tmp_path / "locks"
    )
    assert (tmp_path / "layers" / "abc" / "whole").exists()


def test_what_a_crash_left_is_cleared(tmp_path: Path) -> None:
    leftover = tmp_path / "layers" / ".abc.making"
    leftover.mkdir(parents=True)
    (leftover / "half").touch()
    make_once(tmp_path / "layers" / "abc", lambda work: None, locks=tmp_path / "locks")
    assert sorted(entry.name for entry in (tmp_path / "layers").iterdir()) == [
        ".abc.unsettled",
        "abc",
    ]
    assert not (tmp_path / "layers" / "abc" / "half").exists()


_MAKER = """
import sys
from pathlib import Path
from cloud_ml.environments.files import make_once
folder = Path(sys.argv[1])
def note(work):
    with (folder / "made").open("a") as file:
        file.write("once\\n")
    sys.stdout.write("making\\n")
    sys.stdout.flush()
    sys.stdin.readline()
make_once(folder / "abc", note, locks=folder / "locks", waiting=lambda: print("waiting", flush=True))
print("done", flush=True)
"""


def test_processes_at_once_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _MAKER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        assert first.stdin
        assert first.stdout.readline() == "making\n"
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout
            assert second.stdout.readline() == "waiting\n"
            first.stdin.write("\n")
            first.stdin.flush()
            assert second.stdout.read() == "done\n"
        assert first.stdout.read() == "done\n"
    assert (tmp_path / "made").read_text() == "once\n"


def test_leftovers_go_and_work_in_progress_stays(tmp_path: Path) -> None:
    for name in (
        "layers/.dead.making",
        "layers/.busy.making",
        "layers/whole",
        "tenants/7/trainers/.dead.making",
    ):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "locks",
        "tenants/7/locks",
        "tenants/7/scratch/999999999-1",
        f"tenants/7/scratch/{os.getpid()}-1",
    ):
        (tmp_path / name).mkdir(parents=True)
    with hold_lock(tmp_path / "locks" / "busy"):
        clear_leftovers(tmp_path)
    assert sorted(entry.name for entry in (tmp_path / "layers").iterdir()) == [
        ".busy.making",
        "whole",
    ]
    assert list((tmp_path / "tenants" / "7" / "trainers").iterdir()) == []
    assert [entry.name for entry in (tmp_path / "tenants" / "7" / "scratch").iterdir()] == [
        f"{os.getpid()}-1"
    ]


def test_json_is_read_from_plain_files_only(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    assert read_json(tmp_path / "a.json") == {"a": 1}
    (tmp_path / "link.json").symlink_to(tmp_path / "a.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "bad.json").write_text("{")
    for name in ("link.json", "pipe.json", "bad.json", "absent.json"):
        assert read_json(tmp_path / name) is None


def test_a_link_is_no_real_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    assert is_real_folder(tmp_path)
    assert not is_real_folder(tmp_path / "link")
    assert not is_real_folder(tmp_path / "absent")


def test_digests() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of("a", "b") != digest_of("ab")
