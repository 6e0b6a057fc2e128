"""What a new or changed model service is checked for: features, buckets, quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.quotas import Amounts, Excess, QuotaOf
from cloud_ml.domain.services import spec as specs
from cloud_ml.domain.services.kind import (
    REPLICA,
    ServiceRecord,
)
from cloud_ml.domain.services.spec import ServiceSpec
from cloud_ml.domain.workloads.spec import (
    DefaultLimits,
)
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.state.base import StateStore
from cloud_ml.usecases import usage
from cloud_ml.usecases.jobs import admission
from cloud_ml.usecases.jobs.bucket_uris import suggest_buckets
from cloud_ml.usecases.storage.objects import Storage

_EVERYTHING = Amounts(1 << 62, 1 << 62, 1 << 62, 1 << 62)
NOT_OFFERED = {
    "docker_image": "images of one's own",
    "docker_command": "images of one's own",
    "node_selector_key": "node selectors",
    "node_selector_value": "node selectors",
    "use_seldon": "Seldon",
    "run_class_name": "Seldon",
}
"""What a service may say and this server cannot do. Refused, for a user would wait for it in
vain.
"""


class ServiceChecks:
    """Refuses services that this server could not run."""

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        *,
        quota_of: QuotaOf,
        defaults: DefaultLimits,
        longest_call_s: float,
        refer: Callable[[str, Sequence[str]], str],
    ) -> None:
        self._store = store
        self._storage = storage
        self._quota_of = quota_of
        self._defaults = defaults
        self._longest_call_s = longest_call_s
        self._refer = refer

    def refer_to(self, org: str, service: ModelService) -> None:
        """Have a checkpoint that is to be served kept by its job.

        Raises:
            InvalidRequest: It is being removed.
        """
        if self._refer(org, [service.model_uri]):
            raise InvalidRequest(
                f"model_uri is {service.model_uri[:300]}, a checkpoint that is being removed",
                field="model_uri",
                value=service.model_uri[:1000],
                allowed="a newer one: cloudml jobs checkpoints JOB",
            )

    def excess_of_another(self, record: ServiceRecord, after: ServiceSpec) -> Sequence[Excess]:
        """What the quota lacks for one more replica of a release; nothing where it has no
        limits.
        """
        org = record.key.org
        quota = self._quota_of(org)
        amounts = quotas.requested_amounts(self._replica(after, after.template).workload)
        if not quotas.excess(quota, amounts, _EVERYTHING, kind="model"):
            return ()
        there, elsewhere = (
            usage.measure_use(self._store, org, REPLICA),
            usage.measure_use(self._store, org, TRAIN_JOB),
        )
        return quotas.excess(
            quota, amounts, _amounts(there), elsewhere=_amounts(elsewhere), kind="model"
        )

    def check_quota(self, org: str, name: str, spec: ServiceSpec, *, counted: bool) -> None:
        """Refuse a service of which a replica would not have room if nothing else ran. With
        ``counted``, the number of services is limited, too.

        Raises:
            QuotaExceeded: A limit of the organisation.
        """
        others = (
            [line for line in usage.services(self._store, org) if line.key.name != name]
            if counted
            else ()
        )
        quota = self._quota_of(org)
        quota = quota if counted else replace(quota, model=replace(quota.model, count=None))
        for template in {
            spec.template,
            spec.candidate.template if spec.candidate is not None else spec.template,
        }:
            admission.check_service_quota(
                self._replica(spec, template), spec.made_of(template).submitted, quota, len(others)
            )

    def check_room(self, spec: ServiceSpec, capacity: Capacity) -> None:
        """Refuse a service whose replicas could never start here, however long they waited.

        Raises:
            InvalidRequest: A replica has more memory or cores than there are.
        """
        template = spec.template if spec.candidate is None else spec.candidate.template
        memory = spec.made_of(template).submitted.memory_limit
        admission.check_room(self._replica(spec, template).workload, capacity, memory)

    def _replica(self, spec: ServiceSpec, template: int) -> specs.ReplicaSpec:
        """A replica of a release, as it will be made."""
        return specs.replica(spec.made_of(template)).with_defaults(self._defaults)

    def check_offered(self, org: str, service: ModelService) -> None:
        """Refuse what this server does not offer, and buckets that do not exist.

        Raises:
            InvalidRequest: The first such field.
        """
        for field, feature in NOT_OFFERED.items():
            if value := getattr(service, field):
                raise InvalidRequest(
                    f"{field} is set, but this server does not offer {feature}",
                    field=field,
                    value=value if isinstance(value, str) else None,
                    allowed="leave it out",
                )
        admission.check_reserved_labels(service.labels)
        if (specs.call_timeout_s(service) or 0.0) > self._longest_call_s:
            allowed = f"at most {self._longest_call_s:g}s, the gateway.timeout_s of this server"
            raise common.refuse("call_timeout", service.call_timeout, allowed)
        uri = common.parse_object_uri("model_uri", service.model_uri)
        buckets = [("model_uri", service.model_uri, uri.bucket)]
        if service.fds_bucket:
            buckets.append(("fds_bucket", service.fds_bucket, service.fds_bucket))
        for field, value, bucket in buckets:
            if not self._storage.owns(org, bucket):
                raise InvalidRequest(
                    f"{field} is {value!r}; there is no bucket {bucket!r}",
                    field=field, value=value, allowed="a bucket of the organisation",
                    hint=suggest_buckets(self._storage, org, bucket) or None,
                )  # fmt: skip


def _amounts(used: usage.Used) -> Amounts:
    return Amounts(used.cpu_millis, used.memory_bytes, used.gpus, used.jobs)
