"""What the controller asks of the gateway in front of model services."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from cloud_ml.domain.services.routes import CallingKey, Figures, Route


class Gateway(Protocol):
    """Serves routes until it is told otherwise, also while no server runs. Belongs to the
    controller's event loop.
    """

    @property
    def figures(self) -> Mapping[str, Figures]:
        """What it counted lately, by service."""

    @property
    def unbound(self) -> Mapping[int, str]:
        """Ports that it could not have, and why."""

    def set(self, uid: str, route: Route) -> None:
        """Serve a service like this from now on."""

    def drop(self, uid: str) -> None:
        """Serve it no more."""

    def keep(self, uids: Collection[str]) -> None:
        """These are all services there are: whatever else is served, is not to be."""

    def learn(self, keys: Mapping[str, CallingKey]) -> None:
        """These keys work, and no others."""

    async def settled(self) -> bool:
        """Wait until what was told is in force; false where the gateway cannot be had for some
        seconds.
        """

    async def run(self) -> None:
        """Keep the gateway running and told. Never returns."""

    async def close(self) -> None:
        """The server ends; the gateway goes on, unless it serves nothing."""
