"""Patterns of restart rules are looked for in a confined process, which loads the library alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloud_ml.engines.local.failures import log_patterns
from cloud_ml.engines.local.failures.log_patterns import FoundPatterns, find_patterns
from cloud_ml.engines.local.isolation import landlock, seccomp
from cloud_ml.engines.local.processes.launch import Fence

HERE = Fence("", "", "", None, None, 0)
OUTPUT = b"step 1\nRuntimeError: CUDA error: out of memory\n\xff\x00 bye\n"


def test_a_match_in_any_line_counts(tmp_path: Path) -> None:
    patterns = ["^step [0-9]$", "CUDA error: (out of memory|launch failed)", "^CUDA", "b.e$"]
    found = find_patterns(HERE, patterns, OUTPUT, tmp_path)
    assert found == FoundPatterns((patterns[0], patterns[1], patterns[3]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a tenant's user")
@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")
def test_it_has_no_more_rights_than_the_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text("secret")
    fence = Fence("bwrap", "", "", seccomp.program(), (1_600_001, 1_600_001), landlock.version())
    assert find_patterns(fence, ["error"], OUTPUT, tmp_path) == FoundPatterns(("error",))

    def reads(self: log_patterns._Search) -> None:
        (tmp_path / "private").read_bytes()
        self._say("0")

    monkeypatch.setattr(log_patterns._Search, "__call__", reads)
    found = find_patterns(fence, ["error"], OUTPUT, tmp_path)
    assert found == FoundPatterns(problem="the search failed, for lack of memory perhaps")


def test_a_machine_that_cannot_confine_it_says_so(tmp_path: Path) -> None:
    fence = Fence("bwrap", "", "", None, None, 0)
    found = find_patterns(fence, ["error"], OUTPUT, tmp_path)
    assert found == FoundPatterns(problem=log_patterns.NOT_CONFINED)


def test_without_the_library_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloud_ml.tracking.search_patterns", None)
    found = find_patterns(HERE, ["error"], OUTPUT, tmp_path)
    assert found.patterns == ()
    assert found.problem.startswith("the package google-re2 cannot be loaded: ")


def test_a_search_of_many_large_patterns_ends_and_keeps_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time is linear in the output, but the patterns of a job may be large, too."""
    monkeypatch.setattr(log_patterns, "CPU_S", 1)
    monkeypatch.setattr(log_patterns, "LIMIT_S", 60)  # so that it is processor time that ends it
    slow = [f"((a?){{1000}}|(b?){{{number}}})c$" for number in range(600, 990)]
    found = find_patterns(HERE, ["^a", *slow], b"ab" * 32_768, tmp_path)
    assert found.patterns == ("^a",)
    assert found.problem == "the search took more than 1 s of processor time, or crashed"


def test_nothing_that_a_search_may_say_does_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes it over writes what they like, and stays."""

    def writes(self: log_patterns._Search) -> None:
        os.write(self.writer, b"7\n-1\n\xff\n0\n!why\x1b[0m\n" + b"9" * 60_000)
        if os.fork() == 0:
            time.sleep(1)

    monkeypatch.setattr(log_patterns._Search, "__call__", writes)
    found = find_patterns(HERE, ["a", "b"], OUTPUT, tmp_path)
    assert found == FoundPatterns(("a",), "why?[0m")


def test_the_library_is_not_loaded_here(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from cloud_ml.engines.local.failures.log_patterns import find_patterns\n"
        "from cloud_ml.engines.local.processes.launch import Fence\n"
        "fence = Fence('', '', '', None, None, 0)\n"
        f"print(find_patterns(fence, ['a.c'], b'abc', Path({str(tmp_path)!r})).patterns)\n"
        "print('re2' in sys.modules, 'cloud_ml.tracking' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert result.stdout.splitlines() == ["('a.c',)", "False False"]
