"""Which request something belongs to."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

current: ContextVar[str | None] = ContextVar("cloudml_request_id", default=None)
"""The id of the request that is being answered; stands in every line of the log that belongs to
it.
"""


def choose_id(offered: str | None) -> str:
    """The id that the caller offers, if it is a word of at most 64 plain characters, else a new
    one.
    """
    return offered if offered and _WELL_FORMED.fullmatch(offered) else secrets.token_hex(8)
