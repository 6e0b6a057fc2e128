"""Values that are sent again are kept once, whichever chunks are unpacked to find out."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.tracking.runs import LogBatch, TrackingLimits
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.testing.state.tracking.samples import add_run

_LIMITS = MetricLimits(series=2, points=100_000)
_VALUES = st.tuples(
    st.sampled_from(["loss", "error"]),
    st.integers(-3, 6),
    st.integers(0, 1),
    st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]),
).map(lambda value: Value(*value))
_BATCHES = st.lists(st.lists(_VALUES, max_size=8), max_size=6)


def _log(store: MemoryStateStore, uid: str, values: list[Value]) -> None:
    batch = LogBatch(values=values)
    store.tracking.log(uid, batch, limits=TrackingLimits(), metric_limits=_LIMITS)


@settings(max_examples=60)
@given(_BATCHES, st.booleans())
def test_each_value_is_kept_once(batches: list[list[Value]], long: bool) -> None:
    store = MemoryStateStore()
    uid = add_run(store, "one")
    before = [Value("loss", step, 9, 0.5) for step in range(CHUNK_POINTS - 20 if long else 0)]
    _log(store, uid, before)
    for batch in batches:
        _log(store, uid, batch)
        _log(store, uid, batch)
    distinct = {(one.name, one.step, one.at, repr(one.value)) for batch in batches for one in batch}
    assert sum(series.count for series in store.metrics.series(uid)) == len(before) + len(distinct)
