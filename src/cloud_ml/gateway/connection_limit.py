"""How many connections all services of a gateway have together: open files are everybody's."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cloud_ml.net.listening import Alive


class ConnectionLimit:
    """Makes room for a new connection where there are too many.

    The service with the most connections gives one up that is idle, so that callers of one service,
    who need no token to connect, do not keep out those of others.

    Args:
        most: Connections of all services together.
        services: The connections of each service.
    """

    def __init__(self, most: int, services: Callable[[], Collection[Alive]]) -> None:
        self._most = most
        self._services = services

    def make_room(self) -> bool:
        """Whether a further connection may be taken; an idle one is closed for it where there
        are too many.
        """
        services = self._services()
        if sum(map(len, services)) < self._most:
            return True
        return max(services, key=len).close_idle()
