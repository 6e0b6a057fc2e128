"""The seed of a job: code that uses it repeats its random numbers. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

SEED_VARIABLE = "CLOUDML_SEED"


def seed_of(uid: str, variables: Mapping[str, str]) -> str:
    """The seed that the user has set, else one of the job's own: 31 bits, the same in each attempt."""
    own = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4], "big") >> 1
    return variables.get(SEED_VARIABLE, str(own))
