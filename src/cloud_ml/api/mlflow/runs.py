"""``runs/…``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.mlflow import shapes
from cloud_ml.api.mlflow.experiments import page_number, view_of
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.mlflow.metric_values import check_time, read_value, read_values
from cloud_ml.api.platform import Platform
from cloud_ml.domain.tracking.runs import DEFAULT_EXPERIMENT, RunChange, RunState
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.tracking.run_keys import check_key

MOST_METRICS, MOST_PARAMS, MOST_TAGS, MOST_ENTITIES = 1000, 100, 100, 1000
"""Of one batch, as in MLflow."""
MOST_RUNS, _PAGE = 50_000, 1000
_MOST_ORDERS, _MOST_EXPERIMENTS, _MOST_DATASETS = 10, 1000, 100
_OF_DATA_SETS = ("digest", "source_type", "source", "schema", "profile")
_LONGEST_OF_DATA_SET = 100_000
Answer = Mapping[str, Any]


def create_run(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Make a run."""
    start = fields.integer("start_time", 0)
    made = here.runs.create(
        call.caller,
        fields.text("experiment_id", default=DEFAULT_EXPERIMENT),
        fields.text("run_name", default=""),
        start=check_time("start_time", start) or None,
        tags=fields.pairs("tags", most=MOST_TAGS),
        once=call.once,
    )
    return {"run": shapes.run(made)}


def get_run(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """A run with what was logged to it."""
    return {"run": shapes.run(here.runs.describe(call.org, _run_id(fields)))}


def update_run(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Change state, end and name of a run."""
    uid = _run_id(fields)
    state = fields.any("status")
    end = fields.integer("end_time", 0)
    change = RunChange(
        name=fields.text("run_name", default="") or None,
        state=None if state is None else _state(state),
        end=check_time("end_time", end) or None,
    )
    row = here.runs.change(call.caller, uid, change, once=call.once)
    return {"run_info": shapes.run_info(row)}


def delete_run(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Hide a run."""
    change = RunChange(deleted=True)
    here.runs.change(call.caller, _run_id(fields), change, once=call.once)
    return {}


def restore_run(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Show a run again."""
    change = RunChange(deleted=False)
    here.runs.change(call.caller, _run_id(fields), change, once=call.once)
    return {}


def search_runs(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Runs that fulfil a filter. A page has at most 1000, whatever is asked for."""
    most = fields.integer("max_results", _PAGE)
    if not 1 <= most <= MOST_RUNS:
        raise common.refuse("max_results", most, f"1 to {MOST_RUNS}")
    found, following = here.runs.search(
        call.org,
        experiments=fields.texts("experiment_ids", most=_MOST_EXPERIMENTS),
        text=fields.text("filter", default=""),
        order=fields.texts("order_by", most=_MOST_ORDERS),
        view=view_of(fields, "run_view_type"),
        after=page_number(fields) or None,
        limit=min(most, _PAGE),
    )
    answer: dict[str, Any] = {"runs": [shapes.run(one) for one in found]}
    if following is not None:
        answer["next_page_token"] = str(following)
    return answer


def log_metric(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Log one value of a metric."""
    here.runs.log(call.caller, _run_id(fields), values=[read_value(fields)], once=call.once)
    return {}


def log_parameter(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Log a parameter."""
    params = {fields.text("key"): fields.text("value", default="")}
    here.runs.log(call.caller, _run_id(fields), params=params, once=call.once)
    return {}


def log_batch(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Log metrics, parameters and tags together."""
    values = read_values(fields.documents("metrics", most=MOST_METRICS))
    params = fields.pairs("params", most=MOST_PARAMS)
    tags = fields.pairs("tags", most=MOST_TAGS)
    count = len(values) + len(params) + len(tags)
    if count > MOST_ENTITIES:
        most = f"at most {MOST_ENTITIES} metrics, params and tags together"
        raise common.refuse("metrics", f"{count} entries", most)
    here.runs.log(
        call.caller, _run_id(fields), values=values, params=params, tags=tags, once=call.once
    )
    return {}


def set_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set a tag."""
    tags = {fields.text("key"): fields.text("value", default="")}
    here.runs.log(call.caller, _run_id(fields), tags=tags, once=call.once)
    return {}


def delete_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove a tag."""
    key = check_key("key", fields.text("key"))
    here.runs.log(call.caller, _run_id(fields), removed_tags=[key], once=call.once)
    return {}


def log_inputs(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Note the data sets that a run has read."""
    inputs = [_data_set(one) for one in fields.objects("datasets", most=_MOST_DATASETS)]
    inputs += [
        {"model_input": {"model_id": common.check_text("model_id", one.text("model_id"))}}
        for one in fields.objects("models", most=_MOST_DATASETS)
    ]
    here.runs.add_inputs(call.caller, _run_id(fields), inputs, once=call.once)
    return {}


def _data_set(fields: RequestFields) -> Mapping[str, Any]:
    """What MLflow has of a data set. Other names are those of our own entries.

    Raises:
        InvalidRequest: It has no name, or something of it is no text that a search can compare.
    """
    dataset = fields.any("dataset")
    if not isinstance(dataset, dict):
        raise common.refuse("dataset", str(dataset)[:80], "an object of name, digest and source")
    texts = RequestFields(dataset)
    given = {name: texts.text(name, default="") for name in _OF_DATA_SETS}
    tags = fields.pairs("tags", most=_MOST_DATASETS)
    return {
        "dataset": {
            "name": _checked("dataset.name", texts.text("name")),
            **{name: _checked(f"dataset.{name}", value) for name, value in given.items() if value},
        },
        "tags": [
            {"key": _checked("tags.key", key), "value": _checked("tags.value", value)}
            for key, value in tags.items()
        ],
    }


def _checked(field: str, value: Any) -> str:
    return common.check_text(field, value, limit=_LONGEST_OF_DATA_SET, allow_empty=True)


def log_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Note a model of a run, as clients before MLflow 3 do: in a tag."""
    uid = _run_id(fields)
    try:
        model = json.loads(fields.text("model_json"))
    except (ValueError, RecursionError):
        raise common.refuse("model_json", "a text", "JSON") from None
    if not isinstance(model, dict):
        raise common.refuse("model_json", "a text", "a JSON object")
    here.runs.log(call.caller, uid, models=[model], once=call.once)
    return {}


def _run_id(fields: RequestFields) -> str:
    return fields.text("run_id", "run_uuid")


def _state(value: Any) -> RunState:
    # By its number in the enum, as JSON of protocol buffers may have it.
    if isinstance(value, int) and 1 <= value <= len(RunState):
        return list(RunState)[value - 1]
    if not isinstance(value, str) or value not in set(RunState):
        raise InvalidRequest(
            f"status is {str(value)[:80]!r}; allowed is one of {', '.join(RunState)}",
            field="status", value=str(value)[:80], allowed=", ".join(RunState),
        )  # fmt: skip
    return RunState(value)
