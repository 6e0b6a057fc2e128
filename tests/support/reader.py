"""A reader who types what a page says into one shell, in order, and looks whether the page tells
the truth.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.pages import Block, blocks

_END = "=== the end of a command:"
_FIGURE = re.compile(r"\d[\d.,:]*( ?(ms|s|min|h|B|[KMG]i?B?)\b)?")
_MAY_BE_THERE_ALREADY = re.compile(
    r"(Processing|Installing|Installed|Downloading|Downloaded|Bytecode) "
)
_FAILS = re.compile(r"^\S+ failed (?:in attempt \d+, )?after |\(code: \w+\)$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """What a reader types, and what the page shows below it."""

    command: str
    shown: str = ""

    @property
    def ends_well(self) -> bool:
        """Whether the page shows no failure."""
        return not _FAILS.search(self.shown)


def steps(page: Path) -> Iterator[Step]:
    """Everything on a page that can be typed: commands with a ``$``, lines for the shell; its
    Python as one program.
    """
    for block in blocks("console", "sh"):
        if block.page == page:
            yield from _steps(block)
    if program := "".join(block.text for block in blocks("python") if block.page == page):
        yield Step(f"python - <<'END_OF_PROGRAM'\n{program}END_OF_PROGRAM")


def _steps(block: Block) -> Iterator[Step]:
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        yield from (Step(line) for line in text.splitlines() if line)
    else:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield Step(command, shown)


def missing(shown: str, printed: str) -> list[str]:
    """Lines that a page shows and a command did not print, in order; figures and spaces may
    differ.
    """
    found, absent = iter([_loose(line) for line in printed.splitlines()]), []
    for line in shown.splitlines():
        if line.strip() not in ("", "…") and not _MAY_BE_THERE_ALREADY.match(line):
            expected = _loose(line)
            if not any(one == expected for one in found):
                absent.append(line)
    return absent


def _loose(line: str) -> str:
    return " ".join(_FIGURE.sub("#", line).split())


class Shell:
    """A shell that keeps its folder and its variables from command to command."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        program: Sequence[str] = ("bash", "--norc", "--noprofile"),
    ) -> None:
        self._process = subprocess.Popen(
            program, cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def type(self, command: str) -> tuple[int, str]:
        """Exit code and output of a command that waits for nobody."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{_END} %d\\n' $?\n")
        self._process.stdin.flush()
        printed = ""
        for line in self._process.stdout:
            if line.startswith(_END):
                return int(line.removeprefix(_END)), printed
            printed += line
        raise AssertionError(f"the shell has ended: {command}\n{printed}")

    def close(self) -> None:
        """End the shell."""
        self._process.communicate()
