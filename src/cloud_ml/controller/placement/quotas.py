"""The quotas that the line of jobs goes by: read at the start of a term, and again when one
changes.
"""

from __future__ import annotations

import logging

from cloud_ml.domain.quotas import QUOTA, QuotaSpec, resolve
from cloud_ml.domain.tenancy import SYSTEM
from cloud_ml.errors import TryAgain
from cloud_ml.state.base import StateStore

_PAGE = 1000
logger = logging.getLogger(__name__)


class QuotaBook:
    """Every organisation's quota, in memory. ``load`` and ``read`` block; asking does not."""

    def __init__(self, store: StateStore, defaults: QuotaSpec) -> None:
        self._store = store
        self._defaults = defaults
        self._usual = resolve(QuotaSpec(), defaults)
        self._known: dict[str, QuotaSpec] = {}

    def __call__(self, org: str) -> QuotaSpec:
        """The quota of an organisation."""
        return self._known.get(org, self._usual)

    def load(self) -> None:
        """Read all."""
        after: int | None = None
        while True:
            page = self._store.list(QUOTA, org=SYSTEM, after=after, limit=_PAGE)
            for line in page.items:
                try:
                    self.read(line.key.uid)
                except TryAgain:
                    raise
                # A quota that cannot be read does not affect the others. Its organisation gets
                # the default.
                except Exception:
                    logger.exception("the quota of %s cannot be read", line.key.name)
            if (after := page.next) is None:
                return

    def read(self, uid: str) -> str | None:
        """Read one again; returns whose it is, ``None`` if it is gone."""
        record = self._store.get(QUOTA, uid)
        if record is None:
            return None
        self._known[record.key.name] = resolve(record.spec, self._defaults)
        return record.key.name
