"""The program that waits to become a command: it becomes exactly what it is told to, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_ml.engines.local import init
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.processes import launch

SHOW = "import os, sys; print(sys.argv[1:], sorted(os.environ.items()), os.getcwd(), os.getsid(0) == os.getpid())"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = init.find_seat(tmp_path_factory.mktemp("programs"))
    if not found:
        pytest.skip("no C compiler")
    return found


def take(
    program: str, orders: bytes, doors: Sequence[Path] = (), parent: int | None = None
) -> subprocess.CompletedProcess[str]:
    receiver, sender = os.pipe()
    with os.fdopen(receiver), os.fdopen(sender, "wb") as pipe:
        seat = subprocess.Popen(
            [program, str(receiver), str(parent or os.getpid()), "1", *map(str, doors)],
            pass_fds=(receiver,), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        pipe.write(orders)
        pipe.close()
        output, _ = seat.communicate(timeout=30)
    return subprocess.CompletedProcess(seat.args, seat.returncode, output)


def test_it_becomes_the_command_with_these_words_and_variables_only(program: str) -> None:
    words = ["", "two words", "'quote", "ümlaut", "."]
    variables = {"EMPTY": "", "LINES": "a\nb", "EQUALS": "x=y", "PYTHONIOENCODING": "utf-8"}
    done = take(
        program, init.seat_orders([sys.executable, "-I", "-c", SHOW, *words], variables, None)
    )
    shown = {**variables, "LC_CTYPE": "C.UTF-8"}
    assert done.returncode == 0
    assert done.stdout in {
        f"{words} {sorted(some.items())} / True\n" for some in (shown, variables)
    }  # Python itself sets the one that differs, where it has such a locale


def test_many_and_long_words_arrive_whole(program: str) -> None:
    words = [str(number) * 1000 for number in range(100)]
    code = "import hashlib, sys; print(hashlib.sha256(repr(sys.argv[1:]).encode()).hexdigest())"
    done = take(program, init.seat_orders([sys.executable, "-I", "-c", code, *words], {}, None))
    same = subprocess.run(
        [sys.executable, "-I", "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == same.stdout


def test_it_is_in_its_groups_before_it_becomes_anything(program: str, tmp_path: Path) -> None:
    doors = [tmp_path / "memory", tmp_path / "pids"]
    for door in doors:
        door.touch()
    done = take(program, init.seat_orders(["/bin/cat", *map(str, doors)], {}, None), doors)
    assert (done.returncode, done.stdout) == (0, "00")


def test_who_cannot_join_a_group_becomes_nothing(program: str, tmp_path: Path) -> None:
    done = take(program, init.seat_orders(["/bin/echo", "ran"], {}, None), [tmp_path / "absent"])
    assert (done.returncode, done.stdout) == (
        127,
        f"cloudml: {tmp_path / 'absent'}: No such file or directory\n",
    )


@pytest.mark.parametrize("cut", [0, 1, 2, 10])
def test_orders_that_are_not_whole_are_none(program: str, cut: int) -> None:
    whole = init.seat_orders(["/bin/echo", "ran"], {"A": "1"}, None)
    done = take(program, whole[:cut] if cut < 2 else whole[:-cut])
    assert (done.returncode, done.stdout) == (127, "")


@pytest.mark.parametrize("count", ["0", "3", "4", "99999999999999999999", "-1", "x"])
def test_a_number_of_words_that_cannot_be_is_refused(program: str, count: str) -> None:
    done = take(program, f"\0\0{count}\0/bin/echo\0ran\0.\0".encode())
    assert (done.returncode, done.stdout) == (127, "")


def test_it_does_not_outlive_who_started_it(program: str) -> None:
    done = take(program, init.seat_orders(["/bin/echo", "ran"], {}, None), parent=1)
    assert (done.returncode, done.stdout) == (127, "")


def test_what_cannot_be_run_is_named(program: str) -> None:
    done = take(program, init.seat_orders(["/nowhere/program"], {}, None))
    assert done.returncode == 127
    assert done.stdout == "cloudml: /nowhere/program cannot be started: No such file or directory\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_it_becomes_the_user_and_keeps_no_group_of_ours(program: str) -> None:
    done = take(
        program,
        init.seat_orders(
            ["/usr/bin/env", "-i", "/bin/sh", "-c", "id -u; id -g; id -G"], {}, (7001, 7002)
        ),
    )
    assert done.stdout.split() == ["7001", "7002", "7002"]


@pytest.mark.parametrize("place", ["word", "variable"])
def test_a_nul_character_is_refused_and_not_taken_for_an_end(place: str) -> None:
    bad = "a\0--bind\0/"
    with pytest.raises(OSError, match="NUL"):
        init.seat_orders(
            ["/bin/echo", bad if place == "word" else "x"],
            {"A": bad if place == "variable" else ""},
            None,
        )


@pytest.mark.parametrize("through_link", [False, True])
def test_without_a_sandbox_a_link_in_the_place_of_the_working_directory_is_not_entered(
    tmp_path: Path, through_link: bool
) -> None:
    """A prepare command may replace the folder; root would open what the tenant's user cannot."""
    (tmp_path / "others").mkdir()
    (tmp_path / "code").symlink_to("others")
    folder = tmp_path / ("code" if through_link else "others")
    seat = launch.PrelaunchedProcess(launch.Fence("", "", "", None, None), None)
    launched = seat.run(View(folder=str(folder)), ["/bin/pwd"], {}, None)
    _, status = os.waitpid(launched.pid, 0)
    output = os.read(launched.output, 4096).decode()
    launched.close()
    assert os.waitstatus_to_exitcode(status) == (127 if through_link else 0)
    assert ("cannot be started: [Errno 20]" in output) == through_link
