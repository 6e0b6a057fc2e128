"""``metrics/…``: all points of a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.mlflow import shapes
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.domain.metrics.points import LARGEST_STEP
from cloud_ml.models import common
from cloud_ml.state.metrics import PointRange
from cloud_ml.usecases.tracking.history import MOST_POINTS

_MOST_RUNS = 100
_INTERVAL_POINTS = 2500
Answer = Mapping[str, Any]


def get_history(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """The points of a metric of a run, as they came."""
    run = here.runs.find(call.org, fields.text("run_id", "run_uuid"))
    name = fields.text("metric_key")
    most = _most(fields, MOST_POINTS)
    token = fields.text("page_token", default="")
    found, following = here.history.page(run, name, token, most)
    answer: dict[str, Any] = {"metrics": [shapes.point(name, one) for one in found]}
    return {**answer, "next_page_token": following} if following else answer


def get_history_bulk(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """The points of a metric of several runs, at most 25,000 in all."""
    most, name = _most(fields, MOST_POINTS), fields.text("metric_key")
    shown: list[dict[str, Any]] = []
    for uid in _runs(fields):
        run = here.runs.find(call.org, uid)
        found, _ = here.history.page(run, name, "", max(1, most - len(shown)))
        shown += [shapes.point(name, one, uid) for one in found]
        if len(shown) >= most:
            break
    return {"metrics": shown[:most]}


def get_history_bulk_interval(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Points that show the shape of a metric of several runs, within a range of steps.

    They are the lowest and highest values of parts of the range, and no sample.
    """
    name, uids = fields.text("metric_key"), _runs(fields)
    most = _most(fields, _INTERVAL_POINTS)
    low = _step(fields, "start_step", -LARGEST_STEP)
    high = _step(fields, "end_step", LARGEST_STEP)
    point_range = PointRange(low, high, max(2, most // max(1, len(uids))))
    shown: list[dict[str, Any]] = []
    for uid in uids:
        run = here.runs.find(call.org, uid)
        shown += [
            shapes.point(name, one, uid) for one in here.history.sample(run, name, point_range)
        ]
    return {"metrics": shown}


def _runs(fields: RequestFields) -> list[str]:
    found = fields.texts("run_ids", "run_id", most=_MOST_RUNS)
    if not found:
        raise common.refuse("run_ids", "nothing", f"1 to {_MOST_RUNS} runs")
    return found


def _most(fields: RequestFields, most: int) -> int:
    max_results = fields.integer("max_results", most)
    if max_results < 1:
        raise common.refuse("max_results", max_results, f"1 to {most}")
    return min(max_results, most)


def _step(fields: RequestFields, name: str, default: int) -> int:
    step = fields.integer(name, default)
    if abs(step) > LARGEST_STEP:
        raise common.refuse(name, step, f"{-LARGEST_STEP} to {LARGEST_STEP}")
    return step
