"""What git knows of code, without a program of the repository being run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.git import LARGEST_DIFF, check_git, without_credentials
from cloud_ml.models.secrets.diffs import without_secrets
from cloud_ml.sdk.trainers.git_facts import git_facts


def git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_AUTHOR_NAME": "mei", "GIT_AUTHOR_EMAIL": "m@example.com",
        "GIT_COMMITTER_NAME": "mei", "GIT_COMMITTER_EMAIL": "m@example.com",
    }  # fmt: skip
    command = ["git", "-c", "core.fsmonitor=", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "train.py").write_text("lr = 1\n")
    (folder / "notes.txt").write_text("a\n")
    (folder / "gone.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "remote", "add", "origin", "https://mei:hunter2@git.example.com/a.git?token=t1")
    return folder


def test_a_clean_folder_has_its_commit_branch_and_remote(repository: Path) -> None:
    found = git_facts(repository, ["train.py"])
    assert found is not None
    assert found.facts == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "trunk",
        "remote": "https://git.example.com/a.git",
    }
    assert found.diff == b""
    assert check_git("git", found.facts) == found.facts


def test_the_diff_is_that_of_the_files_that_were_sent(repository: Path) -> None:
    (repository / "train.py").write_text("lr = 2\n")
    (repository / "notes.txt").write_text("b\n")
    (repository / "gone.py").unlink()
    found = git_facts(repository, ["train.py"])
    assert found is not None
    assert found.facts["dirty"] is True
    diff = found.diff.decode()
    assert "-lr = 1\n+lr = 2\n" in diff
    assert "-x = 1" in diff
    assert "notes.txt" not in diff
    below = repository / "sub"
    below.mkdir()
    inside = git_facts(below, [])
    assert inside is not None
    assert "dirty" not in inside.facts


def test_secrets_in_a_diff_are_masked_and_a_long_one_is_cut(repository: Path) -> None:
    lines = [
        'API_TOKEN = "abc123"',
        "password=hunter2",
        'url = "https://mei:hunter2@example.com/x"',
        "tokens: int = 5",
    ]
    (repository / "train.py").write_text("\n".join(lines) + "\n")
    found = git_facts(repository, ["train.py"])
    assert found is not None
    diff = found.diff.decode()
    assert "abc123" not in diff
    assert "hunter2" not in diff
    assert '+API_TOKEN = "******"' in diff
    assert "+tokens: int = 5" in diff
    (repository / "train.py").write_text("word = 1\n" * 300_000)
    long = git_facts(repository, ["train.py"])
    assert long is not None
    assert (long.facts["diff_cut"], len(long.diff)) == (True, LARGEST_DIFF)


def test_no_program_of_the_repository_is_run(repository: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    run = f"touch {mark}; cat"
    for name, value in {
        "core.fsmonitor": run, "diff.external": run, "diff.x.textconv": run,
        "diff.x.command": run, "filter.x.clean": run, "filter.x.process": run,
        "filter.x.required": "true", "filter.y=z.clean": run, "core.pager": run,
        "core.sshCommand": run, "core.hooksPath": str(tmp_path / "hooks"),
    }.items():  # fmt: skip
        git(repository, "config", name, value)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "pre-commit", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\n{run}\n")
        (hooks / hook).chmod(0o755)
    (repository / ".gitattributes").write_text("*.py filter=x diff=x\n*.txt filter=y=z\n")
    (repository / "train.py").write_text("lr = 3\n")
    (repository / "notes.txt").write_text("c\n")
    found = git_facts(repository, None)
    assert found is not None
    assert b"+lr = 3" in found.diff
    assert not mark.exists()


def test_where_there_is_no_git_there_are_no_facts(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert git_facts(plain, None) is None
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert git_facts(plain, None) is None
    monkeypatch.setenv("PATH", str(plain))
    assert git_facts(repository, None) is None


@pytest.mark.parametrize(
    ("remote", "kept"),
    [
        ("https://u:p@h.example/a.git", "https://h.example/a.git"),
        ("https://token@h.example:8443/a.git#x", "https://h.example:8443/a.git"),
        ("ssh://git@h.example/a.git", "ssh://h.example/a.git"),
        ("git@h.example:a/b.git", "git@h.example:a/b.git"),
        ("git:secret@h.example:a/b.git", "git@h.example:a/b.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("https://[bad", ""),
        ("https:///mei:hunter2@h/a.git", ""),
        ("file:///srv/a.git", "file:///srv/a.git"),
    ],
)
def test_a_remote_has_no_credentials(remote: str, kept: str) -> None:
    assert without_credentials(remote) == kept


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("main", "git"),
        ({"commit": "abc"}, "git.commit"),
        ({"commit": "a" * 40, "author": "x"}, "git.author"),
        ({"commit": "a" * 40, "branch": 3}, "git.branch"),
        ({"commit": "a" * 40, "dirty": "yes"}, "git.dirty"),
        ({"commit": "a" * 40, "diff": "http://x/y"}, "git.diff"),
    ],
)
def test_wrong_facts_are_refused_by_name(value: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_git("git", value)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "line",
    [
        "+password: hunter2xyz",
        "+  - db_password: hunter2xyz  # of the replica",
        "@@ -9,7 +9,7 @@ API_TOKEN = 'hunter2xyz'",
        '+password = """hunter2xyz"""',
        '+password = """hunter2xyz',
        "+os.environ['API_TOKEN'] = 'hunter2xyz'",
        "+headers = {'Authorization': 'Bearer hunter2xyz'}",
        "+password => 'hunter2xyz'",
        "+password := 'hunter2xyz'",
    ],
)
def test_secrets_are_masked_in_the_forms_of_other_files(line: str) -> None:
    shown = without_secrets(f"--- /dev/null\n+++ b/settings.yaml\n{line}\n".encode()).decode()
    assert "hunter2xyz" not in shown
    assert "******" in shown


def test_types_of_python_are_no_secrets() -> None:
    diff = b"--- a/train.py\n+++ b/train.py\n+def train(token: str, lr: float) -> None:\n"
    assert without_secrets(diff) == diff
