"""How long batches take."""

from __future__ import annotations

import math

from cloud_ml.serving.latency_estimate import KINDS, LOOKED_AT, LatencyEstimate

ROW = ((784,),)


def test_what_was_not_seen_may_take_any_time() -> None:
    pace = LatencyEstimate()
    assert pace.least(ROW, 1) == math.inf
    pace.add(ROW, 1, 0.001)
    assert pace.least(ROW, 1) == 0.001
    assert pace.least(ROW, 64) == math.inf
    assert pace.least(((10,),), 1) == math.inf


def test_runs_that_had_to_wait_do_not_make_a_model_slow_and_many_slow_ones_do() -> None:
    pace = LatencyEstimate()
    pace.add(ROW, 32, 0.001)
    for _ in range(LOOKED_AT - 1):
        pace.add(ROW, 33, 5.0)
    assert pace.least(ROW, 40) == 0.001
    pace.add(ROW, 32, 5.0)
    assert pace.least(ROW, 40) == 5.0


def test_what_is_remembered_has_an_end() -> None:
    pace = LatencyEstimate()
    for size in range(3 * KINDS):
        pace.add(((size,),), 1, 1.0)
        assert pace.least(((size,),), 1) == 1.0
    assert len(pace._took) <= KINDS
