"""Patterns of restart rules in the last output of a task that has failed.

Pattern and output are the tenant's. So a confined process with the tenant's rights looks for them,
within a bound of time and memory, and only there the library of patterns is loaded: a supervisor
stays as small as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml.engines.local.processes import confined_call
from cloud_ml.engines.local.processes.launch import Fence

CPU_S, LIMIT_S = 2, 5.0
"""Processor time for all patterns of a job together, and how long their task waits for that."""
_ANSWER_BYTES, _LONGEST_LINE = 65_536, 500
NOT_CONFINED = "this machine cannot confine the search: its kernel lacks Landlock"


@dataclass(frozen=True)
class FoundPatterns:
    """Those of some patterns that an output has, and why others were not looked for; empty if all
    were.
    """

    patterns: tuple[str, ...] = ()
    problem: str = ""


def find_patterns(
    fence: Fence, patterns: Sequence[str], output: bytes, folder: Path
) -> FoundPatterns:
    """Look for patterns in an output.

    Args:
        fence: What confines the tenant's processes.
        patterns: RE2 patterns.
        output: The end of what a task has said.
        folder: Where a temporary folder may be made.
    """
    if not confined_call.available(fence):
        return FoundPatterns(problem=NOT_CONFINED)
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        problem = _run(fence, _Search(patterns, output, writer), folder)
        report = _read(reader)
    finally:
        os.close(reader)
        os.close(writer)
    found, why = _parse(report, patterns)
    return FoundPatterns(found, why or problem)


def _read(reader: int) -> str:
    """What a search has written. Whoever took it over may hold its end of the pipe open."""
    with contextlib.suppress(BlockingIOError):
        return os.read(reader, _ANSWER_BYTES).decode("utf-8", "replace")
    return ""


def _parse(report: str, patterns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The patterns whose numbers a search has written, and why it ended; empty if it did not say."""
    lines = report.split("\n")
    numbers = {str(number) for number in range(len(patterns))}.intersection(lines)
    why = next((line[1:] for line in lines if line.startswith("!")), "")
    found = tuple(text for number, text in enumerate(patterns) if str(number) in numbers)
    return found, "".join(one if one.isprintable() else "?" for one in why)


def _run(fence: Fence, search: _Search, folder: Path) -> str:
    """Run a search; returns why it did not end, or nothing."""
    try:
        with tempfile.TemporaryDirectory(prefix="search-", dir=folder) as place:
            code = confined_call.run(
                fence,
                search,
                folder=Path(place),
                inputs=[search.writer],
                group=None,
                timeout_s=LIMIT_S,
                prepare=search.prepare,
            )
    except TimeoutError as error:
        return f"the search was given up: {error}"
    except OSError as error:
        return f"there is no process for the search: {error.strerror or error}"
    if code < 0:
        return f"the search took more than {CPU_S} s of processor time, or crashed"
    return "the search failed, for lack of memory perhaps" if code else ""


class _Search:
    """Looks for each pattern, and writes the numbers of those that are there, in lines. A line with
    ``!`` says why the search ends.
    """

    def __init__(self, patterns: Sequence[str], output: bytes, writer: int) -> None:
        self._patterns = patterns
        self._output = output
        self._library: Any = None
        self.writer = writer

    def prepare(self) -> None:
        """Load the library, while its files can be read."""
        try:
            self._library = importlib.import_module("cloud_ml.tracking.search_patterns")
        except ImportError as error:
            self._say(f"!the package google-re2 cannot be loaded: {error}")
            raise

    def __call__(self) -> None:
        """Search. A pattern that is none was refused when the job was submitted."""
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        for number, text in enumerate(self._patterns):
            try:
                if self._library.compile_search(text).search(self._output):
                    self._say(str(number))
            except self._library.PatternRefused as refused:
                self._say(f"!{text}: {refused}")
                return

    def _say(self, line: str) -> None:
        os.write(self.writer, f"{line[:_LONGEST_LINE]}\n".encode("utf-8", "replace"))
