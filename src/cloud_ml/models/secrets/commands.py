"""Shell commands in which flags or variables suggest a secret: what of them may be shown. Pure.

The words are judged as arguments of a program are. Everything else of the command stays as it was
typed. A value that the shell fills in, such as ``$TOKEN`` or ``$(cat token.txt)``, is shown: it
names the secret and does not hold it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from cloud_ml.models.secrets.arguments import has_masked_value, judge_words
from cloud_ml.models.secrets.secret import MASK

Command = str | None
_PART = re.compile(
    r"""
    (?P<separator> [;|&()<>\n] )
    | (?P<word> ( \\. | '[^']*('|\Z) | "(\\.|[^"\\])*("|\\?\Z) | [^\s;|&()<>] )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_FILLED_IN = re.compile(r'"?(\$(\w+|\{\w+\}|\(.*|)|`.*)"?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Value:
    """A word of a command: where it stands, the flag before it, its text and the text that may
    be shown.
    """

    start: int
    end: int
    flag: str
    text: str
    shown: str


def mask_command(command: str) -> str:
    """The command as it may be shown: ``login --password ******``, ``export TOKEN=******``."""
    return _replace_values(
        command,
        [
            (value, _quote_masked(value.shown))
            for value in _values(command)
            if value.shown != value.text
        ],
    )


def masked_command_flags(command: Command) -> list[str]:
    """The flags and variables whose values are not shown, each once; of a URL without a flag,
    ``a URL``.
    """
    values = (value for value in _values(command or "") if value.shown != value.text)
    return list(dict.fromkeys(value.flag or "a URL" for value in values))


def command_flags_with_masks(command: Command) -> list[str]:
    """The flags and variables that have a mask in the place of a value."""
    values = (value for value in _values(command or "") if has_masked_value(value.flag, value.text))
    return list(dict.fromkeys(value.flag or "a URL" for value in values))


def fill_masked_command(command: Command, stored: Command) -> Command:
    """``command`` with the stored values in the place of masks, in the order in which they stand
    there.
    """
    if not command or not stored:
        return command
    known: dict[tuple[str, str], list[str]] = {}
    for value in _values(stored):
        if value.shown != value.text:
            known.setdefault((value.flag, value.shown), []).append(stored[value.start : value.end])
    filled = []
    for value in _values(command):
        values = (
            known.get((value.flag, value.text), [])
            if has_masked_value(value.flag, value.text)
            else []
        )
        if values:
            filled.append((value, values.pop(0)))
    return _replace_values(command, filled)


def _values(command: str) -> Iterator[_Value]:
    """The words of a command. A flag belongs to the next word of the same simple command only."""
    words: list[re.Match[str]] = []
    for part in _PART.finditer(command):
        if part["separator"] is None:
            words.append(part)
        else:
            yield from _judge_values(words)
            words = []
    yield from _judge_values(words)


def _judge_values(words: list[re.Match[str]]) -> Iterator[_Value]:
    texts = [_unquote_word(word[0]) for word in words]
    for word, (flag, text, shown) in zip(words, judge_words(texts), strict=True):
        value = word[0].partition("=")[2] if flag and text.startswith(f"{flag}=") else word[0]
        yield _Value(
            word.start(), word.end(), flag, text, text if _FILLED_IN.fullmatch(value) else shown
        )


def _replace_values(command: str, replacements: list[tuple[_Value, str]]) -> str:
    for value, text in reversed(replacements):
        command = command[: value.start] + text + command[value.end :]
    return command


def _unquote_word(word: str) -> str:
    try:
        return "".join(shlex.split(word))
    except ValueError:  # a quotation mark is missing
        return word


def _quote_masked(shown: str) -> str:
    """``shlex.quote`` would quote the mask."""
    return MASK.join(shlex.quote(part) if part else "" for part in shown.split(MASK))
