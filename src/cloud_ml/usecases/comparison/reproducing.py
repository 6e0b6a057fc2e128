"""Runs a job again from its record, and says whether it gave the same. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from cloud_ml.domain.comparison.inputs import InputManifest, changed_objects, manifest_of
from cloud_ml.domain.comparison.rerun import moved_uris, rerun_of
from cloud_ml.domain.comparison.verdicts import RunResult, SeriesKey, judge, sentence
from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord, label_tag
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import CloudMlError, Conflict, NotFound
from cloud_ml.models import common
from cloud_ml.models.common import parse_object_uri
from cloud_ml.models.jobs.clone import REPRODUCES_LABEL
from cloud_ml.models.jobs.reproduction import Reproduction
from cloud_ml.models.tracking.metrics import to_wire
from cloud_ml.objects.base import ObjectStore
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.state.metrics import MetricStore, PointRange
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.comparison.comparing import Comparisons, Subject
from cloud_ml.usecases.comparison.inputs import (
    InputManifests,
    is_in,
    mounted_uri,
    written_uris,
)
from cloud_ml.usecases.jobs.outputs import folder_of
from cloud_ml.usecases.jobs.train_jobs import TrainJobs

_MOST_SERIES, _MOST_POINTS = 200, 100_000
_MOST_SHOWN, _MOST_HEADS, _MOST_COPIES = 10, 1000, 20


class StoredSeries(Mapping[SeriesKey, Sequence[Point]]):
    """The points of a run's series, each read when it is looked at: a run may have ten million.

    Args:
        metrics: Keeps them.
        numbers: Those of the series in the store.
    """

    def __init__(self, metrics: MetricStore, numbers: Mapping[SeriesKey, int]) -> None:
        self._metrics = metrics
        self._numbers = numbers

    def __getitem__(self, key: SeriesKey) -> Sequence[Point]:
        return self._metrics.points(self._numbers[key], PointRange(most=_MOST_POINTS))

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[SeriesKey]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class Reproductions:
    """Repeats jobs and compares what they gave."""

    def __init__(
        self,
        store: StateStore,
        objects: ObjectStore,
        jobs: TrainJobs,
        comparisons: Comparisons,
        manifests: InputManifests,
    ) -> None:
        self._store = store
        self._objects = objects
        self._jobs = jobs
        self._comparisons = comparisons
        self._manifests = manifests

    def begin(
        self,
        caller: Identity,
        name: str,
        new_name: str,
        capacity: Capacity,
        *,
        idempotency_key: str | None = None,
        once: Once | None = None,
    ) -> TrainJobRecord:
        """Submit a job that does again what one of the caller's organisation did.

        Raises:
            NotFound: There is no such job.
            Conflict: It has not ended.
            InvalidRequest, Forbidden, QuotaExceeded, AlreadyExists: As for a submission.
        """
        common.check_name("job_name", new_name)
        job = self._jobs.find(caller.org, name)
        _check_ended(job)
        again = rerun_of(job, new_name)
        return self._jobs.submit(
            caller, again, capacity, idempotency_key=idempotency_key, once=once
        )

    def verdict(
        self,
        org: str,
        name: str,
        again: str,
        *,
        once_more: str | None = None,
        tolerance: float = 1e-6,
        metrics: Collection[str] = (),
        stop: Callable[[], bool] = lambda: False,
    ) -> Reproduction:
        """Whether ``again`` gave what the job ``name`` gave; ``once_more`` ran after it.

        Raises:
            NotFound: There is no such job.
            Conflict: One of them has not ended.
            InvalidRequest: The tolerance is no positive number.
        """
        if not 0 <= tolerance < 1e6:
            raise common.refuse("tolerance", tolerance, "a number from 0 to 1000000")
        first, second = self._comparisons.subject(org, name), self._comparisons.subject(org, again)
        job, copy = _job_of(first), _job_of(second)
        results = [self._result(each, job, metrics, stop) for each in (first, second)]
        third = None
        if once_more is not None:
            subject = self._comparisons.subject(org, once_more)
            _job_of(subject)
            third = self._result(subject, job, metrics, stop)
        changed, notes = self._find_changed_inputs(org, first, second)
        verdict, found = judge(
            results[0],
            results[1],
            changed,
            tolerance,
            ended=_ended_otherwise(job, copy),
            third=third,
        )
        return Reproduction(
            job=job.key.name,
            again=copy.key.name,
            verdict=verdict.word,
            said=sentence(verdict, found, tolerance) + _both_failed(job, copy),
            largest_difference=to_wire(found.largest),
            where=found.where,
            because=list(verdict.because),
            outputs=list(found.files[:_MOST_SHOWN]),
            series=found.series,
            files=found.compared_files,
            ask_again=verdict.ask_again,
            notes=notes,
        )

    def _result(
        self,
        subject: Subject,
        origin: TrainJobRecord,
        metrics: Collection[str],
        stop: Callable[[], bool],
    ) -> RunResult:
        job = _job_of(subject)
        found = self._store.metrics.series(subject.uid)
        chosen = [one for one in found if not metrics or one.name in metrics][:_MOST_SERIES]
        numbers = {(one.task, one.name, one.source): one.number for one in chosen}
        return RunResult(
            StoredSeries(self._store.metrics, numbers),
            self._files(job, origin, stop),
            subject.facts,
        )

    def _files(
        self, job: TrainJobRecord, origin: TrainJobRecord, stop: Callable[[], bool]
    ) -> Mapping[str, str]:
        """Digests of the outputs, and of what the job wrote to the folders that it names."""
        folders: dict[str, str] = {}
        if (kept := folder_of(job)) is not None:
            folders["outputs"] = str(kept)
        moved = moved_uris(origin, job.key.name)
        for uri, place in moved.items():
            folders[uri] = uri if job.key.uid == origin.key.uid else place
        found: dict[str, str] = {}
        for shown, uri in folders.items():
            key = parse_object_uri("uri", uri).key
            manifest = self._manifests.manifest(job.key.org, uri, stop)
            for one in manifest.listed:
                inside = one.key.removeprefix(key).lstrip("/")
                digest = one.digest if not one.digest.startswith("etag:") else f"{one.size} bytes"
                found[f"{shown}/{inside}"] = digest
        return found

    def _find_changed_inputs(
        self, org: str, first: Subject, second: Subject
    ) -> tuple[list[str], list[str]]:
        """(objects that have changed, what cannot be said)."""
        if not first.inputs:
            return [], []
        changes: list[str] = []
        job = _job_of(first)
        for uri, before in first.inputs.items():
            after = second.inputs.get(uri) or self._now(org, uri)
            if uri == mounted_uri(job.spec):
                after = self._without_own(job, before, after)
            changes += changed_objects(before, after)
        return changes, []

    def _without_own(
        self, job: TrainJobRecord, before: InputManifest, after: InputManifest
    ) -> InputManifest:
        """The bucket that a job had at ``/fds``, without what is new there because of the job, or of
        one that ran it again.
        """
        known = {one.key for one in before.listed}
        new = [one.key for one in after.listed if one.key not in known][:_MOST_HEADS]
        if not new:
            return after
        match = Match(tags=(label_tag(REPRODUCES_LABEL, job.key.uid),))
        page = self._store.list(TRAIN_JOB, org=job.key.org, match=match, limit=_MOST_COPIES)
        copies = (self._store.get(TRAIN_JOB, line.key.uid) for line in page.items)
        runs = [job, *(copy for copy in copies if copy is not None)]
        bucket = parse_object_uri("uri", after.uri).bucket
        own = {key for key in new if self._is_written_by(runs, bucket, key)}
        return manifest_of(after.uri, [one for one in after.listed if one.key not in own])

    def _is_written_by(self, jobs: Sequence[TrainJobRecord], bucket: str, key: str) -> bool:
        """Whether one of the jobs has written an object, by its folder or by the time."""
        try:
            info = self._objects.head(bucket, key)
        except CloudMlError:
            return False
        if info is None:
            return False
        for job in jobs:
            end = job.status.finished_at
            if job.created_at <= info.modified and (end is None or info.modified <= end):
                return True
        return any(is_in(f"fds://{bucket}/{key}", written_uris(job.spec)) for job in jobs)

    def _now(self, org: str, uri: str) -> InputManifest:
        try:
            return self._manifests.manifest(org, uri)
        except CloudMlError:
            return InputManifest(uri, "")


def _job_of(subject: Subject) -> TrainJobRecord:
    if subject.job is None:
        raise NotFound(f"{subject.run.row.name} is a run without a job", field="job_name")
    _check_ended(subject.job)
    return subject.job


def _check_ended(job: TrainJobRecord) -> None:
    if not job.status.phase.terminal:
        raise Conflict(
            f"{job.key.name} is {job.status.phase}; only a job that has ended can be compared with "
            "one that ran again",
            field="phase",
            hint=f"Wait for it: cloudml jobs wait {job.key.name}",
        )


def _both_failed(job: TrainJobRecord, again: TrainJobRecord) -> str:
    """Words for a verdict about two failures; empty for others. What they left may well be equal."""
    if not job.status.phase is again.status.phase is Phase.FAILED:
        return ""
    reasons = dict.fromkeys((job.status.reason, again.status.reason))
    return f"; both failed ({', then '.join(reasons)})"


def _ended_otherwise(job: TrainJobRecord, again: TrainJobRecord) -> str:
    """Why the second one ended in another way; empty if it did not."""
    if again.status.phase is job.status.phase:
        return ""
    reason, message = again.status.reason, again.status.message[:500]
    if reason == Reason.ENVIRONMENT_FAILED:
        return f"its packages cannot be installed any more: {message}"
    if reason == Reason.TRAINER_NOT_FOUND:
        return f"its code is gone: {message}"
    ended = "failed" if again.status.phase is Phase.FAILED else again.status.phase.value.lower()
    return f"it {ended} this time: {reason}: {message}"
