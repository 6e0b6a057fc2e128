"""A candidate becomes what is served, or what was served before is served again. Blocking."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from cloud_ml.domain.records import Event
from cloud_ml.domain.services.kind import MODEL_SERVICE, ServiceRecord
from cloud_ml.domain.services.releases import promote_candidate, rolled_back, rolled_back_to
from cloud_ml.domain.services.spec import Release, ServiceSpec
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.errors import Conflict
from cloud_ml.models.common import refuse
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.models.model_services import ModelServices


class Releasing:
    """Promotes and rolls back; ``scope`` is as in ``ModelServices``.

    With ``release``, the number of the one that is meant, what is so already is success.
    """

    def __init__(
        self, store: StateStore, services: ModelServices, clock: Clock, *, keep: int = 5
    ) -> None:
        self._store = store
        self._services = services
        self._clock = clock
        self._keep = keep

    def promote(
        self,
        scope: str | None,
        name: tuple[str, str],
        caller: Identity,
        *,
        release: int | None = None,
        once: Once | None = None,
    ) -> ServiceRecord:
        """The candidate is what is served from now on; rolled out one replica after the other.

        Raises:
            NotFound: There is no such service.
            Conflict: There is no candidate, it is another one, or it does not answer.
        """
        record = self._find_service(scope, name, caller)
        served = record.status.serving_template
        try:
            after = promote_candidate(record.spec, served=served, keep=self._keep, release=release)
        except Conflict as error:
            self._refuse(record, error, once)
        if after != record.spec:
            _check_answers(record)
        message = (
            f"release {after.template} is served instead of {record.spec.template}, "
            f"promoted by {caller.user}"
        )

        def change(spec: ServiceSpec) -> ServiceSpec:
            # Promote only the release that was checked above: there may be another candidate by
            # now.
            return promote_candidate(spec, served=served, keep=self._keep, release=after.template)

        return self._change_service(record, change, "Promoted", message, once)

    def rollback(
        self,
        scope: str | None,
        name: tuple[str, str],
        caller: Identity,
        *,
        release: int | None = None,
        to: int | None = None,
        once: Once | None = None,
    ) -> ServiceRecord:
        """The candidate goes, and all calls go to what is served; without one, the release before
        is served again. With ``to``, the release of that number is served.

        Raises:
            NotFound: There is no such service.
            Conflict: There is no candidate and no earlier release, or not the one that is named.
        """
        record = self._find_service(scope, name, caller)
        if to is not None:
            return self._back_to(record, to, caller, once)
        try:
            after = rolled_back(record.spec, release=release)
        except Conflict as error:
            self._refuse(record, error, once)
        goes = _going(record.spec)
        message = f"release {goes} goes, release {after.template} is served; by {caller.user}"

        def change(spec: ServiceSpec) -> ServiceSpec:
            return rolled_back(spec, release=goes if release is None else release)

        return self._change_service(record, change, "RolledBack", message, once)

    def _back_to(
        self, record: ServiceRecord, release: int, caller: Identity, once: Once | None
    ) -> ServiceRecord:
        try:
            rolled_back_to(record.spec, release)
        except Conflict as error:
            self._refuse(record, error, once)
        message = f"release {release} is served; by {caller.user}"
        return self._change_service(
            record, lambda spec: rolled_back_to(spec, release), "RolledBack", message, once
        )

    def _find_service(
        self, scope: str | None, name: tuple[str, str], caller: Identity
    ) -> ServiceRecord:
        permit(caller, Operation.RUN_JOBS)
        return self._services.find(scope, *name)

    def _refuse(self, record: ServiceRecord, error: Conflict, once: Once | None) -> NoReturn:
        """Refuse a request. One that is sent again, and was carried out before, is told so instead.

        Raises:
            Conflict: ``error``.
            SeenBefore: The request was carried out, and that is why nothing is left to decide.
        """

        def change(_spec: ServiceSpec) -> ServiceSpec:
            raise error

        # The store checks ``once`` before it calls ``change``. As ``change`` raises, nothing is
        # written.
        self._store.change_spec(MODEL_SERVICE, record.key.uid, change, now=self._clock(), once=once)
        raise error

    def _change_service(
        self,
        record: ServiceRecord,
        change: Callable[[ServiceSpec], ServiceSpec],
        reason: str,
        message: str,
        once: Once | None,
    ) -> ServiceRecord:
        now = self._clock()
        events = [Event(now, reason, message)]
        return self._store.change_spec(
            MODEL_SERVICE, record.key.uid, change, now=now, events=events, once=once
        )


def find_release(record: ServiceRecord, release: str) -> Release:
    """The release that a word means: ``stable`` (or nothing), ``candidate``, or the number of one
    of them.

    Raises:
        InvalidRequest: There is none of that name now.
    """
    spec, tried = record.spec, record.spec.candidate
    if release in ("", "stable", str(spec.template)):
        return spec.made_of(spec.template)
    if tried is not None and release in ("candidate", str(tried.template)):
        return spec.made_of(tried.template)
    there = [
        "stable",
        str(spec.template),
        *(["candidate", str(tried.template)] if tried is not None else []),
    ]
    raise refuse("release", release[:40], ", ".join(there))


def _going(spec: ServiceSpec) -> int:
    return spec.candidate.template if spec.candidate is not None else spec.template


def _check_answers(record: ServiceRecord) -> None:
    """Refuse to serve what has not answered.

    Raises:
        Conflict: The candidate does not answer, or the service is not to.
    """
    tried, stands = record.spec.candidate, record.status.candidate
    if tried is None:
        return
    if (
        record.spec.desired is Desired.RUN
        and stands is not None
        and stands.template == tried.template
        and stands.ready
    ):
        return
    phase = stands.phase if stands is not None else record.status.phase
    why = f": {stands.message}" if stands is not None and stands.message else ""
    raise Conflict(
        f"release {tried.template}, the candidate of {record.key.name}, does not answer; it "
        f"is {phase}{why}",
        field="release",
        value=tried.template,
        allowed="a candidate that answers",
        hint="update it again, or roll it back",
    )
