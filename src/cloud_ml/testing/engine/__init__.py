"""The contract of an engine, in code. Subclass ``EngineContract`` and provide its fixtures."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("attempts", "places", "tasks", "hangs", "arrays", "nodes"))
)

from cloud_ml.testing.engine.arrays import ArrayContract  # noqa: E402 - rewriting comes first
from cloud_ml.testing.engine.attempts import AttemptContract  # noqa: E402
from cloud_ml.testing.engine.hangs import HangContract  # noqa: E402
from cloud_ml.testing.engine.job_paths import PlaceContract  # noqa: E402
from cloud_ml.testing.engine.nodes import NodeContract  # noqa: E402
from cloud_ml.testing.engine.programs import HANGING, LISTENING  # noqa: E402
from cloud_ml.testing.engine.tasks import TaskContract  # noqa: E402

__all__ = ["HANGING", "LISTENING", "EngineContract"]


@pytest.mark.anyio
class EngineContract(
    AttemptContract,
    PlaceContract,
    TaskContract,
    HangContract,
    ArrayContract,
    NodeContract,
):
    """What every engine promises (see the table in ``engines.base``).

    Fixtures to provide: ``engine`` (started), ``reopen`` (a callable that returns another engine
    object for the same machine, as a server does after a restart), ``bucket`` (the name of a
    bucket that the engine can mount, with the object ``greeting``, whose content is ``hello`` and
    a newline) and ``dial`` (a callable that connects to an address without the engine, as the
    gateway does, and returns all that is sent).
    """
