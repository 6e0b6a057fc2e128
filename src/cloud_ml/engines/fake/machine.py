"""The machine that the fake engine imagines."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.engines.fake.gang_queue import GangQueue
from cloud_ml.engines.fake.nodes import Nodes
from cloud_ml.engines.gang import Gang, GangKey


@dataclass
class Machine:
    """What outlives an engine object: share one between two engines to play a restart of the
    server.

    ``nodes`` is the memory of each machine, where it plays several.
    """

    nodes: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.places = Nodes(self.nodes)
        self.queue = GangQueue(self.places)
        """Gangs without a place, and tasks that start again."""
        self.gangs: dict[GangKey, ObservedGang] = {}
        self.plans: dict[GangKey, Gang] = {}
        self.logs: dict[tuple[GangKey, str], bytes] = {}
        self.grace_s: dict[GangKey, float] = {}
        """Of the first stop of each gang."""
        self.listeners: dict[tuple[str, str], socket.socket] = {}
        """Of jobs that listen, by the job and the name of what it listens at."""
        self.at_end: dict[GangKey, list[Callable[[], object]]] = {}
        """Called when a gang is over."""
        self.reports: dict[tuple[GangKey, str], Progress] = {}
        """Of processes that report."""
        self.metric_files: dict[tuple[GangKey, str], bytes] = {}
        """What processes report of metrics."""
        self.event_files: dict[str, dict[str, bytes]] = {}
        """Event files of jobs, by path."""
        self.occupied: dict[int, GangKey] = {}
        """Ports that a process has which was not given them."""
        self.starts: list[GangKey] = []
        """Every start of user code, in order: a key that is in it twice is a broken promise."""
        self.requested_restarts: list[tuple[GangKey, str, int]] = []
        """Every restart of a process that was asked for, in order, likewise."""
