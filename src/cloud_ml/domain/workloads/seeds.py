"""The seed of a job: code that uses it repeats its random numbers. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

SEED_VARIABLE = "CLOUDML_SEED"


def seed_of(uid: str, variables: Mapping[str, str]) -> str:
    """The seed that the user has set, else one of the job's own: 31 bits, the same in each attempt."""
    return variables.get(SEED_VARIABLE, _seed_from(uid))


def seed_of_repeat(seed: str, number: int) -> str:
    """The seed of a repeat of a job whose seed the user has set."""
    return _seed_from(f"{seed}/{number}")


def _seed_from(text: str) -> str:
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1)
