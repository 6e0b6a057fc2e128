"""Tokens that jobs have for the MLflow endpoint: made offline, with a key of the server.

``cmj1.<uid of the job>.<attempt>.<mac>``. The mac is over all before it, with a key that is derived
from the sealing key for this purpose alone. A token says whose job it is and nothing of its rights:
these are looked up, and end with the attempt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

PREFIX = "cmj1."
_PURPOSE = b"cloudml job token 1"
_FORM = re.compile(r"cmj1\.([A-Za-z0-9_-]{1,64})\.([1-9][0-9]{0,8})\.([A-Za-z0-9_-]{43})")


def derived_key(sealing_key: bytes) -> bytes:
    """The key that tokens of jobs are made and checked with."""
    return hmac.digest(sealing_key, _PURPOSE, hashlib.sha256)


def make_token(key: bytes, job_uid: str, attempt: int) -> str:
    """The token of an attempt of a job."""
    text = f"{PREFIX}{job_uid}.{attempt}"
    return f"{text}.{_mac(key, text)}"


@dataclass(frozen=True, slots=True)
class JobToken:
    """What a token says, read but not yet believed."""

    job_uid: str
    attempt: int
    mac: str

    @classmethod
    def read(cls, text: str) -> JobToken | None:
        """The parts of a token; ``None`` for what is none."""
        found = _FORM.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), found[3])

    def made_with(self, key: bytes) -> bool:
        """Whether its maker held the key."""
        expected = _mac(key, f"{PREFIX}{self.job_uid}.{self.attempt}")
        return hmac.compare_digest(expected, self.mac)


def _mac(key: bytes, text: str) -> str:
    digest = hmac.digest(key, text.encode("ascii"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
