"""The routes of MLflow's API. Each calls one function, which blocks, on a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cloud_ml.api import documents
from cloud_ml.api.auth import Call, Signed, SignedQuestion
from cloud_ml.api.mlflow import (
    artifact_uploads,
    artifacts,
    experiments,
    metrics,
    models,
    registry,
    runs,
)
from cloud_ml.api.mlflow.fields import RequestFields
from cloud_ml.api.platform import Platform
from cloud_ml.api.routes import Here
from cloud_ml.state.base import Once

API = "/mlflow/api/2.0/mlflow"
_VERSION = "3.17.2"
"""The version of MLflow whose API this is: clients ask for it."""

Operation = Callable[[Platform, Call, RequestFields], Mapping[str, Any]]

router = APIRouter(default_response_class=Response, include_in_schema=False)

CHANGES: Mapping[str, Operation] = {
    "POST /experiments/create": experiments.create_experiment,
    "POST /experiments/update": experiments.update_experiment,
    "POST /experiments/delete": experiments.delete_experiment,
    "POST /experiments/restore": experiments.restore_experiment,
    "POST /experiments/set-experiment-tag": experiments.set_experiment_tag,
    "POST /experiments/delete-experiment-tag": experiments.delete_experiment_tag,
    "POST /runs/create": runs.create_run,
    "POST /runs/update": runs.update_run,
    "POST /runs/delete": runs.delete_run,
    "POST /runs/restore": runs.restore_run,
    "POST /logged-models": models.create_logged_model,
    "PATCH /logged-models/{model}": models.finalize_logged_model,
    "DELETE /logged-models/{model}": models.delete_logged_model,
    "POST /registered-models/create": registry.create_registered_model,
    "PATCH /registered-models/update": registry.update_registered_model,
    "POST /registered-models/rename": registry.rename_registered_model,
    "DELETE /registered-models/delete": registry.delete_registered_model,
    "POST /registered-models/alias": registry.set_registered_model_alias,
    "DELETE /registered-models/alias": registry.delete_registered_model_alias,
    "POST /model-versions/create": registry.create_model_version,
    "PATCH /model-versions/update": registry.update_model_version,
    "DELETE /model-versions/delete": registry.delete_model_version,
    "POST /model-versions/transition-stage": registry.transition_stage,
}
"""Changes that stand in the audit log."""
LOGS: Mapping[str, Operation] = {
    "POST /runs/log-metric": runs.log_metric,
    "POST /runs/log-parameter": runs.log_parameter,
    "POST /runs/log-batch": runs.log_batch,
    "POST /runs/set-tag": runs.set_tag,
    "POST /runs/delete-tag": runs.delete_tag,
    "POST /runs/log-inputs": runs.log_inputs,
    "POST /runs/log-model": runs.log_model,
    "POST /runs/outputs": models.log_outputs,
    "POST /logged-models/{model}/params": models.log_logged_model_params,
    "PATCH /logged-models/{model}/tags": models.set_logged_model_tags,
    "DELETE /logged-models/{model}/tags/{key}": models.delete_logged_model_tag,
    "POST /registered-models/set-tag": registry.set_registered_model_tag,
    "DELETE /registered-models/delete-tag": registry.delete_registered_model_tag,
    "POST /model-versions/set-tag": registry.set_model_version_tag,
    "DELETE /model-versions/delete-tag": registry.delete_model_version_tag,
}
"""Changes that come many times a second, and do not stand there."""
QUESTIONS: Mapping[str, Operation] = {
    "GET /experiments/get": experiments.get_experiment,
    "GET /experiments/get-by-name": experiments.get_experiment_by_name,
    "GET /experiments/search": experiments.search_experiments,
    "POST /experiments/search": experiments.search_experiments,
    "GET /runs/get": runs.get_run,
    "POST /runs/search": runs.search_runs,
    "GET /metrics/get-history": metrics.get_history,
    "GET /metrics/get-history-bulk": metrics.get_history_bulk,
    "GET /metrics/get-history-bulk-interval": metrics.get_history_bulk_interval,
    "GET /artifacts/list": artifacts.list_artifacts,
    "POST /logged-models/search": models.search_logged_models,
    "GET /logged-models/{model}": models.get_logged_model,
    "GET /registered-models/get": registry.get_registered_model,
    "GET /registered-models/search": registry.search_registered_models,
    "GET /registered-models/get-latest-versions": registry.get_latest_versions,
    "POST /registered-models/get-latest-versions": registry.get_latest_versions,
    "GET /registered-models/alias": registry.get_model_version_by_alias,
    "GET /model-versions/get": registry.get_model_version,
    "GET /model-versions/search": registry.search_model_versions,
    "GET /model-versions/get-download-uri": registry.get_download_uri,
}


_LONG = (
    experiments.search_experiments,
    runs.search_runs,
    metrics.get_history,
    metrics.get_history_bulk,
    metrics.get_history_bulk_interval,
    artifacts.list_artifacts,
    models.search_logged_models,
    registry.search_registered_models,
    registry.search_model_versions,
)
"""The caller decides how long these take: each organisation has its share of threads for them."""


def _add(name: str, operation: Operation, *, changes: bool, audited: bool = True) -> None:
    method, _, path = name.partition(" ")

    async def change(here: Here, call: Signed, request: Request) -> Response:
        call = call if audited else _not_audited(here, call)
        fields = RequestFields.read(request, call.body)
        return documents.answer(dict(await here.offload(operation, here, call, fields)))

    async def ask(here: Here, call: SignedQuestion, request: Request) -> Response:
        fields = RequestFields.read(request, call.body)
        if operation in _LONG:
            return documents.answer_numbers(
                dict(await here.offload.long(call.org, operation, here, call, fields))
            )
        return documents.answer(dict(await here.offload(operation, here, call, fields)))

    endpoint = change if changes else ask
    # The audit log names the operation by the function.
    endpoint.__name__, endpoint.__module__ = operation.__name__, operation.__module__
    endpoint.__doc__ = operation.__doc__
    router.add_api_route(API + path, endpoint, methods=[method])


def _not_audited(here: Platform, call: Call) -> Call:
    """The call without an entry in the audit log, and without a mark where nothing can be sent
    again.
    """
    once: Once | None = call.once
    if once is not None:
        once = replace(once, entry=None) if once.expires_at > here.clock() else None
    return replace(call, once=once)


for _name, _operation in QUESTIONS.items():
    _add(_name, _operation, changes=False)
for _name, _operation in CHANGES.items():
    _add(_name, _operation, changes=True)
for _name, _operation in LOGS.items():
    _add(_name, _operation, changes=True, audited=False)
ROUTERS = (router, artifacts.router, artifact_uploads.router)


@router.get("/mlflow/health")
async def health() -> Response:
    """Whether the server answers."""
    return PlainTextResponse("OK")


@router.get("/mlflow/version")
async def version() -> Response:
    """The version of MLflow whose API this is."""
    return PlainTextResponse(_VERSION)
