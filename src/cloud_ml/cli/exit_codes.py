"""How ``cloudml jobs submit --watch`` and ``cloudml jobs wait`` end: as the job did."""

from __future__ import annotations

import signal

from cloud_ml.models.jobs.job import Job

JOB_FAILED = 3
"""The job failed, and there is no exit code of its code to pass on: it never started, or its
limits ended it.
"""
JOB_STOPPED = 4
"""The job was cancelled or deleted."""
_OUR_DOING = (
    "OOMKilled",
    "TimeLimitExceeded",
    "DiskQuotaExceeded",
    "NodeLost",
    "SupervisorLost",
)
"""A signal of ours or of the kernel's ended the code; passed on, it would look like the code's
own. One that hangs ends by SIGABRT, and rules of restarts know it as exit code 134: so does this,
also for a job that has hung in each attempt until it was given up (``NoProgress``).
"""
STILL_GOES_ON = 124
"""The job had not ended when the time given to ``jobs wait`` was over."""

HELP = (
    "Exit codes of --watch: 0 the job succeeded; its own exit code if its code failed (128 + n "
    f"for signal n; 134 if it hung); {JOB_FAILED} it failed otherwise (no environment, a limit, a lost machine); "
    f"{JOB_STOPPED} it was cancelled; 130 you stopped watching, and the job keeps running."
)


def exit_code_of(job: Job) -> int:
    """The exit code for a job that has ended; 0 only for one that succeeded."""
    if job.succeeded:
        return 0
    if job.phase == "Stopped":
        return JOB_STOPPED
    if job.reason in _OUR_DOING:
        return JOB_FAILED
    if job.signal and job.signal in signal.Signals.__members__:
        return 128 + signal.Signals[job.signal].value
    if job.exit_code is not None and 0 < job.exit_code < 256:
        return job.exit_code
    return JOB_FAILED
