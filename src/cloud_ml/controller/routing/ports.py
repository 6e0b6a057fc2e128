"""The ports of services: one each, nobody else's, kept as long as the service is there."""

from __future__ import annotations

from collections.abc import Sequence


class Ports:
    """Gives out the ports of some ranges. Belongs to one event loop.

    Args:
        ranges: The ports.
        share: The largest part of them for services of one organisation; at least one port.
    """

    def __init__(self, ranges: Sequence[range], share: float = 1.0) -> None:
        self._ranges = ranges
        self._of: dict[str, tuple[int, str]] = {}
        self._taken: set[int] = set()
        self.total = sum(map(len, ranges))
        self.most = max(1, int(self.total * share))

    @property
    def given(self) -> int:
        """How many of these ports services have. Some may have others, of earlier settings."""
        return sum(any(port in ports for ports in self._ranges) for port in self._taken)

    def note(self, uid: str, port: int, org: str) -> None:
        """A service of an organisation has this port already."""
        self.free(uid)
        self._of[uid] = port, org
        self._taken.add(port)

    def of(self, uid: str) -> int:
        """The port of a service, 0 where it has none."""
        return self._of[uid][0] if uid in self._of else 0

    def free(self, uid: str) -> None:
        """The service is gone."""
        port, _ = self._of.pop(uid, (None, ""))
        if port is not None and all(other != port for other, _ in self._of.values()):
            self._taken.discard(port)

    def has_share(self, org: str) -> bool:
        """Whether an organisation has all the ports that it may have."""
        return sum(owner == org for _, owner in self._of.values()) >= self.most

    def candidates(self, org: str) -> list[int]:
        """Ports that no service has, the lowest first; none for an organisation that has its
        share.
        """
        if self.has_share(org):
            return []
        return [port for ports in self._ranges for port in ports if port not in self._taken]
