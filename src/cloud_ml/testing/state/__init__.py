"""The contract of a state store, in code. Subclass ``StateStoreContract`` and provide ``store``.

::

    class TestMine(StateStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            store = MyStateStore(tmp_path)
            yield store
            store.close()

A durable store also provides ``reopen``: a function that returns a second store over the same data,
opened after the first one was closed.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in (
            "records",
            "repeats",
            "lists",
            "feed",
            "items",
            "leases",
            "metrics",
            "parents",
            "races",
            "durability",
            "audits",
            "tracking",
        )
    )
)

from cloud_ml.testing.state.audits import AuditContract  # noqa: E402 - rewriting comes first
from cloud_ml.testing.state.durability import DurabilityContract  # noqa: E402
from cloud_ml.testing.state.feed import FeedContract  # noqa: E402
from cloud_ml.testing.state.items import ItemContract  # noqa: E402
from cloud_ml.testing.state.leases import LeaseContract  # noqa: E402
from cloud_ml.testing.state.lists import FindContract, ListContract  # noqa: E402
from cloud_ml.testing.state.metrics import MetricContract  # noqa: E402
from cloud_ml.testing.state.parents import ParentContract  # noqa: E402
from cloud_ml.testing.state.races import RaceContract  # noqa: E402
from cloud_ml.testing.state.records import RecordContract  # noqa: E402
from cloud_ml.testing.state.repeats import RepeatContract  # noqa: E402
from cloud_ml.testing.state.tracking import TrackingContract  # noqa: E402

__all__ = ["StateStoreContract"]


class StateStoreContract(
    RecordContract,
    RepeatContract,
    ListContract,
    FindContract,
    FeedContract,
    ParentContract,
    ItemContract,
    LeaseContract,
    MetricContract,
    RaceContract,
    DurabilityContract,
    AuditContract,
    TrackingContract,
):
    """Everything a state store promises."""
