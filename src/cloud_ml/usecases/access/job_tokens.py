"""Tokens of jobs: made for each attempt, and believed while it lives. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cloud_ml.auth import job_tokens
from cloud_ml.auth.job_tokens import JobToken
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.scopes import Scope
from cloud_ml.domain.studies.optuna_records import STUDY_LABEL_OF_JOBS
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM, USER
from cloud_ml.errors import Unauthenticated
from cloud_ml.settings import KeySettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.access.identities import Identities, Identity, JobAttempt, usable
from cloud_ml.usecases.clock import Clock

SCOPES = (Scope("runs", "write"), Scope("studies", "write"))
"""What a job may do with its token: log to runs of its organisation, and read them; and use studies
of its own by Optuna's client. No other operation is at the endpoint of jobs.
"""
_CACHE_LIMIT = 10_000


class JobTokens:
    """Makes tokens of attempts, and finds whose they are.

    A token does what the owner of the job may do with runs. It ends with its attempt, and with the
    user and the organisation. What was looked up is kept for ``keys.staleness_s``.

    Args:
        store: Has the jobs and their owners.
        identities: Knows the organisations.
        keys: The sealing keys of the server, the one that seals first; none if there are none.
        clock: Tells the time.
        settings: Those of keys.
    """

    def __init__(
        self,
        store: StateStore,
        identities: Identities,
        keys: Callable[[], Sequence[bytes]],
        clock: Clock,
        settings: KeySettings,
    ) -> None:
        self._store = store
        self._identities = identities
        self._keys = keys
        self._clock = clock
        self._staleness = timedelta(seconds=settings.staleness_s)
        self._found: dict[JobToken, tuple[datetime, Identity]] = {}

    def make(self, job_uid: str, attempt: int) -> str:
        """The token of an attempt; empty if the server has no sealing key."""
        keys = self._keys()
        if not keys:
            return ""
        return job_tokens.make_token(job_tokens.derived_key(keys[0]), job_uid, attempt)

    def cached(self, sent: JobToken) -> Identity | None:
        """The holder of a token that was looked up a moment ago; never blocks."""
        entry = self._found.get(sent)
        return None if entry is None or entry[0] <= self._clock() else entry[1]

    def find(self, sent: JobToken) -> Identity:
        """The owner of the job, as the caller that the job is.

        Raises:
            Unauthenticated: It is no token of this server, or its attempt is over.
        """
        if (known := self.cached(sent)) is not None:
            return known
        if not any(sent.made_with(job_tokens.derived_key(key)) for key in self._keys()):
            raise refused("The token of the job is not valid.")
        found = self._look_up(sent)
        if len(self._found) >= _CACHE_LIMIT:
            self._found.clear()
        self._found[sent] = (self._clock() + self._staleness, found)
        return found

    def _look_up(self, sent: JobToken) -> Identity:
        job = self._store.get(TRAIN_JOB, sent.job_uid)
        if job is None or not job.status.phase.active or job.status.attempt != sent.attempt:
            raise refused("The attempt that this token belongs to is over.")
        user = self._store.find(USER, job.key.org, job.owner)
        organisation = self._store.find(ORGANISATION, SYSTEM, job.key.org)
        if user is None or organisation is None or not (usable(user) and usable(organisation)):
            raise refused("The owner of the job may not use this server any more.")
        return Identity(
            access_key="",
            secret="",
            organisation=self._identities.organisation(job.key.org),
            user=job.owner,
            role=user.spec.role,
            fds_signatures=False,
            token=f"job-{job.key.uid}",
            scopes=SCOPES,
            job=JobAttempt(
                job.key.uid,
                sent.attempt,
                (job.spec.submitted.labels or {}).get(STUDY_LABEL_OF_JOBS, ""),
            ),
        )


def refused(message: str) -> Unauthenticated:
    """The refusal of a token."""
    return Unauthenticated(
        message,
        field="Authorization",
        allowed="the token of a job that runs, in MLFLOW_TRACKING_TOKEN",
    )
