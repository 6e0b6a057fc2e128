"""What is looked at before a job is taken: whether it can run here, and may. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloud_ml.domain.jobs import spec as job_specs
from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.jobs.restarts import check_memory_growth
from cloud_ml.domain.quotas import QuotaOf
from cloud_ml.domain.tenancy import Operation
from cloud_ml.domain.workloads.checkpoints import FOLDER
from cloud_ml.domain.workloads.failover_sentences import checkpoint_given
from cloud_ml.domain.workloads.spec import WorkloadSpec, change_workload
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.common import split_uri
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.secrets.arguments import fill_masked_arguments
from cloud_ml.models.secrets.commands import fill_masked_command
from cloud_ml.recipes.choosing import RECIPES
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.jobs import admission
from cloud_ml.usecases.jobs.bucket_uris import find_unknown_bucket, suggest_buckets
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.grace import grace_seconds
from cloud_ml.usecases.masking import commands_of, fill_masks, refuse_masks
from cloud_ml.usecases.metrics.patterns import PatternCheck, SearchCheck
from cloud_ml.usecases.models.deploying import service_of
from cloud_ml.usecases.storage.objects import Storage

_UNCHECKED = "To submit before it is saved: --no-check-uris (check_uris=False)."
_OF_DELETED_JOBS = (
    "Checkpoints of a deleted job are kept. Find them: cloudml storage ls fds://BUCKET/"
    f"{FOLDER}/, and give their URI."
)


class SubmissionChecks:
    """Makes a job of what was submitted, or says why not. Stores nothing.

    Args:
        storage: Has the buckets.
        catalog: Has the frameworks that are offered.
        checkpoints: Those that jobs have saved.
        find: A job of an organisation by its name.
        gpu_missing: ``refuse`` a job that wants a GPU where there is none, or ``ignore`` the request.
        quota_of: The quota of an organisation.
        trainers: From where trainers may be fetched.
        grace_limit_s: The longest time to end that a job may ask for.
        task_limits: How many tasks a job may have.
        gang_refusal: Why jobs of several tasks cannot run here; empty if they can.
        check_secrets: Refuses secrets that an organisation does not have.
        check_metric_patterns: Refuses patterns of metrics that are none.
        check_log_patterns: Refuses patterns of restart rules that are none.
    """

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        checkpoints: Checkpoints,
        find: Callable[[str, str], TrainJobRecord],
        *,
        gpu_missing: str,
        quota_of: QuotaOf,
        trainers: TrainerSettings | None,
        grace_limit_s: float,
        task_limits: admission.TaskLimits,
        gang_refusal: Callable[[], str],
        check_secrets: Callable[[str, Sequence[str] | None], None],
        check_metric_patterns: PatternCheck,
        check_log_patterns: SearchCheck,
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._find = find
        self._gpu_missing = gpu_missing
        self._quota_of = quota_of
        self._trainers = trainers
        self._grace_limit_s = grace_limit_s
        self._task_limits = task_limits
        self._gang_refusal = gang_refusal
        self._check_secrets = check_secrets
        self._check_metric_patterns = check_metric_patterns
        self._check_log_patterns = check_log_patterns

    def filled(self, caller: Identity, job: TrainJob, resubmit_of: str | None) -> TrainJob:
        """The job with the variables and arguments of ``resubmit_of`` in the place of masks, and
        without facts of git where the server keeps none.

        Raises:
            Forbidden: The caller's role may not submit.
            NotFound: There is no such job.
        """
        if self._trainers is not None and not self._trainers.git and job.git:
            job = replace(job, git=None)
        if resubmit_of is None:
            return job
        permit(caller, Operation.RUN_JOBS)
        stored = self._find(caller.org, resubmit_of).spec.submitted
        return replace(
            job,
            environment=fill_masks(job.environment, stored.environment),
            job_args=fill_masked_arguments(job.job_args, stored.job_args),
            prepare_command=fill_masked_command(job.prepare_command, stored.prepare_command),
            finish_command=fill_masked_command(job.finish_command, stored.finish_command),
        )

    def admit(
        self,
        caller: Identity,
        job: TrainJob,
        capacity: Capacity,
        *,
        refuse_uris: bool,
        add_arguments: bool = False,
    ) -> tuple[admission.Admitted, InvalidRequest | None]:
        """The job as it can run here, and what there is to say about a URI in an unknown bucket."""
        permit(caller, Operation.RUN_JOBS)
        refuse_masks(job.environment, job.job_args, commands_of(job))
        admission.check_offered(job, self._catalog, self._trainers)
        grace_seconds("grace_time", job.grace_time, self._grace_limit_s)
        spec = job_specs.from_wire(job, add_arguments=add_arguments)
        restore_from = self._restore_from(caller.org, job)
        spec = change_workload(
            spec,
            lambda workload: admission.with_parallel(
                replace(workload.with_defaults(capacity.defaults), restore_from=restore_from),
                capacity,
                self._task_limits.at_once,
            ),
        )
        check_memory_growth(spec.workload)
        RECIPES[spec.workload.recipe].check(spec.workload)
        admission.check_tasks(spec, self._task_limits, self._gang_refusal())
        admitted = admission.fit(spec, capacity, gpu_missing=self._gpu_missing)
        admission.check_quota(admitted.spec, self._quota_of(caller.org))
        service_of(admitted.spec)  # what cannot be served is refused now, not when it was trained
        self._check_bucket(caller.org, "fds_bucket", job.fds_bucket or "", job.fds_bucket or "")
        folder = spec.workload.checkpoint_folder
        self._check_bucket(caller.org, "checkpoint.path", folder, split_uri(folder)[0])
        self._check_secrets(caller.org, job.secrets)
        self._check_metric_patterns(job.metric_patterns or ())
        self._check_log_patterns(_list_log_patterns(job))
        unknown = find_unknown_bucket(self._storage, caller.org, job) if job.check_uris else None
        if unknown is not None and refuse_uris:
            raise unknown
        return admitted, unknown

    def _restore_from(self, org: str, job: TrainJob) -> str:
        """The URI of the checkpoint that a job goes on from; that of another job, or of a folder
        with checkpoints, is the newest in it.

        Raises:
            InvalidRequest: There is no such job, or it has saved none; or nothing is at the URI.
        """
        restore_from = job.restore_from or ""
        if restore_from.startswith("fds://"):
            found = self._checkpoints.at(org, restore_from) if job.check_uris else restore_from
            if not found:
                raise no_checkpoint(
                    restore_from, f"there is nothing at {restore_from[:300]}", _UNCHECKED
                )
            return found
        if not restore_from:
            return ""
        try:
            other = self._find(org, restore_from)
        except NotFound:
            why = f"there is no job {restore_from[:63]}"
            raise no_checkpoint(restore_from, why, _OF_DELETED_JOBS) from None
        if other.spec.workload.is_array:
            why = f"each task of {restore_from[:63]} has its own"
            hint = f"Give the URI of one: cloudml jobs checkpoints {restore_from[:63]} -o name"
            raise no_checkpoint(restore_from, why, hint)
        items = self._checkpoints.of(other).items
        if not items:
            removed = other.spec.workload.drops_checkpoints
            why = "those of {} were removed by its study" if removed else "{} has saved none"
            raise no_checkpoint(restore_from, why.format(restore_from[:63]))
        return items[-1].uri

    def checkpoint_given(self, org: str, workload: WorkloadSpec) -> str:
        """What there is for a new job to go on from, as a sentence; empty if nothing is. In a folder
        that it has chosen, that is the newest checkpoint of earlier jobs.
        """
        uri, chosen = workload.restore_from, workload.checkpoint_folder
        if not uri and chosen:
            newest = self._checkpoints.at(org, chosen)
            uri = newest if newest.strip("/") != chosen.strip("/") else ""
        return checkpoint_given(uri, self._checkpoints.step_at(org, uri)) if uri else ""

    def _check_bucket(self, org: str, field: str, value: str, bucket: str) -> None:
        """Refuse the value of a field that names a bucket which the organisation does not have."""
        if bucket and not self._storage.owns(org, bucket):
            raise InvalidRequest(
                f"{field} is {value!r}; there is no such bucket",
                field=field,
                value=value,
                allowed="a bucket of the organisation",
                hint=suggest_buckets(self._storage, org, bucket) or None,
            )


def _list_log_patterns(job: TrainJob) -> Mapping[str, str]:
    """The patterns of the restart rules of a job, by the names of their fields."""
    rules = (job.restart.rules if job.restart is not None else None) or ()
    return {
        f"restart.rules[{number}].log_pattern": rule.log_pattern
        for number, rule in enumerate(rules)
        if rule.log_pattern
    }


def no_checkpoint(restore_from: str, why: str, hint: str | None = None) -> InvalidRequest:
    """The error for a ``restore_from`` that names no checkpoint, ready to be raised."""
    return InvalidRequest(
        f"restore_from names no checkpoint: {why}",
        field="restore_from",
        value=restore_from[:1000],
        allowed="a job with checkpoints, or the fds:// URI of one",
        hint=hint,
    )
