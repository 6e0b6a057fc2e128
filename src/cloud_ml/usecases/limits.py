"""The quota of an organisation, as it is in force. Blocking."""

from __future__ import annotations

from cloud_ml.domain.quotas import QUOTA, Limits, QuotaSpec, resolve
from cloud_ml.domain.tenancy import SYSTEM
from cloud_ml.models.admin.quota import limit_of
from cloud_ml.settings import QuotaSettings
from cloud_ml.state.base import StateStore


def defaults_of(settings: QuotaSettings) -> QuotaSpec:
    """What the operator has set for organisations without a quota of their own."""

    def limit(name: str, resource: str) -> int | None:
        text = getattr(settings, name)
        return limit_of(f"quota.{name}", resource, text) if text else None

    def limits(kind: str) -> Limits:
        return Limits(
            cpu_millis=limit(f"{kind}_cpu", "cpu"),
            memory_bytes=limit(f"{kind}_memory", "memory"),
            gpus=limit(f"{kind}_gpu", "gpu"),
            count=limit(f"{kind}_count", "count"),
        )

    return QuotaSpec(
        train=limits("train"),
        model=limits("model"),
        dev=limits("dev"),
        storage_bytes=limit("storage", "storage"),
        points=limit("points", "points"),
    )


class QuotaLimits:
    """Looks quotas up. One read of the store each time: a quota that was set counts at once, on
    every server.
    """

    def __init__(self, store: StateStore, defaults: QuotaSpec) -> None:
        self._store = store
        self._defaults = defaults
        self._usual = resolve(QuotaSpec(), defaults)

    def __call__(self, org: str) -> QuotaSpec:
        """The organisation's quota, with the operator's values where it has none."""
        record = self._store.find(QUOTA, SYSTEM, org)
        return self._usual if record is None else resolve(record.spec, self._defaults)
