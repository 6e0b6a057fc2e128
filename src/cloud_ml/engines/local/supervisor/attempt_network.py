"""The network that the tasks of one attempt have."""

from __future__ import annotations

import os

from cloud_ml.engines.local.network import NONE, TENANT
from cloud_ml.engines.local.network.gang_network import GangNetwork
from cloud_ml.engines.local.resolved_gang import ResolvedGang

Place = tuple[int, str]
"""Where a network is mounted: a descriptor of the folder, and its name there."""


class AttemptNetwork:
    """The machine's, that of the organisation, one of the gang's own, or none.

    Args:
        gang: Whose tasks they are.
        networks: The folder in which networks of organisations are mounted, if they are.
        ports: Those that tasks of gangs listen on, as in the settings: ``20000-29999``.
    """

    def __init__(self, gang: ResolvedGang, networks: int | None, ports: str) -> None:
        self._gang = gang
        self._tenant = None if networks is None else (networks, str(gang.tenant))
        self._ports = ports
        self._own: GangNetwork | None = None

    def open(self) -> None:
        """Make the gang's own network, where its tasks are to reach each other and nothing else.
        Those of an array do not look for each other.
        """
        gang = self._gang
        finds_each_other = gang.has_tasks and gang.array is None
        if gang.network == NONE and finds_each_other and os.geteuid() == 0:
            self._own = GangNetwork(self._ports)

    def close(self) -> None:
        """Have the gang's own network go with its last process."""
        if self._own is not None:
            self._own.close()

    @property
    def of_tenant(self) -> Place | None:
        """The network of the organisation's jobs; ``None`` if that is the machine's.

        A build has it, too: it runs code of the tenant's choice.
        """
        return self._tenant if self._gang.network == TENANT else None

    @property
    def of_tasks(self) -> Place | None:
        """The network of the tasks; ``None`` if each has the machine's, or none."""
        if self._gang.offline:
            return None
        return self._own.place if self._own else self.of_tenant

    @property
    def leads_to_others(self) -> bool:
        """Whether processes share a network with others."""
        is_online = self._gang.network != NONE and not self._gang.offline
        return is_online or self._own is not None
