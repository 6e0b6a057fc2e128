"""What an attempt has from when its environment is there."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.project_ids import ProjectLimit
from cloud_ml.engines.local.failures.explain import FailureContext
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network.listener_store import ListenerStore
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.supervisor.reporting import Reporter
from cloud_ml.engines.local.supervisor.stack_dumps import StackDumps
from cloud_ml.engines.local.supervisor.stage import Stage
from cloud_ml.engines.local.supervisor.staged import Staged


@dataclass(frozen=True)
class StagedAttempt:
    """What the processes of an attempt share.

    Attributes:
        gang: The gang, for the runtime that was found.
        groups: A control group for each task; none where there are none.
        selector: Hears what the processes say, and that they end.
        failure_context: What is known about the attempt when an end is explained.
        listeners: The sockets on which tasks without a way out reach the server.
        disk_limit: The disk limit that the kernel keeps, if it does.
        stack_dumps: The processes that are still to show their stacks.
        grace_s: How long a task has to end when its gang stops.
    """

    gang: ResolvedGang
    config: LocalConfig
    ledger: Ledger
    groups: Sequence[Group]
    stage: Stage
    staged: Staged
    reporter: Reporter
    selector: selectors.BaseSelector
    failure_context: FailureContext
    listeners: ListenerStore
    disk_limit: ProjectLimit | None
    stack_dumps: StackDumps
    grace_s: float

    @property
    def sandboxed(self) -> bool:
        """Whether each task has a sandbox, whose first process buries orphans."""
        return bool(self.config.bwrap)
