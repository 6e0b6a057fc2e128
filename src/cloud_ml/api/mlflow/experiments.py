"""``experiments/…``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.mlflow import shapes
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.domain.tracking.runs import View
from cloud_ml.errors import NotFound
from cloud_ml.models import common

MOST_RESULTS = 50_000
_MOST_ORDERS = 10
Answer = Mapping[str, Any]


def create_experiment(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Make an experiment."""
    tags = fields.pairs("tags", most=200)
    made = here.experiments.create(call.caller, fields.text("name"), tags, once=call.once)
    return {"experiment_id": made.id}


def get_experiment(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """An experiment by its id."""
    found = here.experiments.get(call.org, fields.text("experiment_id"))
    return {"experiment": shapes.experiment(found)}


def get_experiment_by_name(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """An experiment by its name."""
    name = fields.text("experiment_name")
    found = here.experiments.find_named(call.org, name)
    if found is None:
        raise NotFound(
            f"there is no experiment {name[:200]!r}", field="experiment_name", value=name[:200]
        )
    return {"experiment": shapes.experiment(found)}


def search_experiments(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Experiments that fulfil a filter."""
    most = fields.integer("max_results", 1000)
    if not 1 <= most <= MOST_RESULTS:
        raise common.refuse("max_results", most, f"1 to {MOST_RESULTS}")
    found = here.experiments.search(
        call.org,
        fields.text("filter", default=""),
        fields.texts("order_by", most=_MOST_ORDERS),
        view_of(fields, "view_type"),
    )
    first = page_number(fields)
    shown = found[first : first + most]
    answer: dict[str, Any] = {"experiments": [shapes.experiment(one) for one in shown]}
    if first + most < len(found):
        answer["next_page_token"] = str(first + most)
    return answer


def update_experiment(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Give an experiment another name."""
    id_, name = fields.text("experiment_id"), fields.text("new_name")
    here.experiments.rename(call.caller, id_, name, once=call.once)
    return {}


def delete_experiment(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Hide an experiment."""
    here.experiments.delete(call.caller, fields.text("experiment_id"), once=call.once)
    return {}


def restore_experiment(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Show an experiment again."""
    here.experiments.restore(call.caller, fields.text("experiment_id"), once=call.once)
    return {}


def set_experiment_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set a tag."""
    id_, key = fields.text("experiment_id"), fields.text("key")
    value = fields.text("value", default="")
    here.experiments.tag(call.caller, id_, {key: value}, once=call.once)
    return {}


def delete_experiment_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove a tag."""
    id_, key = fields.text("experiment_id"), fields.text("key")
    here.experiments.tag(call.caller, id_, {}, [key], once=call.once)
    return {}


def view_of(fields: RequestFields, name: str) -> View:
    """Which ones are looked at: active ones, unless a field says otherwise.

    Raises:
        InvalidRequest: The field says nothing that is known.
    """
    value = fields.any(name)
    # JSON of protocol buffers may have a value of an enum by its number.
    by_number = {1: View.ACTIVE, 2: View.DELETED, 3: View.ALL}
    if value is None:
        return View.ACTIVE
    if isinstance(value, int) and value in by_number:
        return by_number[value]
    if isinstance(value, str) and value in set(View):
        return View(value)
    raise common.refuse(name, str(value)[:80], ", ".join(View))


def page_number(fields: RequestFields) -> int:
    """What a token of a page stands for; 0 for the first page.

    Raises:
        InvalidRequest: It is none of ours.
    """
    token = fields.text("page_token", default="")
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise common.refuse("page_token", token[:80], "the token of the page before")
    return int(token)
