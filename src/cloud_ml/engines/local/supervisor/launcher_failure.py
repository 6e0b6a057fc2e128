"""Why the launcher of a gang has failed: a process that it started may have run out of memory.

The kernel kills that process in another task, whose main process lives on. So the launcher is often
the first task to end, with an exit code that does not say why.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.engines.local.supervisor.running_task import RunningTask

_SAYS_LITTLE = frozenset({Reason.NON_ZERO_EXIT, Reason.SIGNALED})


def out_of_memory_beside(
    ended: RunningTask, verdict: Verdict, tasks: Sequence[RunningTask], launcher: str
) -> tuple[RunningTask, Verdict] | None:
    """The task that has run out of memory, and its end.

    Args:
        ended: The task that has ended.
        verdict: How it has ended.
        tasks: All tasks of the gang.
        launcher: The name of the gang's launcher; empty if it has none.
    """
    if ended.plan.name != launcher or verdict.reason not in _SAYS_LITTLE:
        return None
    for task in tasks:
        if task is ended:
            continue
        found = task.exceeded or task.limiter.kill_for_memory()
        if found is not None and found.reason is Reason.OUT_OF_MEMORY:
            return task, found
    return None
