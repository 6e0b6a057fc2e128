"""Secrets as records: sealed values that only the platform opens, for jobs of the organisation."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.tenancy import StandingStatus


@dataclass(frozen=True)
class SecretSpec:
    """A value, sealed. ``size`` is the value's in bytes; ``text`` says whether it can be a
    variable.
    """

    sealed: str = field(repr=False)
    size: int
    text: bool


@dataclass(frozen=True)
class SealingKeySpec:
    """The sealing key that was made for this database, by its id. The key itself is never stored
    here.
    """

    id: str


SecretRecord = Record[SecretSpec, StandingStatus]

SECRET: Kind[SecretSpec, StandingStatus] = Kind("secret", SecretSpec, StandingStatus)
SEALING_KEY: Kind[SealingKeySpec, StandingStatus] = Kind(
    "sealing_key", SealingKeySpec, StandingStatus
)
SEALING_KEY_NAME = "sealing-key"
"""There is one such record, of the organisation ``system``."""
