"""How a metric stands in a line of output: ``loss: 0.25``, ``loss=0.25``, ``"loss": 0.25``.

These patterns mean the same to RE2, which reads logs on the server, and to ``re``, which a command
on a user's machine has.
"""

from __future__ import annotations

import re

LONGEST_LINE = 8192
"""Bytes. Longer lines have no points."""
_BLANKS = r"[\t\r\f ]*"  # to re, \s is also other signs
NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
# What could go on with a number does not end it, so `1.2.3` and `12ms` are none. Nor do signs that
# group its digits: `1,234.5` and `0,25` are not read as 1 and 0. A sign that ends a sentence may
# follow.
END_OF_NUMBER = r"(?:[^\w.,'+-]|[,'][^0-9]|[.,;']*$|[.,;][\t\r\f ])"
END_OF_STEP = r"(?:[^\w,']|[,'][^0-9]|[,']?$)"
STEP = rf"(?i)\b(?:epoch|step)[\"']?{_BLANKS}[:=]?{_BLANKS}(?P<step>\d{{1,15}}){END_OF_STEP}"
"""The step of a line, if it has one."""
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")


def metric_pattern(name: str) -> str:
    """The pattern of one metric and its value."""
    words = re.escape(name)
    return (
        rf"(?i)(?:^|[^\w./@-]){words}[\"']?{_BLANKS}[:=]{_BLANKS}(?P<value>{NUMBER}){END_OF_NUMBER}"
    )


def shown_line(line: bytes) -> bytes:
    """What is seen of a line: of a progress bar that was drawn several times the last one, and no
    colours.
    """
    line = line.rstrip(b"\r\b \t")
    line = line[max(line.rfind(b"\r"), line.rfind(b"\b")) + 1 :]
    return _COLOURS.sub(b"", line)
