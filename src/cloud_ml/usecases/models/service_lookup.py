"""Which model services there are. Blocking; callers in an event loop use a thread."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.records import Event, Summary
from cloud_ml.domain.services.kind import (
    MODEL_SERVICE,
    REPLICA,
    ServiceRecord,
    name_of,
)
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.state.base import Page, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import UNDER_ALL
from cloud_ml.usecases.models.replicas import Replicas, sorted_out


class ServiceLookup:
    """Finds model services, and what is known of them."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def list(
        self,
        scope: str | None,
        *,
        model_name: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> Page[Summary]:
        """A page of services, newest first."""
        match = (
            Match(prefix=f"{common.check_name('model_name', model_name)}/")
            if model_name
            else Match()
        )
        return self._store.list(MODEL_SERVICE, org=scope, match=match, after=after, limit=limit)

    def statuses(self, lines: Sequence[Summary]) -> dict[str, ServiceStatus]:
        """How the services of a page stand, by uid; those that are gone by now are left out."""
        found = (self._store.get(MODEL_SERVICE, line.key.uid) for line in lines)
        return {one.key.uid: one.status for one in found if one is not None}

    def find(self, scope: str | None, model_name: str, version: str) -> ServiceRecord:
        """The service of that name and version.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        found = None
        if scope is not None and len(model_name) + len(version) < 200:
            found = self._store.find(MODEL_SERVICE, scope, name_of(model_name, version))
        if found is None:
            raise NotFound(
                f"there is no model service {model_name[:63]} {version[:63]}",
                field="model_name",
                value=model_name[:63],
                hint=UNDER_ALL if scope is None else None,
            )
        return found

    def replicas(self, record: ServiceRecord) -> Replicas:
        """The replicas there are, and those that have ended and of which the output is kept."""
        page = self._store.list(REPLICA, match=Match(parent=record.key.uid), limit=1000)
        found = (self._store.get(REPLICA, line.key.uid) for line in page.items)
        return sorted_out([one for one in found if one is not None])

    def events(self, record: ServiceRecord, *, after: int = 0) -> Sequence[Event]:
        """What was said about the service, those with ``id > after``."""
        return self._store.events(record.key.uid, after=after)
