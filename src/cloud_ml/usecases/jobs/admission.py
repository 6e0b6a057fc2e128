"""May this job be taken? Pure: a spec and what the server offers in, a spec or a refusal out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.quotas import QuotaSpec
from cloud_ml.domain.services.spec import ReplicaSpec
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, QuotaExceeded
from cloud_ml.models import common
from cloud_ml.models.model_service import ModelService
from cloud_ml.models.train_job import RoleSpec, TrainJob
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.jobs.trainer_uris import parse_trainer_uri

NOT_OFFERED: Mapping[str, str] = {
    "ps_count": "distributed jobs",
    "worker_count": "distributed jobs",
    "cluster_spec": "distributed jobs",
    "worker_spec": "distributed jobs",
    "ps_spec": "distributed jobs",
    "docker_image": "images of one's own",
    "docker_command": "images of one's own",
    "hdfs_krb_account": "HDFS",
    "hdfs_krb_password": "HDFS",
    "hdfs_krb_keytab": "HDFS",
    "hdfs_endpoint": "HDFS",
    "volume_type": "volumes",
    "volume_path": "volumes",
    "mount_path": "volumes",
    "mount_read_only": "volumes",
    "node_selector_key": "node selectors",
    "node_selector_value": "node selectors",
    "gpu_type": "a choice among types of GPU",
    "hyperparameters": "hyper-parameter tuning",
    "tensorboard_logdir": "a TensorBoard that follows a job",
}
"""What a job may say and this server cannot do. Refused, for a user would wait for it in vain."""

RESERVED_LABEL_PREFIX = "cloudml-"

_SECRET = frozenset({"hdfs_krb_password", "hdfs_krb_keytab"})


@dataclass(frozen=True)
class Admitted:
    """A job that may be taken, and sentences about what of it was let go."""

    spec: JobSpec
    notes: tuple[str, ...] = ()


def check_offered(job: TrainJob, catalog: Catalog, trainers: TrainerSettings | None = None) -> None:
    """Refuse what this server cannot do at all.

    Raises:
        InvalidRequest: Names the field, its value and what is allowed.
    """
    for field, feature in NOT_OFFERED.items():
        if value := getattr(job, field):
            raise InvalidRequest(
                f"{field} is set, but this server does not offer {feature}",
                field=field,
                value=None if field in _SECRET or isinstance(value, (dict, RoleSpec)) else value,
                allowed="leave it out",
            )
    check_reserved_labels(job.labels)
    _check_master(job.master_spec)
    parse_trainer_uri(job.trainer_uri, trainers or TrainerSettings())
    _check_framework(job, catalog)


def check_reserved_labels(labels: Mapping[str, str] | None) -> None:
    """Refuse labels that the platform sets itself: they tie replicas to their service.

    Raises:
        InvalidRequest: Names the label.
    """
    for name in labels or {}:
        if name.startswith(RESERVED_LABEL_PREFIX):
            raise InvalidRequest(
                f"labels: {name} is reserved, because its name begins with {RESERVED_LABEL_PREFIX}",
                field="labels",
                value=name,
                allowed=f"names that do not begin with {RESERVED_LABEL_PREFIX}",
            )


def fit(spec: JobSpec, capacity: Capacity, *, gpu_missing: str) -> Admitted:
    """Refuse what could never start here, however long it waited.

    Args:
        spec: What is asked for.
        capacity: What the engine has in all.
        gpu_missing: ``refuse`` a job that wants a GPU where there is none, or ``ignore`` the wish.

    Raises:
        InvalidRequest: Names the field, its value and what is allowed.
    """
    submitted, workload = spec.submitted, spec.workload
    cpu = sum(role.replicas * (role.resources.cpu_millis or 0) for role in workload.roles)
    if cpu > capacity.cpu_millis:
        raise _too_much(
            "cpu_limit", submitted.cpu_limit, f"at most {capacity.cpu_millis / 1000:g} cores"
        )
    memory = sum(role.replicas * (role.resources.memory_bytes or 0) for role in workload.roles)
    if memory > capacity.memory_bytes:
        most = common.format_memory(capacity.memory_bytes)
        raise _too_much("memory_limit", submitted.memory_limit, f"at most {most}")
    gpus = sum(role.replicas * role.resources.gpus for role in workload.roles)
    if gpus <= capacity.gpus:
        return Admitted(spec)
    if capacity.gpus:
        raise _too_much("gpu_limit", submitted.gpu_limit, f"at most {capacity.gpus} GPUs")
    if gpu_missing != "ignore":
        raise InvalidRequest(
            f"gpu_limit is {submitted.gpu_limit}, but no GPU was found on this server",
            field="gpu_limit",
            value=submitted.gpu_limit,
            allowed="0, or leave it out",
            hint="the operator may set gpu_missing = ignore to run such jobs without one",
        )
    roles = tuple(
        replace(role, resources=replace(role.resources, gpus=0)) for role in workload.roles
    )
    note = f"gpu_limit {submitted.gpu_limit} was ignored: there is no GPU on this server"
    return Admitted(spec.with_workload(replace(workload, roles=roles)), (note,))


def check_quota(spec: JobSpec, quota: QuotaSpec) -> None:
    """Refuse what the organisation's quota could never hold, even if nothing else ran.

    Raises:
        QuotaExceeded: Names the field, its value and what is allowed.
    """
    if not (found := quotas.excess(quota, quotas.asked(spec.workload))):
        return
    first = found[0]
    raise QuotaExceeded(
        "the job can never start: " + "; ".join(one.sentence() for one in found),
        field=first.field,
        value=getattr(spec.submitted, first.field),
        allowed=first.allowed,
        hint="see 'cloudml quota list'; an owner may apply for more with 'cloudml quota update'",
    )


def check_service_quota(
    replica: ReplicaSpec, submitted: ModelService, quota: QuotaSpec, services: int
) -> None:
    """Refuse a service of which no replica could ever start, or one that is one too many.

    Args:
        replica: A replica of it.
        submitted: Its wire form, for the error.
        quota: The organisation's.
        services: How many others it has that are to answer.

    Raises:
        QuotaExceeded: Names the field, its value and what is allowed.
    """
    hint = "see 'cloudml quota list'; an owner may apply for more with 'cloudml quota update -t models'"
    if found := quotas.excess(quota, quotas.asked(replica.workload), kind="model"):
        first = found[0]
        raise QuotaExceeded(
            "no replica can ever start: " + "; ".join(one.sentence() for one in found),
            field=first.field,
            value=getattr(submitted, first.field),
            allowed=first.allowed,
            hint=hint,
        )
    most = quota.model.count
    if most not in (None, quotas.UNLIMITED) and services >= (most or 0):
        raise QuotaExceeded(
            f"the quota of model services: {services} of {most} are there", field="model_name",
            allowed=f"at most {most}; stop or delete another one", hint=hint,
        )  # fmt: skip


def _check_master(master: RoleSpec | None) -> None:
    """``master_spec = {"replica_count": 1}`` is how early clients said: one task."""
    if master is None:
        return
    if master.replicas != 1:
        raise common.refuse("master_spec.replica_count", master.replicas, "1")
    for field in ("cpu_limit", "memory_limit", "gpu_limit", "gpu_type", "task_args"):
        if value := getattr(master, field):
            raise InvalidRequest(
                f"master_spec.{field} is set, but limits per role belong to distributed jobs",
                field=f"master_spec.{field}",
                value=value,
                allowed=f"{field} of the job itself",
            )


def _check_framework(job: TrainJob, catalog: Catalog) -> None:
    if not job.framework:
        return
    version = job.framework_version or None
    listing = catalog.listing()
    if (why := catalog.refusal(job.framework, None)) is not None:
        raise InvalidRequest(
            why, field="framework", value=job.framework, allowed="one of " + ", ".join(listing)
        )
    if (why := catalog.refusal(job.framework, version)) is not None:
        versions = (
            ", ".join(listing.get(job.framework, ())) or "one of those in the list of frameworks"
        )
        raise InvalidRequest(why, field="framework_version", value=version, allowed=versions)


def _too_much(field: str, value: object, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} is {value}, more than this server has: {allowed}",
        field=field,
        value=value,
        allowed=allowed,
    )
