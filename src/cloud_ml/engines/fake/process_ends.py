"""Which processes of the fake engine hang, and what the end of one shows. Both are pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.observed import ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.exits import find_texts
from cloud_ml.domain.workloads.gangs import TaskRestarts, with_end
from cloud_ml.domain.workloads.hangs import NO_ACTIVITY, TaskLife, hung_tasks, restarts_after_hang
from cloud_ml.domain.workloads.progress import Milestone
from cloud_ml.engines.gang import Gang


def find_hung_tasks(gang: ObservedGang, plan: Gang) -> tuple[Sequence[str], TaskRestarts]:
    """The tasks that hang after the time of the plan, and which restarts follow. Whoever waits has
    nothing to say.
    """
    if plan.hang_s is None or gang.state.over:
        return (), plan.restarts
    lives = [
        TaskLife(one.name, one.role, NO_ACTIVITY, running=one.running, over=not one.running)
        for one in gang.processes
    ]
    alone = plan.array is not None
    names = hung_tasks(lives, plan.hang_s, now=plan.hang_s, independent=alone)
    if alone:
        return names, plan.restarts
    return names, restarts_after_hang(gang.processes, names, plan.restarts)


def with_findings(
    failed: ObservedProcess, plan: Gang, milestone: Milestone, output: bytes
) -> ObservedProcess:
    """A process that has failed, with this end counted and what the user's rules look for in its
    output.
    """
    found = replace(
        failed,
        found_texts=find_texts(plan.log_texts, output),
        found_patterns=tuple(one for one in plan.log_patterns if re.search(one.encode(), output)),
    )
    return with_end(found, milestone, plan.restarts.healthy_s)
