"""The command line of the fence, by eye."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.sandbox import View, command_line


def line(view: View | None = None, *command: str, **options: int) -> list[str]:
    return command_line("/usr/bin/bwrap", view or View(), command or ("true",), **options)  # type: ignore[arg-type]


def pairs(words: list[str], option: str) -> list[tuple[str, str]]:
    return [(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option]


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_every_fence_is_asked_for() -> None:
    words = line()
    assert {
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
    } <= set(words)
    assert after(words, "--cap-drop") == "ALL"
    assert "--die-with-parent" in words
    assert (after(words, "--uid"), after(words, "--gid")) == ("1000", "1000")


@pytest.mark.parametrize(("network", "unshared"), [(True, False), (False, True)])
def test_the_network_is_a_matter_of_policy(network: bool, unshared: bool) -> None:
    assert ("--unshare-net" in line(View(network=network))) is unshared


def test_nothing_of_the_machine_can_be_written_but_what_is_given() -> None:
    view = View(
        writable=[("/data/jobs/u1/work", "/work")], read_only=[("/data/layers/x", "/layers/x")]
    )
    words = line(view)
    assert pairs(words, "--bind") == [("/data/jobs/u1/work", "/work")]
    assert ("/data/layers/x", "/layers/x") in pairs(words, "--ro-bind")
    assert not {"--dev-bind", "--dev-bind-try", "--bind-try"} & set(words)
    assert words.index("--remount-ro") > max(
        at for at, word in enumerate(words) if word.endswith("bind")
    )
    assert after(words, "--remount-ro") == "/"


def test_no_home_and_no_temporary_folder_of_the_machine_is_shown() -> None:
    shown = {
        source
        for option in ("--ro-bind", "--ro-bind-try", "--bind")
        for source, _ in pairs(line(), option)
    }
    hidden = (
        "/",
        "/home",
        "/root",
        "/tmp",
        "/var",
        "/run",
        "/proc",
        "/sys",
        "/dev",
        "/etc",
        "/opt",
        "/srv",
        "/mnt",
    )
    assert not shown & set(hidden)
    assert not {
        source
        for source in shown
        if source.startswith(("/etc/shadow", "/etc/passwd", "/var/", "/run/"))
    }


def test_read_only_mounts_come_last_so_that_nothing_writable_covers_them() -> None:
    words = line(View(writable=[("/a", "/storage/b")], read_only=[("/c", "/storage/b/c")]))
    assert words.index("/storage/b/c") > words.index("/storage/b")


def test_etc_is_the_sandboxs_own_but_for_certificates(tmp_path: Path) -> None:
    (tmp_path / "ssl").mkdir()
    words = line(View(etc=str(tmp_path)))
    assert pairs(words, "--ro-bind") == [(str(tmp_path), "/etc")]
    of_the_machine = [
        source for source, _ in pairs(words, "--ro-bind-try") if source.startswith("/etc")
    ]
    assert of_the_machine == ["/etc/ssl"], "and nothing where it could not be mounted"


def test_descriptors_the_folder_and_the_command() -> None:
    words = line(
        View(folder="/work", hostname="linear"), "python", "--uid", "0", seccomp_fd=7, status_fd=8
    )
    assert (after(words, "--seccomp"), after(words, "--json-status-fd")) == ("7", "8")
    assert (after(words, "--chdir"), after(words, "--hostname")) == ("/work", "linear")
    assert words[words.index("--") :] == ["--", "python", "--uid", "0"], (
        "what the user says is no option of ours"
    )


def test_no_variable_travels_in_the_arguments() -> None:
    assert "--setenv" not in line(View())


def test_variables_are_read_by_the_first_process_inside_if_there_is_our_own() -> None:
    assert after(line(variables_fd=9), "--args") == "9"
    words = line(status_fd=8, init_fd=7, variables_fd=9)
    assert "--args" not in words
    assert words[words.index("--") + 1 : -1] == ["/proc/self/fd/7", "8", "7", "9", "-1", "0"]
    assert sandbox.inner_variables({"A": "b=c", "E": ""}) == b"A=b=c\0E=\0"
    with pytest.raises(OSError, match="NUL"):
        sandbox.inner_variables({"A": "b\0LD_PRELOAD=c"})


def test_without_bubblewrap_the_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, why = sandbox.find_bwrap(None)
    assert found == ""
    assert "apt install bubblewrap" in why


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'No permissions to creating new namespace' >&2; exit 1", "No permissions"),
        ("exit 3", "3"),
    ],
)
def test_a_bubblewrap_that_does_not_work_here_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, why = sandbox.find_bwrap(None)
    assert found == ""
    assert words in why
    assert "user namespaces" in why
