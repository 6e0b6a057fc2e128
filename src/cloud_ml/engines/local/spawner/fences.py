"""The networks of organisations as the spawner has them: made when one is needed, looked after
when it is quiet.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from cloud_ml.engines.local.cleanup import orphans
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.network import TENANT
from cloud_ml.engines.local.network.tenants import Networks

_PAUSE_S = 1.0
"""Networks are looked after no more often: it takes a process, and there is a rest after every
short job.
"""


class Fences:
    """Organisations' networks, or none where jobs have no network of their own."""

    def __init__(self, networks: Networks | None, selector: selectors.BaseSelector) -> None:
        self._networks = networks
        self._tidy_at = 0.0
        if networks is not None and networks.changes is not None:
            selector.register(
                networks.changes, selectors.EVENT_READ, lambda _: self._restore(networks)
            )

    def need(self, tenant: int, renewed: Callable[[], None]) -> None:
        """Have that organisation's network there; ``renewed`` is called before when their folder
        had to be made again.

        Raises:
            OSError: It cannot be had.
        """
        if self._networks is None:
            raise OSError("organisations have no networks of their own here")
        if self._networks.renew():
            renewed()
        self._networks.need(tenant)

    def tidy(self, tenants: Sequence[int]) -> None:
        """Take down the networks of all but these organisations, now and then."""
        if self._networks is not None and time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + _PAUSE_S
            with log_errors():
                self._networks.tidy(tenants)

    def leave(self) -> None:
        """Take down what nobody is in."""
        if self._networks is not None:
            with log_errors():
                self._networks.leave()

    def _restore(self, networks: Networks) -> None:
        with log_errors():
            networks.restore()


@contextlib.contextmanager
def log_errors() -> Iterator[None]:
    """What goes wrong with networks is told in the log, and does not end the spawner: each job
    that needs one tries.
    """
    try:
        yield
    except OSError:
        traceback.print_exc()


def start(config: LocalConfig) -> Networks | None:
    """What the configuration asks for; ends the process where that cannot be had.

    What servers left whose folders are gone is removed first: it costs every packet, and takes
    addresses.
    """
    if os.geteuid() == 0:
        with log_errors():
            for orphan in orphans.remove(orphans.group_folders(dict(config.cgroups))):
                print(  # noqa: T201
                    f"cloudml: removed what a server that is gone has left: {orphan}",
                    file=sys.stderr,
                )
    networks = Networks(config)
    if config.network.fence != TENANT:
        if os.geteuid() == 0 and networks.pins.folder.exists():  # of before the setting was changed
            with log_errors():
                networks.leave()
        return None
    try:
        networks.start()
    except OSError as error:
        sys.exit(f"cloudml: networks of organisations cannot be had: {error}")
    return networks
