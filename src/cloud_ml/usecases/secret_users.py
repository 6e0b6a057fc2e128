"""Who uses a secret: jobs that are not over, and model services. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind
from cloud_ml.domain.services.kind import MODEL_SERVICE
from cloud_ml.domain.workloads.phases import UNFINISHED
from cloud_ml.models.secrets.secret import uses_of
from cloud_ml.state.base import StateStore

_MOST_NAMED = 20
_MOST_READ = 5000
"""Records of each kind that are looked at: an organisation may have queued many more."""
_PAGE = 200
_READ_TOGETHER = 10
"""Documents in memory at once: each may be as large as a request."""


def users_of(store: StateStore, org: str, name: str) -> list[str]:
    """The first of them, as people read them: ``job churn``, ``model service linear/v1``."""
    jobs = (f"job {one}" for one in _using(store, TRAIN_JOB, org, name, UNFINISHED))
    services = (f"model service {one}" for one in _using(store, MODEL_SERVICE, org, name, None))
    return [*islice(services, _MOST_NAMED), *islice(jobs, _MOST_NAMED)][:_MOST_NAMED]


def _using(
    store: StateStore, kind: Kind[Any, Any], org: str, name: str, indexes: tuple[str, ...] | None
) -> Iterator[str]:
    after: int | None = None
    for _ in range(_MOST_READ // _PAGE):
        page = store.list(kind, org=org, indexes=indexes, after=after, limit=_PAGE)
        names = {line.key.uid: line.key.name for line in page.items if not line.deleting}
        for uid, spec in _documents(store, kind, list(names)):
            if name in _secrets_of(spec):
                yield names[uid]
        if (after := page.next) is None:
            return


def _documents(
    store: StateStore, kind: Kind[Any, Any], uids: list[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for start in range(0, len(uids), _READ_TOGETHER):
        for uid, (spec, _status) in store.documents(
            kind, uids[start : start + _READ_TOGETHER]
        ).items():
            yield uid, spec


def _secrets_of(spec: Mapping[str, Any]) -> set[str]:
    """The secrets of a stored document."""
    return {use.name for use in uses_of((spec.get("submitted") or {}).get("secrets"))}
