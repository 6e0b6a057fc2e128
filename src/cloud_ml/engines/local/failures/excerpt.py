"""The end of a program's output, read as the one line that says why it failed.

The output is hostile: every pattern here runs in linear time, the input is bounded by
``TAIL_BYTES``, and the result is one printable line of at most ``LONGEST`` characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

TAIL_BYTES = 64 * 1024
"""How much of the end of an output is kept: tracebacks have 60 frames and more, some messages
are pages long.
"""
LONGEST = 300
_MOST_LINES = 600
_NEAR_END = 60
"""An error counts as the cause if at most this many lines follow it."""

# Terminal escape sequences, such as colours and titles (ECMA-48).
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
_TRACEBACK = "Traceback (most recent call last):"
_IGNORED = "Exception ignored in"
_FRAME = re.compile(r'\s*(?:\| +)?File "([^"]{1,1000})", line (\d{1,9})')
_EXCEPTION = re.compile(r"(?:\| )?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|:?)")
_NAMED_AS_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?:: .*)?"
)
_INTERPRETER = re.compile(
    r"\S*python[\d.]*: ((?:No module named|can't open file|Error while finding).*)"
)
_USAGE_ERROR = re.compile(r"[^\s:][^:]{0,100}: error: (.+)")
_ABSL = "FATAL Flags parsing error:"
_UNKNOWN_OPTION = re.compile(r"(?:unrecognized arguments: |No such option: )(--[\w-]+)")
_OPTION = re.compile(r"--[A-Za-z][\w-]*")
_NATIVE = re.compile(
    r"(?:Fatal Python error: |terminate called |\S{0,60} ?(?:Assertion|assertion) .*failed)"
)
_ERROR_LINE = re.compile(
    r"(?:[\w./-]{1,100}: )?(?:ERROR|Error|error|fatal|FATAL)(?:\[\w+\])?: \S.*"
)
_TORCHRUN_ERROR = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_TORCHRUN_FACT = re.compile(r" {2}(rank|exitcode) {1,10}: (-?[0-9]{1,9}) ")
_RANK = re.compile(r"\[rank([0-9]{1,9})\]: ?")
_GRAMMAR = ("SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True)
class Excerpt:
    """What a program said last.

    ``error`` and ``detail`` are the type and the message of a Python exception, ``file`` and
    ``line`` its place in the user's code, ``source`` the text of that line. ``inner`` is the error
    that this one stands for. ``quoted`` says that the text is nothing but the last line.
    """

    text: str = ""
    error: str = ""
    detail: str = ""
    file: str = ""
    line: int = 0
    source: str = ""
    inner: str = ""
    quoted: bool = False

    def sentence(self) -> str:
        """The excerpt as one line, with the place in the user's code."""
        if self.quoted:
            return cut(f"last output: {self.text}")
        place = f" ({self.file}, line {self.line}{self._bare_source()})" if self.file else ""
        text = (
            cut(self.text, LONGEST - len(place)) + place
            if len(place) < LONGEST // 2
            else cut(self.text)
        )
        return f"{text}; from: {self.inner}" if self.inner else text

    def _bare_source(self) -> str:
        """The line of an exception without a message: ``assert x > 0`` says more than
        ``AssertionError``.
        """
        return f": {cut(self.source, 80)}" if self.source and not self.detail else ""


def read(tail: bytes, user_file: Callable[[str], str] = lambda _path: "") -> Excerpt:
    """Read the end of an output.

    Args:
        tail: At most ``TAIL_BYTES`` are looked at.
        user_file: The name that a user knows a file of a traceback by; empty for a file of somebody
            else.
    """
    text = _ESCAPES.sub("", tail[-TAIL_BYTES:].decode("utf-8", "replace"))
    lines = _without_ranks(text.splitlines()[-_MOST_LINES:])
    found = [one for read_one in _READERS if (one := read_one(lines, user_file)) is not None]
    recent = [one for one in found if len(lines) - one[0] <= _NEAR_END]
    if recent:
        # Take the latest match: the program continued after the earlier ones.
        return _printable(max(recent, key=lambda one: one[0])[1])
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _printable(Excerpt(text=last, quoted=True)) if last else Excerpt()


def cut(text: str, limit: int = LONGEST) -> str:
    """``text`` as one printable line of at most ``limit`` characters."""
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


_Found = tuple[int, Excerpt] | None
_UserFile = Callable[[str], str]


def _exception(lines: Sequence[str], user_file: _UserFile) -> _Found:
    return _traceback(lines, user_file) or _named_error(lines, user_file)


def _traceback(lines: Sequence[str], user_file: _UserFile) -> _Found:
    """The last traceback; those of finalizers, which Python prints and ignores, are passed over."""
    for start in range(len(lines) - 1, -1, -1):
        line = lines[start]
        if _TRACEBACK not in line or (start and lines[start - 1].startswith(_IGNORED)):
            continue
        end = _end_of_frames(lines, start + 1)
        if end is None or (match := _EXCEPTION.fullmatch(lines[end].strip())) is None:
            continue
        if match[1] == _TORCHRUN_ERROR:
            return end, _under_torchrun(lines, start, end, user_file)
        excerpt = Excerpt(_whole(lines, end), match[1].rpartition(".")[2], match[2] or "")
        excerpt = replace(excerpt, inner=_inner(excerpt.error, lines, start, end))
        return end, _with_place(excerpt, lines[start:end], user_file)
    return None


def _under_torchrun(lines: Sequence[str], start: int, end: int, user_file: _UserFile) -> Excerpt:
    """``torchrun`` says only that a rank has failed. The rank has said why before, or not at all."""
    if before := _traceback(lines[max(0, start - _NEAR_END) : start], user_file):
        return before[1]
    facts = _first_failure(lines[end:])
    if len(facts) < 2:
        return Excerpt("a process of torchrun failed")
    code = int(facts["exitcode"])
    ended = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
    return Excerpt(f"rank {facts['rank']} {ended}")


def _first_failure(lines: Sequence[str]) -> dict[str, str]:
    """The rank that failed first and its exit code, as ``torchrun`` tells them."""
    facts: dict[str, str] = {}
    for line in lines:
        if line.startswith("Root Cause"):
            facts = {}
        elif match := _TORCHRUN_FACT.match(line):
            facts.setdefault(match[1], match[2])
    return facts


def _without_ranks(lines: Sequence[str]) -> list[str]:
    """The lines without the rank that PyTorch writes before those of an exception. Where torchrun
    says which rank failed first, the others have only missed it.
    """
    failed = _first_failure(lines).get("rank")
    found = [(_RANK.match(line), line) for line in lines]
    return [
        line[match.end() :] if match else line
        for match, line in found
        if match is None or failed in (None, match[1])
    ]


def _inner(error: str, lines: Sequence[str], start: int, end: int) -> str:
    """The error that another one stands for: that of a command, or the first one of a group."""
    if error == "CalledProcessError":
        before = _exception(lines[max(0, start - _NEAR_END) : start], lambda _path: "")
        return before[1].text if before else ""
    if error.endswith("ExceptionGroup"):
        inner_lines = (line.strip().removeprefix("| ") for line in lines[end + 1 : end + _NEAR_END])
        return next((line for line in inner_lines if _NAMED_AS_ERROR.fullmatch(line)), "")
    return ""


def _end_of_frames(lines: Sequence[str], start: int) -> int | None:
    """The line of the exception: the first that is not indented like a frame."""
    for number in range(start, len(lines)):
        line = lines[number]
        if line[:1].isspace():
            in_group = line.lstrip().startswith("| ") and not line.lstrip()[2:3].isspace()
            if not in_group:
                continue
        if line.strip():
            return number
    return None


def _named_error(lines: Sequence[str], user_file: _UserFile) -> _Found:
    """A line that reads like the end of a traceback whose beginning is cut off, or that was
    never there.
    """
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if _NAMED_AS_ERROR.fullmatch(line):
            error, _, detail = line.partition(": ")
            excerpt = Excerpt(_whole(lines, number), error.rpartition(".")[2], detail)
            return number, _with_place(excerpt, lines[:number], user_file)
    return None


def _whole(lines: Sequence[str], number: int) -> str:
    """A message that announces more lines (``Error(s) in loading state_dict for Net:``), with
    the next two.
    """
    words = [lines[number].strip().removeprefix("| ")]
    for line in lines[number + 1 : number + 3]:
        if not words[-1].endswith(":") or not line.strip():
            break
        words.append(line.strip())
    return " ".join(words)


def _with_place(excerpt: Excerpt, frames: Sequence[str], user_file: _UserFile) -> Excerpt:
    """The innermost frame of the user's own code. A syntax error is at its last place, whosever
    file it is.
    """
    for number in range(len(frames) - 1, -1, -1):
        if (match := _FRAME.match(frames[number])) is None:
            continue
        path = match[1]
        name = user_file(path) or (path.rpartition("/")[2] if excerpt.error in _GRAMMAR else "")
        if name:
            source = frames[number + 1].strip() if number + 1 < len(frames) else ""
            return replace(excerpt, file=name, line=int(match[2]), source=source)
    return excerpt


def _interpreter(lines: Sequence[str], _user_file: _UserFile) -> _Found:
    """What Python itself says when it cannot begin."""
    for number in range(len(lines) - 1, -1, -1):
        if match := _INTERPRETER.fullmatch(lines[number].strip()):
            return number, Excerpt(match[1])
    return None


def _usage_error(lines: Sequence[str], _user_file: _UserFile) -> _Found:
    """What argparse, click, typer and absl say about arguments."""
    usage = next(
        (n for n in range(len(lines) - 1, -1, -1) if lines[n][:6].lower() == "usage:"), None
    )
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if usage is not None and usage <= number:
            if sentence := _sentence_on_usage(line):
                return number, Excerpt(sentence + _near_option(sentence, lines[usage:number]))
        elif line.startswith(_ABSL):
            more = lines[number + 1].strip() if number + 1 < len(lines) else ""
            return number, Excerpt(line.removeprefix(_ABSL).strip() or more or line)
    return None


def _sentence_on_usage(line: str) -> str:
    if match := _USAGE_ERROR.fullmatch(line.strip()):
        return match[1]
    if line.startswith("Error: "):
        return line.removeprefix("Error: ")
    inside = line.strip("│ \t")
    return inside if line.startswith("│") and inside else ""


def _near_option(sentence: str, usage: Sequence[str]) -> str:
    """The options that are spelled like an unknown one, from the usage above."""
    unknown = _UNKNOWN_OPTION.search(sentence[:LONGEST])
    if unknown is None or "Did you mean" in sentence:
        return ""
    # Bound the text and the options: the program controls both, and difflib's time grows with
    # them.
    options = list(dict.fromkeys(_OPTION.findall("\n".join(usage)[:8192])))[:200]
    near = get_close_matches(unknown[1], options, n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _native_error(lines: Sequence[str], _user_file: _UserFile) -> _Found:
    """What an interpreter or a C++ library says before it aborts."""
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number].strip()
        if _NATIVE.match(line):
            more = next(
                (one.strip() for one in lines[number + 1 : number + 3] if "what():" in one), ""
            )
            return number, Excerpt(f"{line} {more}".strip())
    return None


def _error_line(lines: Sequence[str], _user_file: _UserFile) -> _Found:
    """A line that a tool such as pip or git marks as its error."""
    for number in range(len(lines) - 1, max(-1, len(lines) - 10), -1):
        if _ERROR_LINE.fullmatch(lines[number].strip()):
            return number, Excerpt(lines[number].strip())
    return None


# If several readers find the same line, the first one wins.
_READERS = (_exception, _interpreter, _usage_error, _native_error, _error_line)


def _printable(excerpt: Excerpt) -> Excerpt:
    return replace(
        excerpt,
        text=cut(excerpt.text),
        error=cut(excerpt.error, 100),
        detail=cut(excerpt.detail, 1000),
        file=cut(excerpt.file, 100),
        source=cut(excerpt.source, 100),
        inner=cut(excerpt.inner),
    )
