"""The ports of services: one each, nobody else's, kept as long as the service is there."""

from __future__ import annotations

from collections.abc import Sequence


class Ports:
    """Gives out the ports of some ranges. Belongs to one event loop."""

    def __init__(self, ranges: Sequence[range]) -> None:
        self._ranges = ranges
        self._of: dict[str, int] = {}
        self._taken: set[int] = set()

    def note(self, uid: str, port: int) -> None:
        """A service has this port already."""
        self.free(uid)
        self._of[uid] = port
        self._taken.add(port)

    def of(self, uid: str) -> int:
        """The port of a service, 0 where it has none."""
        return self._of.get(uid, 0)

    def free(self, uid: str) -> None:
        """The service is gone."""
        port = self._of.pop(uid, None)
        if port is not None and port not in self._of.values():
            self._taken.discard(port)

    def candidates(self) -> list[int]:
        """Ports that no service has, the lowest first."""
        return [port for ports in self._ranges for port in ports if port not in self._taken]
