"""``logged-models/…``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.mlflow import shapes
from cloud_ml.api.mlflow.experiments import page_number
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.domain.tracking.models import LoggedModelSpec
from cloud_ml.domain.tracking.runs import DEFAULT_EXPERIMENT
from cloud_ml.models import common
from cloud_ml.usecases.tracking.logged_models import model_state

Answer = Mapping[str, Any]
_MOST_PAIRS, _MOST_RESULTS, _MOST_EXPERIMENTS, _MOST_ORDERS, _MOST_OUTPUTS = (
    1000,
    100,
    1000,
    10,
    100,
)


def create_logged_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Note a model whose files come next."""
    spec = LoggedModelSpec(
        experiment=fields.text("experiment_id", default=DEFAULT_EXPERIMENT),
        name=fields.text("name", default=""),
        model_type=fields.text("model_type", default=""),
        source_run=fields.text("source_run_id", default=""),
        params=fields.pairs("params", most=_MOST_PAIRS),
        tags=fields.pairs("tags", most=_MOST_PAIRS),
    )
    return shapes.model(here.logged_models.create(call.caller, spec, once=call.once))


def get_logged_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """A model."""
    return shapes.model(here.logged_models.find(call.org, fields.text("model")))


def finalize_logged_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set the state of a model."""
    state = model_state(fields.any("status"))
    return shapes.model(
        here.logged_models.change(call.caller, fields.text("model"), state=state, once=call.once)
    )


def delete_logged_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Forget a model."""
    here.logged_models.delete(call.caller, fields.text("model"), once=call.once)
    return {}


def log_logged_model_params(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Add parameters."""
    params = fields.pairs("params", most=_MOST_PAIRS)
    here.logged_models.change(call.caller, fields.text("model"), params=params, once=call.once)
    return {}


def set_logged_model_tags(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set tags."""
    tags = fields.pairs("tags", most=_MOST_PAIRS)
    return shapes.model(
        here.logged_models.change(call.caller, fields.text("model"), tags=tags, once=call.once)
    )


def delete_logged_model_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove a tag."""
    key = fields.text("key")
    return shapes.model(
        here.logged_models.change(
            call.caller, fields.text("model"), removed_tags=[key], once=call.once
        )
    )


def search_logged_models(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Models that fulfil a filter."""
    most = fields.integer("max_results", _MOST_RESULTS)
    if most < 1:
        raise common.refuse("max_results", most, f"1 to {_MOST_RESULTS}")
    orders = [_order(one) for one in fields.objects("order_by", most=_MOST_ORDERS)]
    found, following = here.logged_models.search(
        call.org,
        set(fields.texts("experiment_ids", most=_MOST_EXPERIMENTS)),
        fields.text("filter", default=""),
        orders,
        after=page_number(fields) or None,
        limit=min(most, _MOST_RESULTS),
    )
    answer: dict[str, Any] = {"models": [shapes.model(one)["model"] for one in found]}
    return answer if following is None else {**answer, "next_page_token": str(following)}


def log_outputs(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Note the models that a run has made."""
    outputs = [
        {
            "model_output": {
                "model_id": common.check_text("model_id", one.text("model_id")),
                "step": one.integer("step", 0),
            }
        }
        for one in fields.objects("models", most=_MOST_OUTPUTS)
    ]
    here.runs.add_inputs(call.caller, fields.text("run_id"), outputs, once=call.once)
    return {}


def _order(field: RequestFields) -> str:
    name = field.text("field_name")
    return f"{name} {'DESC' if field.any('ascending') is False else 'ASC'}"
