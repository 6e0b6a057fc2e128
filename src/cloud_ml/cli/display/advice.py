"""What a person may do next about a job or a service, by where it stands and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_ml.models.jobs.job import Job

if TYPE_CHECKING:
    from cloud_ml.models.services.service import Service

_LOOK = "Look at its log: cloudml jobs logs {name} -n 50"
_LOOK_AT_TASK = (
    "Look at its log: cloudml jobs logs {name} --task task-{index} -n 50 · run it alone: cloudml jobs "
    "rerun {name} --array {index}"
)
_RUN_AGAIN = "Run it again: cloudml jobs rerun {name}"
_BY_REASON = {
    "OOMKilled": "Give it more memory: cloudml jobs rerun {name} -M {more_memory}",
    "TimeLimitExceeded": "Give it more time: cloudml jobs rerun {name} --time-limit {more_time}",
    "DiskQuotaExceeded": "Give it more disk: cloudml jobs rerun {name} --disk-limit {more_disk}, "
    "or use a bucket",
    "Hung": "See where it hung; the log ends with its stacks: cloudml jobs logs {name} -n 50",
    "NodeLost": _RUN_AGAIN + " (with --retries N the platform does this)",
    "SupervisorLost": _RUN_AGAIN + " (with --retries N the platform does this)",
    "StartTimeout": _RUN_AGAIN,
    "StartFailed": _RUN_AGAIN
    + "; if it fails again, `cloudml doctor` on the server's machine says what is missing",
    "TrainerNotFound": "See what is there: cloudml storage ls -r {folder}, then submit it with the "
    "right URI",
    "TrainerInvalid": "Fix the code and resubmit it. The log says more: cloudml jobs logs {name}",
    "EnvironmentFailed": "Fix this and resubmit. The log has the output of the installer: cloudml "
    "jobs logs {name}",
    "NoDistributedRecipe": "Resubmit it with the recipe that fits: cloudml jobs rerun {name} "
    "--recipe pytorch (or tensorflow, dask, mpi, cluster)",
    "NoProgress": _LOOK + " · if it does get further each time, let the platform know: save to "
    "CLOUDML_CHECKPOINT_DIR, or call cloud_ml.job.report(step)",
    "Cancelled": _RUN_AGAIN,
}
_MEMORY_OF_ROLES = (
    "Give the role more memory: cloudml jobs export {name} > job.yaml, raise its memory_limit in "
    "cluster_spec, then: cloudml jobs submit -f job.yaml -n NAME"
)
_BY_PHASE = {
    "Saved": "Start it: cloudml jobs start {name}",
    "Paused": "Resume it: cloudml jobs resume {name}",
    "Queued": "It starts when there is room. See what is running: cloudml jobs top",
    "Starting": "Follow it: cloudml jobs logs {name} -f",
    "Restarting": "Follow it: cloudml jobs logs {name} -f",
    "Running": "Follow it: cloudml jobs logs {name} -f · what it uses: cloudml jobs top {name}",
    "Finishing": "Follow it: cloudml jobs logs {name} -f",
    "Succeeded": "Its log: cloudml jobs logs {name}",
    "Failed": _LOOK,
    "Stopped": _RUN_AGAIN,
}


_OF_SERVICE = {
    "Saved": "Start it: cloudml models start {name}",
    "Stopped": "Start it: cloudml models start {name}",
    "Starting": "Wait for it: cloudml models wait {name}",
    "Failed": "See its log: cloudml models logs {name} · deploy a corrected model: cloudml models "
    "deploy {name} URI",
    "Degraded": "See why: cloudml models events {name} · cloudml models logs {name}",
    "Running": "Call it: cloudml models predict {name} -d data.json",
}
_NO_MODEL = (
    "See what is there: cloudml storage ls -r {uri} · say where it is: cloudml models update "
    "{name} -u URI · or put it there and run: cloudml models start {name}"
)


def service_step(service: Service) -> str:
    """One line about a service; empty where nothing can be done."""
    if service.deleting:
        return ""
    text = _NO_MODEL if service.reason == "ModelNotFound" else _OF_SERVICE.get(service.phase, "")
    return text.format(
        name=f"{service.name} {service.version}", uri=service.spec.get("model_uri") or "URI"
    )


def next_step(job: Job) -> str:
    """One line; empty where nothing can be done."""
    if job.deleting:
        return ""
    text = _BY_REASON.get(job.reason) if job.phase in ("Failed", "Stopped") else None
    uri = str(job.spec.get("trainer_uri") or "")
    index = _index_of_failed_task(job)
    if index and text is None and job.phase == "Failed":
        text = _LOOK_AT_TASK
    if job.reason == "OOMKilled" and _has_memory_of_roles(job):
        text = _MEMORY_OF_ROLES
    if job.reason == "TrainerNotFound" and uri.startswith("http"):
        text = "Put it where the server can fetch it, or submit the file itself: cloudml jobs submit ./FILE"
    elif job.reason == "TrainerNotFound" and uri.startswith("git+"):
        text = "Check the repository, commit and folder. If it is private, clone it: cloudml jobs submit ./FOLDER"
    return (text or _BY_PHASE.get(job.phase, "")).format(
        name=job.name,
        index=index,
        folder="/".join(uri.split("/")[:3]) + "/",
        more_memory=_more_memory(job),
        more_disk=_double_limit(job, "disk_limit", "SIZE"),
        more_time=_double_limit(job, "wall_time_limit", "TIME"),
    )


def _index_of_failed_task(job: Job) -> str:
    """The index of the task of an array whose end the job's message tells; empty if it tells none."""
    task = job.message.partition(" ")[0]
    index = task.removeprefix("task-")
    return index if job.spec.get("array") and index != task and index.isdecimal() else ""


def _more_memory(job: Job) -> str:
    """Twice the limit that was too little."""
    from cloud_ml.models.common import format_memory

    grown = max((one.limit_bytes for one in job.memory), default=0)
    return format_memory(2 * grown) if grown else _double_limit(job, "memory_limit", "SIZE")


def _has_memory_of_roles(job: Job) -> bool:
    """Whether a role has a limit of its own, which counts instead of the job's."""
    roles = job.spec.get("cluster_spec") or {}
    return any(isinstance(role, dict) and role.get("memory_limit") for role in roles.values())


def _double_limit(job: Job, field: str, unknown: str) -> str:
    limit = str(job.spec.get(field) or "")
    number, unit = limit.rstrip("KMGsmhd"), limit[-1:] if limit[-1:].isalpha() else ""
    try:
        return f"{2 * float(number):g}{unit}"
    except ValueError:
        return unknown
