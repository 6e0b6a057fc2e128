"""``registered-models/…`` and ``model-versions/…``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.api.auth import Call
from cloud_ml.api.mlflow import shapes
from cloud_ml.api.mlflow.experiments import page_number
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.domain.tracking.artifacts import model_uri
from cloud_ml.domain.tracking.registry import ModelVersionSpec
from cloud_ml.models import common

_MOST_TAGS, _MOST_STAGES, _MOST_ORDERS = 1000, 10, 10
_MODELS, _MOST_MODELS, _VERSIONS, _MOST_VERSIONS = 100, 1000, 10_000, 200_000
_PAGE = 1000
_LOGGED_MODEL = "models:/"
Answer = Mapping[str, Any]


def create_registered_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Register a model's name."""
    made = here.registry.create(
        call.caller,
        fields.text("name"),
        fields.pairs("tags", most=_MOST_TAGS),
        fields.text("description", default=""),
        once=call.once,
    )
    return {"registered_model": shapes.registered_model(made)}


def get_registered_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """A registered model."""
    found = here.registry.get(call.org, fields.text("name"))
    return {"registered_model": shapes.registered_model(found)}


def update_registered_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Describe a registered model."""
    name, text = fields.text("name"), fields.text("description", default="")
    changed = here.registry.update(call.caller, name, text, once=call.once)
    return {"registered_model": shapes.registered_model(changed)}


def rename_registered_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Give a registered model another name."""
    name, new_name = fields.text("name"), fields.text("new_name")
    changed = here.registry.rename(call.caller, name, new_name, once=call.once)
    return {"registered_model": shapes.registered_model(changed)}


def delete_registered_model(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Forget a registered model and its versions."""
    here.registry.delete(call.caller, fields.text("name"), once=call.once)
    return {}


def search_registered_models(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Registered models that fulfil a filter."""
    most, first = _most(fields, _MODELS, _MOST_MODELS), page_number(fields)
    text, order = _filter(fields)
    found = here.registry_search.models(call.org, text, order)
    shown = [
        shapes.registered_model(here.registry.described(record))
        for _, record in found[first : first + most]
        if record is not None
    ]
    return _page("registered_models", shown, first + most, len(found))


def get_latest_versions(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """The newest version of each stage."""
    stages = fields.texts("stages", most=_MOST_STAGES)
    found = here.registry.latest(call.org, fields.text("name"), stages)
    return {"model_versions": [shapes.model_version(one) for one in found]}


def set_registered_model_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set a tag of a registered model."""
    tags = {fields.text("key"): fields.text("value", default="")}
    here.registry.tag(call.caller, fields.text("name"), tags, once=call.once)
    return {}


def delete_registered_model_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove a tag of a registered model."""
    removed = [fields.text("key")]
    here.registry.tag(call.caller, fields.text("name"), {}, removed, once=call.once)
    return {}


def set_registered_model_alias(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Have an alias point to a version."""
    name, alias = fields.text("name"), fields.text("alias")
    here.registry.set_alias(call.caller, name, alias, _version(fields), once=call.once)
    return {}


def delete_registered_model_alias(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove an alias."""
    name, alias = fields.text("name"), fields.text("alias")
    here.registry.delete_alias(call.caller, name, alias, once=call.once)
    return {}


def get_model_version_by_alias(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """The version that an alias points to."""
    found = here.registry.by_alias(call.org, fields.text("name"), fields.text("alias"))
    return {"model_version": shapes.model_version(found)}


def create_model_version(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Add a version to a registered model."""
    spec = ModelVersionSpec(
        model="",
        number=0,
        source=fields.text("source"),
        run=fields.text("run_id", default=""),
        run_link=fields.text("run_link", default=""),
        logged_model=fields.text("model_id", default=""),
        description=fields.text("description", default=""),
        tags=fields.pairs("tags", most=_MOST_TAGS),
    )
    if spec.run:
        here.runs.find(call.org, spec.run)
    if spec.logged_model:
        here.logged_models.find(call.org, spec.logged_model)
    made = here.registry.create_version(call.caller, fields.text("name"), spec, once=call.once)
    return {"model_version": shapes.model_version(made)}


def get_model_version(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """A version."""
    found = here.registry.version(call.org, fields.text("name"), _version(fields))
    return {"model_version": shapes.model_version(found)}


def get_download_uri(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Where the files of a version are."""
    found = here.registry.version(call.org, fields.text("name"), _version(fields))
    source = found.record.spec.source
    if source.startswith(_LOGGED_MODEL) and "/" not in source.removeprefix(_LOGGED_MODEL):
        source = model_uri(source.removeprefix(_LOGGED_MODEL))
    return {"artifact_uri": source}


def update_model_version(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Describe a version."""
    name, text = fields.text("name"), fields.text("description", default="")
    changed = here.registry.update_version(
        call.caller, name, _version(fields), text, once=call.once
    )
    return {"model_version": shapes.model_version(changed)}


def delete_model_version(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Forget a version."""
    name = fields.text("name")
    here.registry.delete_version(call.caller, name, _version(fields), once=call.once)
    return {}


def transition_stage(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Bring a version to a stage."""
    changed = here.registry.set_stage(
        call.caller,
        fields.text("name"),
        _version(fields),
        fields.text("stage"),
        archive=fields.any("archive_existing_versions") is True,
        once=call.once,
    )
    return {"model_version": shapes.model_version(changed)}


def set_model_version_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Set a tag of a version."""
    tags = {fields.text("key"): fields.text("value", default="")}
    name = fields.text("name")
    here.registry.tag_version(call.caller, name, _version(fields), tags, once=call.once)
    return {}


def delete_model_version_tag(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Remove a tag of a version."""
    name, removed = fields.text("name"), [fields.text("key")]
    here.registry.tag_version(call.caller, name, _version(fields), {}, removed, once=call.once)
    return {}


def search_model_versions(here: Platform, call: Call, fields: RequestFields) -> Answer:
    """Versions that fulfil a filter. A page has at most 1000, whatever is asked for."""
    most = min(_most(fields, _VERSIONS, _MOST_VERSIONS), _PAGE)
    first = page_number(fields)
    text, order = _filter(fields)
    found = here.registry_search.versions(call.org, text, order)
    versions = [here.registry_search.version(uid) for uid in found[first : first + most]]
    shown = [shapes.model_version(one) for one in versions if one is not None]
    return _page("model_versions", shown, first + most, len(found))


def _version(fields: RequestFields) -> object:
    version = fields.any("version")
    return fields.text("version") if version is None else version


def _filter(fields: RequestFields) -> tuple[str, list[str]]:
    return fields.text("filter", default=""), fields.texts("order_by", most=_MOST_ORDERS)


def _most(fields: RequestFields, default: int, most: int) -> int:
    max_results = fields.integer("max_results", default)
    if not 1 <= max_results <= most:
        raise common.refuse("max_results", max_results, f"1 to {most}")
    return max_results


def _page(name: str, shown: list[dict[str, Any]], following: int, count: int) -> Answer:
    answer: dict[str, Any] = {name: shown}
    return {**answer, "next_page_token": str(following)} if following < count else answer
