"""Arguments whose flags suggest a secret, such as ``--password hunter2``: what of them may be
shown. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from cloud_ml.models.secrets.secret import MASK, has_mask, masked_value

Arguments = str | list[str] | None
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z_][\w.-]*")


def masked_arguments(arguments: Arguments) -> Arguments:
    """Arguments as they may be shown, as text if they were text: ``--password ******``,
    ``--token=******``.
    """
    words = _words(arguments)
    shown = mask_words(words)
    if shown == words or not isinstance(arguments, str):
        return arguments if shown == words else shown
    # ``shlex.join`` would quote the mask.
    return " ".join(MASK.join(map(_quote_text, word.split(MASK))) for word in shown)


def mask_words(words: Sequence[str]) -> list[str]:
    """The same of words."""
    return [shown for _, _, shown in judge_words(words)]


def masked_flags(arguments: Arguments) -> list[str]:
    """The flags whose values are not shown, each once; of a URL without a flag, nothing but
    ``a URL``.
    """
    hidden = (
        flag or "a URL" for flag, word, shown in judge_words(_words(arguments)) if shown != word
    )
    return list(dict.fromkeys(hidden))


def flags_with_masks(arguments: Arguments) -> list[str]:
    """The flags that have a mask in the place of a value."""
    words = _words(arguments)
    return list(
        dict.fromkeys(
            flag or "a URL" for flag, word, _ in judge_words(words) if has_masked_value(flag, word)
        )
    )


def fill_masked_arguments(arguments: Arguments, stored: Arguments) -> Arguments:
    """``arguments`` with the stored values in the place of masks, in the order in which they
    stand there.
    """
    words = _words(arguments)
    known: dict[tuple[str, str], list[str]] = {}
    for flag, word, shown in judge_words(_words(stored)):
        if shown != word:
            known.setdefault((flag, shown), []).append(word)
    filled = []
    for flag, word, _ in judge_words(words):
        values = known.get((flag, word), []) if has_masked_value(flag, word) else []
        filled.append(values.pop(0) if values else word)
    return arguments if filled == words else filled


def variable_of(flag: str) -> str:
    """A variable for the value of a flag: ``--db-password`` becomes ``DB_PASSWORD``."""
    return re.sub(r"\W+", "_", flag.strip("-")).upper()


def judge_words(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(flag, word, the word as it is shown) of each word; the flag is empty where there is none."""
    flag = ""
    for word in words:
        if (assigned := _ASSIGNMENT.fullmatch(word)) is not None:
            name, value = assigned.groups()
            yield name, word, f"{name}={masked_value(variable_of(name), value)}"
            flag = ""
        elif _FLAG.fullmatch(word):
            yield "", word, word
            flag = word
        else:
            yield flag, word, masked_value(variable_of(flag), word)
            flag = ""


def has_masked_value(flag: str, word: str) -> bool:
    """Whether a word, with the flag that it belongs to, has a mask in the place of a value."""
    value = word.removeprefix(f"{flag}=") if flag else word
    return has_mask(variable_of(flag), value)


def _quote_text(text: str) -> str:
    return shlex.quote(text) if text else ""


def _words(arguments: Arguments) -> list[str]:
    if not isinstance(arguments, str):
        return list(arguments or ())
    try:
        return shlex.split(arguments)
    except ValueError:  # not checked yet
        return arguments.split()
