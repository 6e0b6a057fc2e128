"""What a person may do next about a job, by where it stands and why."""

from __future__ import annotations

from cloud_ml.models.job import Job

_LOOK = "Look at its log: cloudml jobs logs {name} -n 50"
_RUN_AGAIN = "Run it again: cloudml jobs rerun {name}"
_BY_REASON = {
    "OOMKilled": "Give it more memory: cloudml jobs rerun {name} -M {more_memory}",
    "TimeLimitExceeded": "Give it more time: cloudml jobs rerun {name} --time-limit TIME",
    "NodeLost": _RUN_AGAIN + " (with --retries N the platform does so by itself)",
    "SupervisorLost": _RUN_AGAIN + " (with --retries N the platform does so by itself)",
    "StartTimeout": _RUN_AGAIN,
    "StartFailed": _RUN_AGAIN + "; if it fails again, `cloudml doctor` on the server's machine says what is missing",
    "TrainerNotFound": "See what is there: cloudml storage ls, then submit with the right --trainer_uri",
    "TrainerInvalid": "Mend the package; its words are in: cloudml jobs logs {name}",
    "EnvironmentFailed": "Mend the requirements; what was tried is in: cloudml jobs logs {name}",
    "Cancelled": _RUN_AGAIN,
}
_BY_PHASE = {
    "Saved": "Start it: cloudml jobs start {name}",
    "Queued": "It starts by itself when there is room; see who runs: cloudml jobs top",
    "Starting": "Follow it: cloudml jobs logs {name} -f",
    "Restarting": "Follow it: cloudml jobs logs {name} -f",
    "Running": "Follow it: cloudml jobs logs {name} -f · what it uses: cloudml jobs top {name}",
    "Finishing": "Follow it: cloudml jobs logs {name} -f",
    "Succeeded": "Its log: cloudml jobs logs {name}",
    "Failed": _LOOK,
    "Stopped": _RUN_AGAIN,
}


def next_step(job: Job) -> str:
    """One line; empty where nothing can be done."""
    if job.deleting:
        return ""
    text = _BY_REASON.get(job.reason) if job.phase in ("Failed", "Stopped") else None
    return (text or _BY_PHASE.get(job.phase, "")).format(name=job.name, more_memory=_doubled(job))


def _doubled(job: Job) -> str:
    limit = str(job.spec.get("memory_limit") or "")
    number, unit = limit[:-1], limit[-1:]
    try:
        return f"{2 * float(number):g}{unit}"
    except ValueError:
        return "SIZE"
