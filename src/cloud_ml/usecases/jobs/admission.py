"""May this job be taken? Pure: a spec and what the server offers in, a spec or a refusal out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.quotas import Excess, QuotaSpec
from cloud_ml.domain.services.spec import ReplicaSpec
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.domain.workloads.worlds import at_least
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, QuotaExceeded
from cloud_ml.models import common
from cloud_ml.models.jobs.train_job import RoleSpec, TrainJob
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.jobs.trainer_uris import parse_trainer_uri

NOT_OFFERED: Mapping[str, str] = {
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
    "hyperparameters": "tuning by a field of a job; make a study: cloudml hp submit",
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
    if job.tensorboard_logdir:
        common.parse_object_uri("tensorboard_logdir", job.tensorboard_logdir)
    _check_gpu_types(job)
    check_reserved_labels(job.labels)
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
        gpu_missing: ``refuse`` a job that wants a GPU where there is none, or ``ignore`` the request.

    Raises:
        InvalidRequest: Names the field, its value and what is allowed.
    """
    submitted = spec.submitted
    found = _excesses(spec.workload, capacity, submitted.memory_limit)
    lacks_gpus = (quotas.requested_amounts(at_least(spec.workload)).gpus or 0) > capacity.gpus
    if lacks_gpus and (capacity.gpus or gpu_missing != "ignore"):
        found.append(_too_many_gpus(submitted.gpu_limit, capacity))
    _refuse_all(found)
    if not lacks_gpus:
        return Admitted(spec)
    roles = tuple(
        replace(role, resources=replace(role.resources, gpus=0)) for role in spec.workload.roles
    )
    note = f"gpu_limit {submitted.gpu_limit} was ignored: there is no GPU on this server"
    return Admitted(spec.with_workload(replace(spec.workload, roles=roles)), (note,))


def check_room(workload: WorkloadSpec, capacity: Capacity, memory: str | None = None) -> None:
    """Refuse what has more memory or cores than there are, and would wait for ever.

    Args:
        workload: What is asked for.
        capacity: What the engine has in all.
        memory: The memory of one task as it was written, for the error.

    Raises:
        InvalidRequest: Names the field, its value and what is allowed.
    """
    _refuse_all(_excesses(workload, capacity, memory))


def _refuse_all(found: Sequence[InvalidRequest]) -> None:
    """Raise what was found as one error, which names all fields and is about the first of them."""
    if not found:
        return
    if len(found) == 1:
        raise found[0]
    raise InvalidRequest(
        "; ".join(one.message for one in found),
        field=found[0].field,
        value=found[0].value,
        allowed="; ".join(f"{one.field}: {one.allowed}" for one in found),
        hint=next((one.hint for one in found if one.hint), None),
    )


def _excesses(
    workload: WorkloadSpec, capacity: Capacity, memory: str | None
) -> list[InvalidRequest]:
    """What the workload has more of than there is: cores and memory."""
    several, least = workload.task_count > 1, at_least(workload)
    found = _excess_of_cores(least, capacity, several=several)
    size = quotas.together([quotas.requested_amounts(least)]).memory_bytes or 0
    if size > capacity.memory_bytes:
        most = common.format_memory(capacity.memory_bytes)
        one = memory or common.format_memory(size)
        memory_text = _memory_of_tasks(least) if several else one
        found.append(_too_much("memory_limit", memory_text, f"at most {most}"))
    return found


def _too_many_gpus(gpu_limit: object, capacity: Capacity) -> InvalidRequest:
    if capacity.gpus:
        return _too_much("gpu_limit", gpu_limit, f"at most {capacity.gpus} GPUs")
    return InvalidRequest(
        f"gpu_limit is {gpu_limit}, but no GPU was found on this server",
        field="gpu_limit",
        value=gpu_limit,
        allowed="0, or leave it out",
        hint="the operator may set gpu_missing = ignore to run such jobs without one",
    )


def _excess_of_cores(
    workload: WorkloadSpec, capacity: Capacity, *, several: bool
) -> list[InvalidRequest]:
    """Each task alone must have room. Tasks of one job may share the processors, as far as the
    operator allows.
    """
    cpus = [role.resources.cpu_millis or 0 for role in workload.roles]
    counts = [workload.at_once(role) for role in workload.roles]
    together = sum(count * cpu for count, cpu in zip(counts, cpus, strict=True))
    promised = capacity.cpu_millis * max(1.0, capacity.cpu_overcommit)
    if max(cpus) > capacity.cpu_millis or (capacity.cpu_overcommit and together > promised):
        alone = not several or max(cpus) > capacity.cpu_millis
        cores = f"{max(cpus) / 1000:g}" if alone else f"{together / 1000:g} for all tasks"
        most = f"at most {capacity.cpu_millis / 1000:g} cores"
        return [_too_much("cpu_limit", cores, most)]
    return []


def with_parallel(workload: WorkloadSpec, capacity: Capacity, most: int) -> WorkloadSpec:
    """The workload with as many tasks at a time as the machine has room for, if it is an array that
    does not say how many.

    A task without a limit of processors counts as one of them.

    Args:
        workload: What is asked for.
        capacity: What the engine has in all.
        most: How many tasks of a job may live at a time.
    """
    if not workload.is_array or workload.parallel is not None:
        return workload
    one = workload.roles[0].resources
    room = [most, capacity.cpu_millis // (one.charged_cpu_millis or 1000)]
    if one.memory_bytes:
        room.append(capacity.memory_bytes // one.memory_bytes)
    if one.gpus and capacity.gpus:
        room.append(capacity.gpus // one.gpus)
    return replace(workload, parallel=max(1, min(room)))


def check_quota(spec: JobSpec, quota: QuotaSpec) -> None:
    """Refuse what the organisation's quota could never hold, even if nothing else ran.

    Raises:
        QuotaExceeded: Names the field, its value and what is allowed.
    """
    workload = at_least(spec.workload)
    if not (found := quotas.excess(quota, quotas.requested_amounts(workload))):
        return
    first = found[0]
    why = "; ".join(one.sentence() for one in found)
    if spec.workload.task_count > 1 and any(one.field == "memory_limit" for one in found):
        why += f" (memory_limit: {_memory_of_tasks(workload)})"
    raise QuotaExceeded(
        f"the job can never start: {why}",
        field=first.field,
        value=getattr(spec.submitted, first.field),
        allowed=_allowed_by(found),
        hint=_advise_more(found, "jobs"),
    )


def _advise_more(found: Sequence[Excess], kind: str) -> str:
    """The command that raises the limits. Owners apply for some limits only."""
    if all(one.can_be_applied_for for one in found):
        options = " ".join(dict.fromkeys(one.option for one in found))
        return (
            "see 'cloudml quota list'; an owner may apply for more with "
            f"'cloudml quota update -t {kind} {options}'"
        )
    commands: dict[str, dict[str, None]] = {}
    for one in found:
        commands.setdefault("total" if one.of_all_work else kind, {})[one.option] = None
    raises = " and ".join(
        f"'cloudml admin quota set ORG -t {type_} {' '.join(options)}'"
        for type_, options in commands.items()
    )
    return f"see 'cloudml quota list'; an administrator may raise it with {raises}"


def _allowed_by(found: Sequence[Excess]) -> str:
    """What the quota would take, for each field that has too much; without its name if there is
    one.
    """
    tightest = {
        field: min((one for one in found if one.field == field), key=lambda one: one.limit)
        for field in dict.fromkeys(one.field for one in found)
    }
    if len(tightest) == 1:
        return next(iter(tightest.values())).allowed
    return "; ".join(f"{field}: {one.allowed}" for field, one in tightest.items())


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
    if found := quotas.excess(quota, quotas.requested_amounts(replica.workload), kind="model"):
        first = found[0]
        raise QuotaExceeded(
            "no replica can ever start: " + "; ".join(one.sentence() for one in found),
            field=first.field,
            value=getattr(submitted, first.field),
            allowed=_allowed_by(found),
            hint=_advise_more(found, "models"),
        )
    most = quota.model.count
    if most not in (None, quotas.UNLIMITED) and services >= (most or 0):
        raise QuotaExceeded(
            f"the quota of model services: {services} of {most} are there", field="model_name",
            allowed=f"at most {most}; stop or delete another one",
            hint="see 'cloudml quota list'; an administrator may raise it with "
            "'cloudml admin quota set ORG -t models --count COUNT'",
        )  # fmt: skip


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


@dataclass(frozen=True)
class TaskLimits:
    """How many tasks a job may have: an array ``per_array``, of which ``at_once`` live at a time,
    and any other job ``per_job``, with so many ``ports`` together.
    """

    per_job: int = 64
    per_array: int = 1000
    at_once: int = 64
    ports: int = 10_000


def check_tasks(spec: JobSpec, limits: TaskLimits, refusal: str) -> None:
    """Refuse a job of more tasks than a job may have, or whose tasks would not find each other.

    Args:
        spec: What is asked for.
        limits: How many tasks it may have.
        refusal: Why tasks do not find each other here; empty if they do.

    Raises:
        InvalidRequest: Names the field, its value and what is allowed.
    """
    workload, job = spec.workload, spec.submitted
    count = workload.task_count
    if workload.is_array:
        _check_array(spec, limits)
        return
    if count == 1:
        return
    field = next((name for name in _COUNTS if getattr(job, name)), "worker_count")
    if count > (most := limits.per_job):
        raise InvalidRequest(
            f"{field} makes {count} tasks, and a job may have {most}",
            field=field,
            value=count,
            allowed=f"at most {most} tasks together",
            hint="the operator's settings are engine.tasks_per_job and engine.ports",
        )
    if workload.port_count > limits.ports:
        raise InvalidRequest(
            f"{field} makes {count} tasks that need {workload.port_count} ports, and there are "
            f"{limits.ports}",
            field=field,
            value=count,
            allowed=f"at most {limits.ports} ports together",
            hint="the operator's setting is engine.ports",
        )
    if refusal:
        raise InvalidRequest(
            f"{field} makes {count} tasks, but {refusal}",
            field=field,
            value=count,
            allowed="a job of one task",
        )


def _check_array(spec: JobSpec, limits: TaskLimits) -> None:
    workload, array = spec.workload, spec.submitted.array
    if workload.task_count > (most := limits.per_array):
        raise InvalidRequest(
            f"array has {workload.task_count} tasks, and an array may have {most}",
            field="array",
            value=array,
            allowed=f"at most {most} tasks",
            hint="the operator's setting is engine.tasks_per_array",
        )
    if (live := workload.at_once(workload.roles[0])) > (most := limits.at_once):
        raise InvalidRequest(
            f"array runs {live} tasks at a time, and a job may run {most}",
            field="array",
            value=array,
            allowed=f"at most {most} tasks at a time, as in %{most}",
            hint="the operator's setting is engine.tasks_per_job",
        )


_COUNTS = ("elastic", "cluster_spec", "worker_count", "ps_count", "worker_spec", "ps_spec")


def _check_gpu_types(job: TrainJob) -> None:
    """As for the job itself: there is no choice among types."""
    roles = {f"cluster_spec.{name}": role for name, role in (job.cluster_spec or {}).items()}
    singles = {f"{name}_spec": getattr(job, f"{name}_spec") for name in ("master", "worker", "ps")}
    for path, role in (roles | singles).items():
        if role is not None and role.gpu_type:
            raise InvalidRequest(
                f"{path}.gpu_type is set, but this server does not offer {NOT_OFFERED['gpu_type']}",
                field=f"{path}.gpu_type",
                value=role.gpu_type,
                allowed="leave it out",
            )


def _memory_of_tasks(workload: WorkloadSpec) -> str:
    """Such as ``2 × 300M + 3 × 600M = 2.34G``."""
    known = [
        (workload.at_once(role), role.resources.memory_bytes)
        for role in workload.roles
        if role.resources.memory_bytes
    ]
    terms = [f"{count} × {common.format_memory(size)}" for count, size in known]
    return (
        f"{' + '.join(terms)} = {common.format_memory(sum(count * size for count, size in known))}"
    )


def _too_much(field: str, value: object, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} is {value}, more than this server has: {allowed}",
        field=field,
        value=value,
        allowed=allowed,
    )
