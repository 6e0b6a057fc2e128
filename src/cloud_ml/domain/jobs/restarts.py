"""When a train job starts again: its fields, as the policy of a workload. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.workloads.exits import ExitAction, ExitRule, ExitRules, RestartPolicy
from cloud_ml.domain.workloads.spec import SINGLE, MemoryGrowth, RetryPolicy, WorkloadSpec
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.jobs.restart import Restart, RestartRule
from cloud_ml.models.jobs.train_job import TrainJob

MAX_RETRIES = 3
"""By default, for a job that starts again at all."""
_AGAIN = (ExitAction.RESTART_TASK, ExitAction.RESTART_GANG)


def retry_of(job: TrainJob, recipe: str, roles: Sequence[str]) -> RetryPolicy:
    """The policy of a job.

    One of several tasks starts again by default: it loses a task more often, and nobody watches
    all of them. One of a single task does so when it has retries.

    Args:
        job: The wire form.
        recipe: The name of its recipe.
        roles: The names of its roles.

    Raises:
        InvalidRequest: A field contradicts another, or a rule names a role that the job lacks.
    """
    restart = job.restart or Restart()
    rules = tuple(
        _rule(f"restart.rules[{number}]", rule, roles)
        for number, rule in enumerate(restart.rules or ())
    )
    again = bool(job.max_retries) or recipe != SINGLE
    policy = RestartPolicy(restart.policy or ("OnFailure" if again else "Never"))
    growth = _memory_growth(job, restart)
    starts_again = (
        policy is not RestartPolicy.NEVER
        or growth is not None
        or any(one.action in _AGAIN for one in rules)
    )
    if not starts_again and (used := _retries_field(job)):
        raise InvalidRequest(
            f"restart.policy is Never and {used} is {getattr(job, used)}",
            field="restart.policy",
            value=policy.value,
            allowed=f"another policy, or no {used}",
        )
    most = MAX_RETRIES if job.max_retries is None else job.max_retries
    healthy_s = RetryPolicy.healthy_s if restart.healthy_s is None else float(restart.healthy_s)
    return RetryPolicy(
        max_retries=most if starts_again else 0,
        task_retries=job.task_retries,
        healthy_s=healthy_s,
        exits=ExitRules(policy, rules),
        memory_growth=growth,
    )


def check_memory_growth(workload: WorkloadSpec) -> None:
    """Refuse a workload that is to get more memory, and has no limit that could grow.

    Raises:
        InvalidRequest: Names field, value and what is allowed.
    """
    if (growth := workload.retry.memory_growth) is None:
        return
    limits = [
        (role.resources.memory_bytes, role.name)
        for role in workload.roles
        if role.resources.memory_bytes is not None
    ]
    if not limits:
        raise InvalidRequest(
            f"restart.memory_factor is {growth.factor:g}, but the job has no memory limit",
            field="restart.memory_factor",
            value=growth.factor,
            allowed="a job with a memory_limit (--memory_limit)",
        )
    largest, role = max(limits)
    if growth.most_bytes is not None and growth.most_bytes <= largest:
        most, limit = common.format_memory(growth.most_bytes), common.format_memory(largest)
        whose = f" of {role}" if len(workload.roles) > 1 else ""
        raise InvalidRequest(
            f"restart.memory_most is {most}, and the memory limit{whose} is {limit} already",
            field="restart.memory_most",
            value=most,
            allowed=f"more than {limit}",
        )


def _memory_growth(job: TrainJob, restart: Restart) -> MemoryGrowth | None:
    if restart.memory_factor is None:
        return None
    if job.max_retries == 0:
        raise InvalidRequest(
            f"restart.memory_factor is {restart.memory_factor} and max_retries is 0",
            field="max_retries",
            value=0,
            allowed="1 to 100, or leave it out",
        )
    most = common.memory_bytes(restart.memory_most) if restart.memory_most else None
    return MemoryGrowth(float(restart.memory_factor), most)


def _retries_field(job: TrainJob) -> str:
    return next((name for name in ("max_retries", "task_retries") if getattr(job, name)), "")


def _rule(path: str, rule: RestartRule, roles: Sequence[str]) -> ExitRule:
    for number, role in enumerate(rule.roles or ()):
        if role not in roles:
            allowed = "one of " + ", ".join(roles)
            raise common.refuse(f"{path}.roles[{number}]", role, allowed)
    codes, named = tuple(rule.exit_codes or ()), tuple(rule.roles or ())
    pattern = rule.log_pattern or ""
    return ExitRule(ExitAction(rule.action), codes, named, rule.log or "", pattern)
