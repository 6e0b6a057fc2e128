"""What this machine gives to a platform and what is missing: ``cloudml doctor``.

Each module looks at one area and yields findings; nothing is changed, but for files that are made
and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from cloud_ml.doctor import (
    client,
    database,
    isolation,
    machine,
    network,
    runtimes,
    secrets,
    storage,
)
from cloud_ml.doctor.findings import Finding
from cloud_ml.settings import Settings

if TYPE_CHECKING:
    from cloud_ml.client import CloudMlClient


def areas(
    settings: Settings, connect: Callable[[], CloudMlClient]
) -> dict[str, Callable[[], Iterator[Finding]]]:
    """The examinations by name, in the order in which they make sense.

    Args:
        settings: Those of the server.
        connect: Makes the user's client; it may raise, which is a finding.
    """
    return {
        "machine": machine.examine,
        "isolation": partial(isolation.examine, settings),
        "storage": partial(storage.examine, settings),
        "database": partial(database.examine, settings),
        "secrets": partial(secrets.examine, settings),
        "runtimes": partial(runtimes.examine, settings),
        "network": partial(network.examine, settings),
        "client": partial(client.examine, connect),
    }
