"""A job that exports a model, and the service that it asked for: ``model_name`` and
``model_version``. Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cloud_ml.domain.jobs.kind import TrainJobRecord, exports
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.quotas import QuotaOf, QuotaSpec
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import MODEL_SERVICE, name_of
from cloud_ml.domain.services.releases import change_fields, retry_release
from cloud_ml.domain.services.status import ServiceStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits
from cloud_ml.errors import AlreadyExists, CloudMlError, InvalidRequest, NotFound, TryAgain
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.state.base import StateStore
from cloud_ml.usecases import usage
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.jobs import admission
from cloud_ml.usecases.models.redeployment import has_failed

DEPLOYED, NOT_DEPLOYED = "Deployed", "NotDeployed"
"""What a job's events say of its service."""


def service_of(spec: JobSpec) -> ModelService | None:
    """The service that a job asks for; ``None`` if it asks for none.

    Raises:
        InvalidRequest: It says only half of the name, or not where it exports to.
    """
    job = spec.submitted
    if not job.model_name and not job.model_version:
        return None
    for field, other in (("model_name", "model_version"), ("model_version", "model_name")):
        if not getattr(job, field):
            raise InvalidRequest(
                f"{field} is missing beside {other}", field=field, allowed="both or neither"
            )
    found = exports(spec)
    if not found:
        raise InvalidRequest(
            "model_export_path is missing: it says where the job leaves the model that is to "
            "be served",
            field="model_export_path",
            allowed="fds://bucket/folder, or an argument such as --model_path=fds://bucket/folder",
        )
    folder, _, last = found[0].rpartition("/")
    assert job.model_name
    assert job.model_version
    # A path that ends in a number is one version; a service takes the folder of all versions.
    return ModelService(job.model_name, job.model_version, folder if last.isdigit() else found[0])


class Deployments:
    """Makes the services of jobs that have succeeded, each once, however often it is asked to."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        *,
        keep: int = 5,
        quota_of: QuotaOf = lambda _: QuotaSpec(),
        defaults: DefaultLimits = NO_DEFAULT_LIMITS,
        refer: Callable[[str, Sequence[str]], str] = lambda _org, _uris: "",
    ) -> None:
        self._refer = refer
        self._defaults = defaults
        self._store = store
        self._quota_of = quota_of
        self._keep = keep
        self._clock = clock

    def deploy(self, job: TrainJobRecord) -> Event | None:
        """Serve what a job exported; returns what is to be said on the job, ``None`` where it asked
        for no service.

        Where a service of that name and version is there already, it has its model from the job's
        folder from now on.

        Raises:
            TryAgain: The store does not answer at present.
        """
        try:
            if (service := service_of(job.spec)) is None:
                return None
            self._create_or_change(job, service)
        except TryAgain:
            raise
        except CloudMlError as error:
            what = f"{job.spec.submitted.model_name} {job.spec.submitted.model_version}"
            return Event(
                self._clock(),
                NOT_DEPLOYED,
                f"{what} is not served: {error.message}",
                EventType.WARNING,
            )
        what = f"{service.model_name} {service.model_version}"
        return Event(self._clock(), DEPLOYED, f"{what} serves {service.model_uri}")

    def _create_or_change(self, job: TrainJobRecord, service: ModelService) -> None:
        now, name = self._clock(), name_of(service.model_name, service.model_version)
        spec = specs.from_wire(service)
        self._check_quota(job.key.org, name, spec)
        self._refer(job.key.org, [service.model_uri])
        try:
            self._store.create(
                MODEL_SERVICE,
                org=job.key.org,
                name=name,
                owner=job.owner,
                spec=spec,
                status=ServiceStatus(),
                now=now,
                events=[
                    Event(
                        now,
                        Reason.SUBMITTED,
                        f"created by job {job.key.name}, which exported the model",
                    )
                ],
                idempotency_key=f"job {job.key.uid}",
            )
        except AlreadyExists:
            standing = self._store.find(MODEL_SERVICE, job.key.org, name)
            if standing is None:
                raise NotFound(
                    f"{name} was deleted just now", field="model_name", value=name
                ) from None
            failed, served = has_failed(standing), standing.status.serving_template
            if standing.spec.submitted.model_uri == service.model_uri and failed is None:
                return  # its replicas find the new version by themselves

            def change(spec: specs.ServiceSpec) -> specs.ServiceSpec:
                after = change_fields(
                    spec, {"model_uri": service.model_uri}, served=served, keep=self._keep
                )
                return after if failed is None else retry_release(after, failed)

            self._store.change_spec(
                MODEL_SERVICE,
                standing.key.uid,
                change,
                now=now,
                events=[
                    Event(
                        now,
                        "Updated",
                        f"model_uri changed by job {job.key.name}, which exported the model",
                    )
                ],
            )

    def _check_quota(self, org: str, name: str, spec: specs.ServiceSpec) -> None:
        """Refuse a service that its organisation could not make itself. One that is there already
        stays.

        Raises:
            QuotaExceeded: The quota has no room for it.
        """
        standing = self._store.find(MODEL_SERVICE, org, name)
        if standing is None or has_failed(standing) is not None:  # one that failed is not counted
            replica = specs.replica(spec.made_of(spec.template)).with_defaults(self._defaults)
            admission.check_service_quota(
                replica, spec.submitted, self._quota_of(org), len(usage.services(self._store, org))
            )
