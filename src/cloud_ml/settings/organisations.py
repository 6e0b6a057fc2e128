"""Keys, quotas and secrets of organisations."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.settings.sizes import MIB


@dataclass(frozen=True)
class KeySettings:
    """How keys are looked up, given out and replaced."""

    staleness_s: float = 5.0
    """How long another server may go on to believe a key after it, its user or its organisation
    was disabled.
    """
    overlap_s: int = 24 * 3600
    """How long a rotated key works beside its successor, if the request does not say."""
    overlap_limit_s: int = 30 * 24 * 3600
    """Longest overlap that a request may ask for."""
    per_user: int = 20
    """Most keys of one user."""
    users_per_org: int = 1000
    """Most users of one organisation; 0 for any number."""
    tokens_per_user: int = 100
    """Most access tokens of one user. Expired tokens count for 7 days, so that their user can
    look them up.
    """
    token_lifetime_limit_s: int = 10 * 366 * 24 * 3600
    """Longest lifetime of an access token, in seconds."""


@dataclass(frozen=True)
class QuotaSettings:
    """Limits of organisations that have none of their own. Empty means no limit.

    Amounts: cores (``4``, ``0.5``), sizes (``16G``), whole numbers. What is used counts while a job
    or a model service holds a place.
    """

    train_cpu: str = ""
    """Cores of train jobs together."""
    train_memory: str = ""
    """Memory of train jobs together."""
    train_gpu: str = ""
    """GPUs of train jobs together."""
    train_count: str = ""
    """Train jobs at once."""
    model_cpu: str = ""
    """Cores of model services together."""
    model_memory: str = ""
    """Memory of model services together."""
    model_gpu: str = ""
    """GPUs of model services together."""
    model_count: str = ""
    """Model services at once."""
    dev_cpu: str = ""
    """Cores of development environments; in force once the platform offers them."""
    dev_memory: str = ""
    """Memory of development environments, likewise."""
    dev_gpu: str = ""
    """GPUs of development environments, likewise."""
    dev_count: str = ""
    """Development environments at once, likewise."""
    storage: str = ""
    """Bytes in all buckets together. Uploads beyond are refused; what jobs write counts and is
    not stopped.
    """
    points: str = ""
    """Points of metrics that all runs together keep. Points beyond are refused with an event, and
    the job goes on.
    """
    open_applications: int = 20
    """Applications for quota that an organisation may have open."""


@dataclass(frozen=True)
class SecretSettings:
    """Secrets of organisations: values that jobs get and nobody is shown."""

    key_file: str = ""
    """File with the key that opens the secrets in the database; empty means ``sealing.key`` in
    the data folder. All servers of a database need the same key. Keep a copy, but not beside the
    backups of the database.
    """
    size_limit_bytes: int = 512 * 1024
    """Largest secret. It travels as a JSON body, so ``api.body_limit_bytes`` bounds it as well."""
    per_org: int = 500
    """Secrets that one organisation may have."""
    per_job: int = 20
    """Secrets that one job or model service may ask for."""
    per_job_bytes: int = MIB
    """Size of all secrets of one job together: server and supervisor hold them in memory."""
