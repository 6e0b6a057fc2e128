"""Which train jobs there are. Blocking; callers in an event loop use a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event, Summary
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.models.jobs.job import JobDetails
from cloud_ml.state.base import Page, StateStore
from cloud_ml.usecases.access.identities import UNDER_ALL
from cloud_ml.usecases.jobs import members, views
from cloud_ml.usecases.jobs.finding import Filters

_ALL = Filters()
_READ_TOGETHER = 20


class JobLookup:
    """Finds train jobs, and what is known of them."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def list(
        self,
        scope: str | None,
        filters: Filters = _ALL,
        *,
        after: int | None = None,
        limit: int = 50,
    ) -> Page[Summary]:
        """A page of jobs, newest first. It may be short, or empty, and have a next one.

        Args:
            scope: Whose.
            filters: Which of them.
            after: The cursor of the page before.
            limit: At most this many.

        Raises:
            InvalidRequest: One of ``filters`` is malformed.
        """
        return self._store.list(
            TRAIN_JOB,
            org=scope,
            indexes=filters.phases(),
            match=filters.match(),
            after=after,
            limit=limit,
        )

    def details(self, lines: Sequence[Summary]) -> Mapping[str, JobDetails]:
        """The details of a page's lines by their uids; jobs that are gone by now are left out.

        A few are read at a time: the arguments of a job may be as large as a request.
        """
        found: dict[str, JobDetails] = {}
        for start in range(0, len(lines), _READ_TOGETHER):
            uids = [line.key.uid for line in lines[start : start + _READ_TOGETHER]]
            for uid, (spec, status) in self._store.documents(TRAIN_JOB, uids).items():
                found[uid] = views.details(spec, TRAIN_JOB.decode_status(status))
        return found

    def find(self, scope: str | None, name: str) -> TrainJobRecord:
        """The job of that name, else the one of that uid. Under ``None`` only uids are unique.

        Raises:
            NotFound: There is none, or it is somebody else's.
        """
        if len(name) <= 63 and common.NAME.fullmatch(name):
            record = self._store.find(TRAIN_JOB, scope, name) if scope is not None else None
            record = record or self._store.get(TRAIN_JOB, name)
            if record is not None and scope in (None, record.key.org):
                return record
        raise _absent(name, hint=UNDER_ALL if scope is None else None)

    def find_member(self, scope: str | None, name: str) -> tuple[TrainJobRecord, str | None]:
        """The job of that name, as ``find``; else the job of which it is a member, and the task.

        Raises:
            NotFound: There is neither.
        """
        try:
            return self.find(scope, name), None
        except NotFound:
            found = members.find(self._store, scope, name) if scope is not None else None
            if found is None:
                raise
            return found

    def get(self, uid: str) -> TrainJobRecord:
        """The job of that uid.

        Raises:
            NotFound: It is gone.
        """
        record = self._store.get(TRAIN_JOB, uid)
        if record is None:
            raise _absent(uid)
        return record

    def events(self, record: TrainJobRecord, *, after: int = 0) -> Sequence[Event]:
        """What was said about the job, those with ``id > after``."""
        return self._store.events(record.key.uid, after=after)


def _absent(name: str, *, hint: str | None = None) -> NotFound:
    return NotFound(f"there is no job {name[:63]}", field="job_name", value=name[:63], hint=hint)
