"""What git knows of code that is sent: the commit, and what was changed since.

The repository may be somebody else's, so nothing of its configuration is run: no hooks, file
monitor, filters, external diffs or text conversion, and nothing is fetched. Git itself refuses
repositories of other users (``safe.directory``). Without git, or where it takes long, there are no
facts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml.models.jobs.git import LARGEST_DIFF, without_credentials
from cloud_ml.models.secrets.diffs import without_secrets

_TIMEOUT_S = 10.0
_MOST_FILES = 2000
_MOST_BYTES = 4_000_000
_MOST_FILTERS = 200
_SETTINGS = {
    # A program of the repository's own configuration, which git runs when it refreshes the index.
    "core.fsmonitor": "",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    # With a partial clone, a diff may fetch objects that are missing: from any address, by any
    # helper.
    "protocol.allow": "never",
    "diff.external": "",
    "core.quotePath": "false",
    "color.ui": "false",
    "submodule.recurse": "false",
}


@dataclass(frozen=True, slots=True)
class GitFacts:
    """``facts`` as ``TrainJob.git`` has them, and the changes of the sent files."""

    facts: dict[str, Any]
    diff: bytes = b""
    files: Sequence[str] = field(default=())


def git_facts(folder: Path, sent: Sequence[str] | None) -> GitFacts | None:
    """The facts of the repository that ``folder`` is in; ``None`` if there is none, or no git.

    ``sent`` are the paths of the sent files in the folder; ``None`` means all.
    """
    program = shutil.which("git")
    if program is None:
        return None
    try:
        return _gathered(_Git(program, folder), sent)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _gathered(git: _Git, sent: Sequence[str] | None) -> GitFacts | None:
    commit = git.text("rev-parse", "--verify", "HEAD^{commit}")
    if not commit:
        return None
    facts: dict[str, Any] = {"commit": commit}
    if branch := git.text("symbolic-ref", "-q", "--short", "HEAD"):
        facts["branch"] = branch[:500]
    if remote := git.text("config", "--get", "remote.origin.url"):
        facts["remote"] = without_credentials(remote)[:500]
    # Before the first diff: comparing the files of the folder runs the ``clean`` filters of the
    # configuration.
    git.disable_filters()
    listed = git.output("diff", *_DIFF, "--name-only", "-z", "--relative", "HEAD", "--", ".")
    changed = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    if sent is not None:
        there = set(sent)
        changed = [name for name in changed if name in there or not (git.folder / name).exists()]
    if not changed:
        return GitFacts(facts)
    facts["dirty"] = True
    chosen = changed[:_MOST_FILES]
    diff = git.output("diff", *_DIFF, "--relative", "HEAD", "--", *chosen)
    body = without_secrets(diff)
    if len(body) > LARGEST_DIFF or len(changed) > len(chosen) or len(diff) >= _MOST_BYTES:
        facts["diff_cut"] = True
        body = body[:LARGEST_DIFF]
    return GitFacts(facts, body, chosen)


_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--no-renames")


class _Git:
    """Runs git in a folder with settings of ours."""

    def __init__(self, program: str, folder: Path) -> None:
        self.folder = folder
        self._program = program
        self._settings = dict(_SETTINGS)

    def text(self, *arguments: str) -> str:
        """The first line of an answer; empty where git refuses."""
        try:
            return self.output(*arguments).decode("utf-8", "replace").partition("\n")[0].strip()
        except subprocess.CalledProcessError:
            return ""

    def disable_filters(self) -> None:
        """Have no program of the configuration convert files."""
        try:
            names = self.output("config", "--name-only", "-z", "--get-regexp", r"^filter\.")
        except subprocess.CalledProcessError:  # there is none
            return
        keys = [os.fsdecode(key) for key in names.split(b"\0") if key]
        if len(keys) > _MOST_FILTERS:
            raise ValueError("too many filters")
        for key in keys:
            # An empty command leaves a file as it is, but a required filter without a command is an
            # error.
            value = "false" if key.lower().endswith(".required") else ""
            self._settings[key] = value

    def output(self, *arguments: str) -> bytes:
        """What git prints, at most some megabytes.

        Raises:
            SubprocessError: It fails, or takes long.
        """
        # ``--literal-pathspecs``: a file may be called ``:(top)x`` or ``*``.
        command = [self._program, "--no-pager", "--literal-pathspecs", *arguments]
        process = subprocess.Popen(  # noqa: S603 - found by shutil.which, with arguments of ours
            command,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(_TIMEOUT_S, give_up)
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                found = process.stdout.read(_MOST_BYTES)
                if len(found) == _MOST_BYTES:
                    process.kill()
        finally:
            timer.cancel()
        if late.is_set():
            raise subprocess.TimeoutExpired(command, _TIMEOUT_S)
        if process.returncode and len(found) < _MOST_BYTES:
            raise subprocess.CalledProcessError(process.returncode, command)
        return found

    def _environment(self) -> Mapping[str, str]:
        # Without its variables: ``GIT_DIR``, which git sets in hooks, would name another repository
        # than the folder's.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        kept |= {
            # Otherwise git writes the refreshed index, under a lock at which the user's own git
            # would fail.
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_COUNT": str(len(self._settings)),
        }
        for at, (name, value) in enumerate(self._settings.items()):
            kept |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
        return kept
