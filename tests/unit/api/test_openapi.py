from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.platform import Served

pytestmark = pytest.mark.anyio


@pytest.fixture
async def document(served: Served) -> dict[str, Any]:
    answer: dict[str, Any] = (await served.client.send("GET", "/api/v1/openapi.json")).json()
    return answer


async def test_the_modern_surface_is_described_and_only_that(document: dict[str, Any]) -> None:
    assert {
        (path, method) for path, methods in document["paths"].items() for method in methods
    } == {
        ("/api/v1/jobs", "get"),
        ("/api/v1/jobs", "post"),
        ("/api/v1/jobs/check", "post"),
        ("/api/v1/jobs/{name}", "get"),
        ("/api/v1/jobs/{name}", "delete"),
        ("/api/v1/jobs/{name}/cancel", "post"),
        ("/api/v1/jobs/{name}/reproduce", "post"),
        ("/api/v1/jobs/{name}/reproduce/{again}", "get"),
        ("/api/v1/jobs/{name}/clone", "post"),
        ("/api/v1/jobs/{name}/start", "post"),
        ("/api/v1/jobs/{name}/pause", "post"),
        ("/api/v1/jobs/{name}/resume", "post"),
        ("/api/v1/jobs/{name}/stacks", "post"),
        ("/api/v1/jobs/{name}/restart", "post"),
        ("/api/v1/jobs/{name}/events", "get"),
        ("/api/v1/jobs/{name}/events/watch", "get"),
        ("/api/v1/jobs/{name}/logs", "get"),
        ("/api/v1/jobs/-/watch", "get"),
        ("/api/v1/jobs/{name}/watch", "get"),
        ("/api/v1/jobs/{name}/tasks", "get"),
        ("/api/v1/jobs/{name}/tasks/{task}", "get"),
        ("/api/v1/jobs/{name}/checkpoints", "get"),
        ("/api/v1/experiments", "get"),
        ("/api/v1/experiments/-/watch", "get"),
        ("/api/v1/experiments/{experiment}", "get"),
        ("/api/v1/experiments/{experiment}/watch", "get"),
        ("/api/v1/experiments/{experiment}/active", "get"),
        ("/api/v1/runs", "get"),
        ("/api/v1/runs/compare", "get"),
        ("/api/v1/runs/-/watch", "get"),
        ("/api/v1/runs/{run}", "get"),
        ("/api/v1/runs/{run}/watch", "get"),
        ("/api/v1/runs/{run}", "delete"),
        ("/api/v1/runs/{run}/series", "get"),
        ("/api/v1/runs/{run}/series/{metric}", "get"),
        ("/api/v1/jobs/{name}/series", "get"),
        ("/api/v1/jobs/{name}/series/{metric}", "get"),
        ("/api/v1/jobs/{name}/outputs", "get"),
        ("/api/v1/jobs/{name}/outputs/{path}", "get"),
        ("/api/v1/models", "get"),
        ("/api/v1/models", "post"),
        ("/api/v1/models/{name}/{version}", "get"),
        ("/api/v1/models/{name}/{version}", "patch"),
        ("/api/v1/models/{name}/{version}", "delete"),
        ("/api/v1/models/{name}/{version}/start", "post"),
        ("/api/v1/models/{name}/{version}/stop", "post"),
        ("/api/v1/models/{name}/{version}/promote", "post"),
        ("/api/v1/models/{name}/{version}/rollback", "post"),
        ("/api/v1/models/{name}/{version}/events", "get"),
        ("/api/v1/models/{name}/{version}/events/watch", "get"),
        ("/api/v1/models/{name}/{version}/watch", "get"),
        ("/api/v1/models/-/watch", "get"),
        ("/api/v1/models/{name}/{version}/logs", "get"),
        ("/api/v1/models/{name}/{version}/metrics", "get"),
        ("/api/v1/models/{name}/{version}/signatures", "get"),
        ("/api/v1/models/{name}/{version}/lineage", "get"),
        ("/api/v1/tokens", "get"),
        ("/api/v1/tokens", "post"),
        ("/api/v1/tokens/{token}", "get"),
        ("/api/v1/tokens/{token}", "delete"),
        ("/api/v1/secrets", "get"),
        ("/api/v1/secrets", "post"),
        ("/api/v1/secrets/{name}", "get"),
        ("/api/v1/secrets/{name}", "delete"),
        ("/api/v1/tensorboards", "get"),
        ("/api/v1/tensorboards", "post"),
        ("/api/v1/tensorboards/-/watch", "get"),
        ("/api/v1/tensorboards/{name}", "get"),
        ("/api/v1/tensorboards/{name}", "delete"),
        ("/api/v1/tensorboards/{name}/open", "post"),
        ("/api/v1/tensorboards/{name}/logs", "get"),
        ("/api/v1/tensorboards/{name}/events", "get"),
        ("/api/v1/tensorboards/{name}/events/watch", "get"),
        ("/api/v1/tensorboards/{name}/watch", "get"),
        ("/api/v1/studies", "get"),
        ("/api/v1/studies", "post"),
        ("/api/v1/studies/-/watch", "get"),
        ("/api/v1/studies/{name}", "get"),
        ("/api/v1/studies/{name}", "delete"),
        ("/api/v1/studies/{name}/stop", "post"),
        ("/api/v1/studies/{name}/pause", "post"),
        ("/api/v1/studies/{name}/resume", "post"),
        ("/api/v1/studies/{name}/extend", "post"),
        ("/api/v1/studies/{name}/enqueue", "post"),
        ("/api/v1/studies/{name}/keep", "post"),
        ("/api/v1/studies/{name}/importance", "get"),
        ("/api/v1/studies/{name}/curves", "get"),
        ("/api/v1/studies/{name}/ask", "post"),
        ("/api/v1/optuna/{method}", "post"),
        ("/api/v1/studies/{name}/tell", "post"),
        ("/api/v1/studies/{name}/report", "post"),
        ("/api/v1/studies/{name}/events", "get"),
        ("/api/v1/studies/{name}/events/watch", "get"),
        ("/api/v1/studies/{name}/watch", "get"),
        ("/api/v1/storage", "get"),
        ("/api/v1/storage/-/usage", "get"),
        ("/api/v1/storage/-/usage/{bucket}", "get"),
        ("/api/v1/storage/-/unnameable/{bucket}", "get"),
        ("/api/v1/storage/-/unnameable/{bucket}/{name}", "delete"),
        ("/api/v1/storage/-/copy", "post"),
        ("/api/v1/storage/-/batch/{bucket}", "post"),
        ("/api/v1/storage/-/read/{bucket}", "post"),
        ("/api/v1/storage/-/uploads/{bucket}", "get"),
        ("/api/v1/storage/-/uploads/{bucket}", "post"),
        ("/api/v1/storage/-/uploads/{bucket}/{upload}", "get"),
        ("/api/v1/storage/-/uploads/{bucket}/{upload}", "delete"),
        ("/api/v1/storage/-/uploads/{bucket}/{upload}", "patch"),
        ("/api/v1/storage/-/uploads/{bucket}/{upload}/complete", "post"),
        ("/api/v1/storage/-/uploads/{bucket}/{upload}/parts/{number}", "put"),
        ("/api/v1/storage/{bucket}", "delete"),
        ("/api/v1/storage/{bucket}", "get"),
        ("/api/v1/storage/{bucket}", "put"),
        ("/api/v1/storage/{bucket}/{key}", "get"),
        ("/api/v1/storage/{bucket}/{key}", "head"),
        ("/api/v1/storage/{bucket}/{key}", "put"),
        ("/api/v1/storage/{bucket}/{key}", "delete"),
        ("/api/v1/admin/orgs", "get"),
        ("/api/v1/admin/orgs", "post"),
        ("/api/v1/admin/orgs/{org}", "get"),
        ("/api/v1/admin/orgs/{org}", "patch"),
        ("/api/v1/admin/orgs/{org}", "delete"),
        ("/api/v1/admin/users", "get"),
        ("/api/v1/admin/users", "post"),
        ("/api/v1/admin/users/{user}", "get"),
        ("/api/v1/admin/users/{user}", "patch"),
        ("/api/v1/admin/users/{user}", "delete"),
        ("/api/v1/admin/keys", "get"),
        ("/api/v1/admin/keys", "post"),
        ("/api/v1/admin/keys/{access_key}", "get"),
        ("/api/v1/admin/keys/{access_key}", "patch"),
        ("/api/v1/admin/keys/{access_key}", "delete"),
        ("/api/v1/admin/keys/{access_key}/rotate", "post"),
        ("/api/v1/admin/audit", "get"),
        ("/api/v1/admin/quota", "get"),
        ("/api/v1/admin/quota/{org}", "put"),
        ("/api/v1/admin/quota/applications", "get"),
        ("/api/v1/admin/quota/applications", "post"),
        ("/api/v1/admin/quota/applications/{application}/approve", "post"),
        ("/api/v1/admin/quota/applications/{application}/decline", "post"),
        ("/api/v1/whoami", "get"),
        ("/api/v1/frameworks", "get"),
        ("/api/v1/runtimes", "get"),
        ("/api/v1/runtimes/{framework}", "get"),
        ("/api/v1/runtimes/{framework}", "delete"),
        ("/api/v1/runtimes/{framework}/prepare", "post"),
        ("/api/v1/server", "get"),
        ("/metrics", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
    }


async def test_bodies_and_answers_are_the_wire_types(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["TrainJob"]["properties"]) == {
        field.name for field in dataclasses.fields(TrainJob)
    }
    assert set(schemas["Job"]["properties"]) == {field.name for field in dataclasses.fields(Job)}
    submit = document["paths"]["/api/v1/jobs"]["post"]
    assert submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/TrainJob"
    )
    assert submit["responses"]["201"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/Job"
    )


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for item in value.values() for found in references(item)]
        return (
            [found for item in value for found in references(item)]
            if isinstance(value, list)
            else []
        )

    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names <= set(document["components"]["schemas"])


async def test_every_answer_documents_the_error(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert bool(operation["security"]) == path.startswith("/api/")
            if path.startswith("/api/"):
                error = operation["responses"]["default"]["content"]["application/json"]["schema"][
                    "$ref"
                ]
                assert error.endswith("/Error")


async def test_no_number_is_too_large_to_be_refused(
    served: Served, document: dict[str, Any]
) -> None:
    count = 0
    for path, methods in document["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query" and "integer" in str(parameter["schema"]):
                for number in (10**31, -(10**31)):
                    target = f"{re.sub('{.*?}', '1', path)}?{parameter['name']}={number}"
                    assert 400 <= (await served.admin.call("GET", target)).status < 500, target
                    count += 1
    assert count > 10
