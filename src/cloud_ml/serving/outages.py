"""Which errors of a load may pass by themselves: a file that is not there yet, a network that
fails.
"""

import socket
from collections.abc import Iterator

_NAMES = frozenset(
    {"NoSuchFile", "ConnectionError", "ConnectTimeout", "ReadTimeout", "ConnectError", "URLError"}
)
"""Names of such errors in libraries; none of these libraries is imported here."""
_KINDS = (FileNotFoundError, ConnectionError, TimeoutError, socket.gaierror)


def is_outage(error: BaseException) -> bool:
    """Whether a load failed because a file is missing or the network fails, by the error and its
    causes.
    """
    return any(
        isinstance(each, _KINDS)
        or not _NAMES.isdisjoint(kind.__name__ for kind in type(each).__mro__)
        for each in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__
