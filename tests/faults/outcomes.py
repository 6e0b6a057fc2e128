"""What a row of the table of deaths says of the end of a job."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from faults.gang_scene import Scene
from support.deaths import Death

REASONS = {
    "SIGKILL": "Signaled",
    "SIGSEGV": "Signaled",
    "exit": "NonZeroExit",
    "memory": "OOMKilled",
    "hang": "Hung",
}
COMMAND_REASONS = {"prepare": "PrepareCommandFailed", "finish": "FinishCommandFailed"}


def reason_for(death: Death) -> str:
    """The reason of a job that has failed of the death."""
    if death.who == "supervisor":
        return "SupervisorLost"
    if death.cause != "memory" and death.who in COMMAND_REASONS:
        return COMMAND_REASONS[death.who]
    return REASONS[death.cause]


def differences_from_the_table(
    death: Death, scene: Scene, client: CloudMlClient, job: Job, restarted: Sequence[str]
) -> list[str]:
    """In what the end of the job differs from the row of the table. The tasks that are
    ``restarted`` start again alone.
    """
    failed = death.follows == "failed"
    again = death.follows in ("attempt", "larger")
    role = "master" if death.who in COMMAND_REASONS else death.who
    grown = {role: 2 * 64} if death.follows == "larger" else {}
    restarts = dict.fromkeys(restarted, 1)
    events = [event.reason for event in client.train_job_events(job.name)]
    outcomes = {
        "phase": (job.phase, "Failed" if failed else "Succeeded"),
        "reason": (job.reason, reason_for(death) if failed else "Completed"),
        "attempt": (job.attempt, 2 if again else 1),
        "retries": (job.retries_used, 1 if again and not death.free else 0),
        "restarts": ({one.name: one.restarts for one in job.tasks if one.restarts}, restarts),
        "MiB of memory": ({one.role: one.limit_bytes >> 20 for one in job.memory}, grown),
        "events of attempts": (events.count("Restarting"), int(again)),
        "events of tasks": (events.count("TaskRestarted"), len(restarts)),
        "result": ((scene.place / "result").exists(), not failed or death.who == "finish"),
    }
    return [f"{what} {found!r}, and not {expected!r}"
            for what, (found, expected) in outcomes.items() if found != expected]  # fmt: skip
