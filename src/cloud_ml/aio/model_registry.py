"""Logged and registered models, by the endpoint of MLflow."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.sdk.failures import AlreadyCarriedOut
from cloud_ml.sdk.messages import Request, json_request, segment

_MLFLOW = "/mlflow/api/2.0/mlflow/"
_PAGE = 100


class AsyncModelRegistry:
    """The models of the caller's organisation. Documents are those of MLflow's REST API.

    Every method raises ``Forbidden`` for what the caller's role may not, ``NotFound`` for what is
    absent, and ``CloudMlError`` as ``AsyncTransport.json`` does.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create_logged_model(
        self,
        experiment: str,
        name: str,
        *,
        model_type: str = "",
        source_run: str = "",
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Note a model whose files come next. Returns its id.

        Args:
            experiment: The id of its experiment.
            name: Its name. Several may have one name.
            model_type: What it is, in words of the caller's.
            source_run: The uid of the run that has made it.
            params: Its parameters.
            tags: Its tags.
        """
        document = {
            "experiment_id": experiment,
            "name": name,
            "model_type": model_type,
            "source_run_id": source_run,
            "params": _pairs(params or {}),
            "tags": _pairs(tags or {}),
        }
        made = await self._tell("POST", "logged-models", document)
        return str(made["model"]["info"]["model_id"])

    async def logged_models(self, experiment: str, filter: str = "") -> list[dict[str, Any]]:  # noqa: A002 - as in MLflow
        """The logged models of an experiment that fulfil a filter, newest first."""
        found: list[dict[str, Any]] = []
        token: str | None = ""
        while token is not None:
            document = {
                "experiment_ids": [experiment],
                "filter": filter,
                "max_results": _PAGE,
                "page_token": token,
            }
            request = json_request("POST", _MLFLOW + "logged-models/search", document)
            answer = await self._transport.json(request)
            found += answer.get("models", [])
            token = answer.get("next_page_token") or None
        return found

    async def finish_logged_model(
        self, model: str, state: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Set the state of a logged model, such as ``LOGGED_MODEL_READY``, and tags."""
        path = f"logged-models/{segment(model)}"
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("PATCH", path, {"model_id": model, "status": state})
        if tags:
            pairs = {"model_id": model, "tags": _pairs(tags)}
            with contextlib.suppress(AlreadyCarriedOut):
                await self._tell("PATCH", f"{path}/tags", pairs)

    async def log_outputs(self, run: str, models: Sequence[str]) -> None:
        """Note the logged models that a run has made, by their ids."""
        outputs = [{"model_id": one, "step": 0} for one in models]
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("POST", "runs/outputs", {"run_id": run, "models": outputs})

    async def models(self) -> list[dict[str, Any]]:
        """All registered models with their tags and aliases, among the 5,000 newest."""
        return await self._pages("registered-models/search", "registered_models", "")

    async def model(self, name: str) -> dict[str, Any]:
        """A registered model."""
        request = Request("GET", _MLFLOW + "registered-models/get", query={"name": name})
        found: dict[str, Any] = (await self._transport.json(request))["registered_model"]
        return found

    async def versions(self, name: str) -> list[dict[str, Any]]:
        """The versions of a registered model, the oldest first."""
        mark = '"' if "'" in name else "'"
        text = f"name = {mark}{name}{mark}"
        found = await self._pages("model-versions/search", "model_versions", text)
        return sorted(found, key=lambda one: int(one["version"]))

    async def create_model(
        self, name: str, description: str = "", tags: Mapping[str, str] | None = None
    ) -> None:
        """Register a name.

        Raises:
            AlreadyExists: It is taken.
        """
        document = {"name": name, "description": description, "tags": _pairs(tags or {})}
        await self._tell("POST", "registered-models/create", document)

    async def create_version(
        self,
        name: str,
        source: str,
        *,
        run: str = "",
        logged_model: str = "",
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> int:
        """Add a version to a registered model. Returns its number.

        Args:
            name: The model.
            source: The URI of its files.
            run: The uid of the run that has made it.
            logged_model: The id of the logged model that it is.
            description: What it is.
            tags: Its tags.
        """
        document = {
            "name": name,
            "source": source,
            "run_id": run,
            "model_id": logged_model,
            "description": description,
            "tags": _pairs(tags or {}),
        }
        made = await self._tell("POST", "model-versions/create", document)
        return int(made["model_version"]["version"])

    async def delete_version(self, name: str, number: int) -> None:
        """Forget a version. Its number is not given again."""
        document = {"name": name, "version": str(number)}
        await self._tell("DELETE", "model-versions/delete", document)

    async def set_stage(self, name: str, number: int, stage: str) -> None:
        """Bring a version to a stage."""
        document = {"name": name, "version": str(number), "stage": stage}
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("POST", "model-versions/transition-stage", document)

    async def set_alias(self, name: str, alias: str, number: int) -> None:
        """Have an alias point to a version."""
        document = {"name": name, "alias": alias, "version": str(number)}
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("POST", "registered-models/alias", document)

    async def set_tag(self, name: str, key: str, value: str) -> None:
        """Set a tag of a registered model."""
        document = {"name": name, "key": key, "value": value}
        with contextlib.suppress(AlreadyCarriedOut):
            await self._tell("POST", "registered-models/set-tag", document)

    async def _pages(self, path: str, name: str, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        token: str | None = ""
        while token is not None:
            query = {"filter": text or None, "max_results": _PAGE, "page_token": token or None}
            answer = await self._transport.json(Request("GET", _MLFLOW + path, query=query))
            found += answer.get(name, [])
            token = answer.get("next_page_token") or None
        return found

    async def _tell(self, method: str, path: str, document: Mapping[str, Any]) -> Any:
        request = json_request(method, _MLFLOW + path, document, once=True)
        return await self._transport.json(request)


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]
