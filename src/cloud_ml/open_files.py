"""How many files this process may have open: connections, objects on their way, the database.

Systems give a process 1,024 at first and let it ask for many more. A child gets back what its
parent began with:
programs of users may use ``select``, which cannot watch a descriptor beyond 1,023.
"""

from __future__ import annotations

import resource

_MOST = 1 << 20
"""More is not asked for: some kernels refuse it."""
_USED_OTHERWISE = 256
_EACH_REQUEST = 2
"""Its connection, and the object that it reads or writes."""
_began_with: list[tuple[int, int]] = []


def raise_limit() -> int:
    """Let this process have as many open files as the system allows it; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return _MOST if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):
        return soft
    _began_with.append((soft, hard))
    return target


def limit() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def restore_limit(child: int) -> None:
    """Give a child process the limit that this process had before ``raise_limit``."""
    if _began_with:
        resource.prlimit(child, resource.RLIMIT_NOFILE, _began_with[0])


def connections_that_fit(limit: int) -> int:
    """How many connections a server can have that may have ``limit`` files open."""
    return max(1, (limit - _USED_OTHERWISE) // _EACH_REQUEST)
