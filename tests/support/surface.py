"""Every operation of every door, with what it takes and who may ask for it: for tests that ask all
the same of each.

A row's target and body hold names in braces, which ``names`` fills: with what is there, or with
what never was.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloud_ml.api.fds.operations import OPERATIONS, Operation
from cloud_ml.api.mlflow import router as mlflow
from cloud_ml.api.v1_compat import accounts, secret, train
from cloud_ml.api.v1_compat import hp as hp_room
from cloud_ml.api.v1_compat import model as model_room
from cloud_ml.api.v1_compat import tensorboard as board_room
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.records import ParentRef
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.tenancy import Role
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from support import storage_protocol
from support.asgi import Answer
from support.platform import TRAINER, Caller, Served

V1 = "/cloud_ml/v1"
FDS = "fds"
MLFLOW = "/mlflow/api/2.0/mlflow"
ARTIFACTS = "/mlflow/api/2.0/mlflow-artifacts/artifacts"
PARTS = "/mlflow/api/2.0/mlflow-artifacts/mpu"
STORAGE, ADMIN = "/api/v1/storage", "/api/v1/admin"


@dataclass(frozen=True)
class Row:
    """One operation.

    ``least`` is the role that it takes: ``None`` for none at all, not even a key. ``changes`` says
    that it is a mutation; ``taken`` that it tells whether a name is taken, which is the one thing
    that is not hidden; ``traced`` that the audit log has it.
    """

    target: str
    least: Role | None = Role.VIEWER
    changes: bool = False
    body: Any = None
    raw: bytes | None = None
    taken: bool = False
    streams: bool = False
    traced: bool = True

    @property
    def named(self) -> bool:
        """Whether it is about something that may be somebody else's."""
        return re.search(r"\{[a-z_]+\}", self.target + json.dumps(self.body)) is not None


def job(name: str) -> dict[str, Any]:
    return {"job_name": name, "module_name": "trainer.task", "trainer_uri": TRAINER}


def model(name: str) -> dict[str, Any]:
    return {"model_name": name, "model_version": "v1", "model_uri": "fds://cloudml/models"}


def study(name: str) -> dict[str, Any]:
    own = {"module_name": "trainer.task", "trainer_uri": TRAINER}
    return {"name": name, "job": own, "space": {"lr": {"min": 0.1, "max": 0.2}}}


def hp(name: str) -> dict[str, Any]:
    limits = {"name": "lr", "parametertype": "double", "feasible": {"min": "0.1", "max": "0.2"}}
    own = {"module_name": "trainer.task", "trainer_uri": TRAINER}
    return {"hp_name": name, **own, "parametertype_configs": [limits]}


def member(target: str, **more: Any) -> Row:
    return Row(target, Role.MEMBER, changes=True, **more)


def owner(target: str, **more: Any) -> Row:
    return Row(target, Role.OWNER, changes=True, **more)


def admin(target: str, **more: Any) -> Row:
    return Row(target, Role.ADMIN, changes=True, **more)


def log(target: str, **more: Any) -> Row:
    return Row(MLFLOW + "/runs/" + target, Role.MEMBER, changes=True, traced=False, body=more)


def registry(target: str, *, traced: bool = True, **more: Any) -> Row:
    body = {"name": "{registered}", **more}
    return Row(f"{MLFLOW}/{target}", Role.MEMBER, changes=True, traced=traced, body=body)


UPLOADS = STORAGE + "/-/uploads"
KEY, USER = ADMIN + "/keys/{access_key}", ADMIN + "/users/{user}"

ROWS: Mapping[str, Row] = {
    "GET /api/v1/openapi.json": Row("/api/v1/openapi.json", None),
    "GET /healthz": Row("/healthz", None),
    "GET /readyz": Row("/readyz", None),
    "GET /metrics": Row("/metrics", None),  # has a token of its own: test_monitoring
    "GET /api/v1/whoami": Row("/api/v1/whoami"),
    "GET /api/v1/frameworks": Row("/api/v1/frameworks"),
    "GET /api/v1/server": Row("/api/v1/server"),
    "GET /api/v1/runtimes": Row("/api/v1/runtimes"),
    "GET /api/v1/runtimes/{framework}": Row("/api/v1/runtimes/python"),
    "POST /api/v1/runtimes/{framework}/prepare": admin("/api/v1/runtimes/python/prepare"),
    "DELETE /api/v1/runtimes/{framework}": admin("/api/v1/runtimes/python"),
    "GET /api/v1/jobs": Row("/api/v1/jobs"),
    "POST /api/v1/jobs": member("/api/v1/jobs", body=job("fresh")),
    "POST /api/v1/jobs/check": Row("/api/v1/jobs/check", Role.MEMBER, body=job("fresh")),
    "GET /api/v1/jobs/-/watch": Row("/api/v1/jobs/-/watch", streams=True),
    "GET /api/v1/jobs/{name}": Row("/api/v1/jobs/{job}"),
    "DELETE /api/v1/jobs/{name}": member("/api/v1/jobs/{job}"),
    "POST /api/v1/jobs/{name}/clone": member(
        "/api/v1/jobs/{job}/clone", body={"job_name": "fresh", "arguments": {"lr": 0.1}}
    ),
    "POST /api/v1/jobs/{name}/reproduce": member(
        "/api/v1/jobs/{job}/reproduce", body={"job_name": "fresh"}
    ),
    "GET /api/v1/jobs/{name}/reproduce/{again}": Row("/api/v1/jobs/{job}/reproduce/{job}"),
    "POST /api/v1/jobs/{name}/cancel": member("/api/v1/jobs/{job}/cancel"),
    "POST /api/v1/jobs/{name}/start": member("/api/v1/jobs/{job}/start"),
    "POST /api/v1/jobs/{name}/pause": member("/api/v1/jobs/{job}/pause"),
    "POST /api/v1/jobs/{name}/resume": member("/api/v1/jobs/{job}/resume"),
    "POST /api/v1/jobs/{name}/stacks": member("/api/v1/jobs/{job}/stacks"),
    "POST /api/v1/jobs/{name}/restart": member("/api/v1/jobs/{job}/restart"),
    "GET /api/v1/jobs/{name}/events": Row("/api/v1/jobs/{job}/events"),
    "GET /api/v1/jobs/{name}/events/watch": Row("/api/v1/jobs/{job}/events/watch", streams=True),
    "GET /api/v1/jobs/{name}/checkpoints": Row("/api/v1/jobs/{job}/checkpoints"),
    "GET /api/v1/jobs/{name}/series": Row("/api/v1/jobs/{job}/series"),
    "GET /api/v1/jobs/{name}/series/{metric}": Row("/api/v1/jobs/{job}/series/loss"),
    "GET /api/v1/jobs/{name}/outputs": Row("/api/v1/jobs/{job}/outputs"),
    "GET /api/v1/jobs/{name}/outputs/{path}": Row("/api/v1/jobs/{job}/outputs/model.pt"),
    "GET /api/v1/jobs/{name}/tasks": Row("/api/v1/jobs/{job}/tasks"),
    "GET /api/v1/jobs/{name}/tasks/{task}": Row("/api/v1/jobs/{job}/tasks/master-0"),
    "GET /api/v1/jobs/{name}/logs": Row("/api/v1/jobs/{job}/logs"),
    "GET /api/v1/jobs/{name}/watch": Row("/api/v1/jobs/{job}/watch", streams=True),
    "GET /api/v1/models": Row("/api/v1/models"),
    "POST /api/v1/models": member("/api/v1/models", body=model("fresh")),
    "GET /api/v1/models/-/watch": Row("/api/v1/models/-/watch", streams=True),
    "GET /api/v1/models/{name}/{version}/watch": Row(
        "/api/v1/models/{model}/v1/watch", streams=True
    ),
    "GET /api/v1/models/{name}/{version}": Row("/api/v1/models/{model}/v1"),
    "PATCH /api/v1/models/{name}/{version}": member(
        "/api/v1/models/{model}/v1", body={"replicas": 2}
    ),
    "DELETE /api/v1/models/{name}/{version}": member("/api/v1/models/{model}/v1"),
    "POST /api/v1/models/{name}/{version}/start": member("/api/v1/models/{model}/v1/start"),
    "POST /api/v1/models/{name}/{version}/stop": member("/api/v1/models/{model}/v1/stop"),
    "POST /api/v1/models/{name}/{version}/promote": member(
        "/api/v1/models/{model}/v1/promote?release=2"
    ),
    "POST /api/v1/models/{name}/{version}/rollback": member(
        "/api/v1/models/{model}/v1/rollback?release=1"
    ),
    "GET /api/v1/models/{name}/{version}/events": Row("/api/v1/models/{model}/v1/events"),
    "GET /api/v1/models/{name}/{version}/events/watch": Row(
        "/api/v1/models/{model}/v1/events/watch", streams=True
    ),
    "GET /api/v1/models/{name}/{version}/logs": Row("/api/v1/models/{model}/v1/logs"),
    "GET /api/v1/models/{name}/{version}/metrics": Row("/api/v1/models/{model}/v1/metrics"),
    "GET /api/v1/models/{name}/{version}/signatures": Row("/api/v1/models/{model}/v1/signatures"),
    "GET /api/v1/models/{name}/{version}/lineage": Row("/api/v1/models/{model}/v1/lineage"),
    "GET /api/v1/secrets": Row("/api/v1/secrets"),
    "POST /api/v1/secrets": member(
        "/api/v1/secrets", body={"name": "fresh", "data": "aHVudGVyMg=="}
    ),
    "GET /api/v1/secrets/{name}": Row("/api/v1/secrets/{secret}"),
    "DELETE /api/v1/secrets/{name}": member("/api/v1/secrets/{secret}"),
    "GET /api/v1/studies": Row("/api/v1/studies"),
    "POST /api/v1/studies": member("/api/v1/studies", body=study("fresh")),
    "GET /api/v1/studies/-/watch": Row("/api/v1/studies/-/watch", streams=True),
    "GET /api/v1/studies/{name}": Row("/api/v1/studies/{study}"),
    "DELETE /api/v1/studies/{name}": member("/api/v1/studies/{study}"),
    "POST /api/v1/studies/{name}/stop": member("/api/v1/studies/{study}/stop"),
    "POST /api/v1/studies/{name}/pause": member("/api/v1/studies/{study}/pause"),
    "POST /api/v1/studies/{name}/resume": member("/api/v1/studies/{study}/resume"),
    "POST /api/v1/studies/{name}/extend": member(
        "/api/v1/studies/{study}/extend", body={"trials": 2}
    ),
    "POST /api/v1/studies/{name}/enqueue": member(
        "/api/v1/studies/{study}/enqueue", body={"trials": [{"lr": 0.1}]}
    ),
    "POST /api/v1/studies/{name}/keep": member(
        "/api/v1/studies/{study}/keep", body={"keep_checkpoints": "best"}
    ),
    "POST /api/v1/optuna/{method}": member(
        "/api/v1/optuna/CreateNewStudy", raw=b"\x0a\x01\x00\x12\x04made"
    ),
    "POST /api/v1/studies/{name}/ask": member("/api/v1/studies/{local}/ask", body={"key": "a"}),
    "POST /api/v1/studies/{name}/tell": member(
        "/api/v1/studies/{local}/tell", body={"number": 0, "value": 0.5}
    ),
    "POST /api/v1/studies/{name}/report": member(
        "/api/v1/studies/{local}/report", body={"number": 0, "step": 1, "value": 0.5}
    ),
    "GET /api/v1/studies/{name}/importance": Row("/api/v1/studies/{study}/importance"),
    "GET /api/v1/studies/{name}/curves": Row("/api/v1/studies/{study}/curves"),
    "GET /api/v1/studies/{name}/events": Row("/api/v1/studies/{study}/events"),
    "GET /api/v1/studies/{name}/events/watch": Row(
        "/api/v1/studies/{study}/events/watch", streams=True
    ),
    "GET /api/v1/studies/{name}/watch": Row("/api/v1/studies/{study}/watch", streams=True),
    "GET /api/v1/tensorboards": Row("/api/v1/tensorboards"),
    "POST /api/v1/tensorboards": member(
        "/api/v1/tensorboards", body={"name": "fresh", "logdir": "fds://{bucket}/logs"}
    ),
    "GET /api/v1/tensorboards/-/watch": Row("/api/v1/tensorboards/-/watch", streams=True),
    "GET /api/v1/tensorboards/{name}": Row("/api/v1/tensorboards/{board}"),
    "DELETE /api/v1/tensorboards/{name}": member("/api/v1/tensorboards/{board}"),
    "POST /api/v1/tensorboards/{name}/open": Row("/api/v1/tensorboards/{board}/open", changes=True),
    "GET /api/v1/tensorboards/{name}/logs": Row("/api/v1/tensorboards/{board}/logs"),
    "GET /api/v1/tensorboards/{name}/events": Row("/api/v1/tensorboards/{board}/events"),
    "GET /api/v1/tensorboards/{name}/events/watch": Row(
        "/api/v1/tensorboards/{board}/events/watch", streams=True
    ),
    "GET /api/v1/tensorboards/{name}/watch": Row(
        "/api/v1/tensorboards/{board}/watch", streams=True
    ),
    "GET /api/v1/storage": Row(STORAGE),
    "GET /api/v1/storage/-/usage": Row(STORAGE + "/-/usage"),
    "GET /api/v1/storage/-/usage/{bucket}": Row(STORAGE + "/-/usage/{bucket}"),
    "POST /api/v1/storage/-/copy": member(
        STORAGE + "/-/copy",
        body={
            "source_bucket": "{bucket}",
            "source_key": "{key}",
            "bucket": "{own}",
            "key": "copied",
        },
    ),
    "POST /api/v1/storage/-/batch/{bucket}": member(STORAGE + "/-/batch/{bucket}", raw=b""),
    "POST /api/v1/storage/-/read/{bucket}": Row(
        STORAGE + "/-/read/{bucket}", body={"keys": ["chair"]}
    ),
    "GET /api/v1/storage/-/uploads/{bucket}": Row(UPLOADS + "/{bucket}"),
    "POST /api/v1/storage/-/uploads/{bucket}": member(UPLOADS + "/{bucket}", body={"key": "big"}),
    "GET /api/v1/storage/-/uploads/{bucket}/{upload}": Row(UPLOADS + "/{bucket}/{upload}"),
    "DELETE /api/v1/storage/-/uploads/{bucket}/{upload}": member(UPLOADS + "/{bucket}/{upload}"),
    "PUT /api/v1/storage/-/uploads/{bucket}/{upload}/parts/{number}": member(
        UPLOADS + "/{bucket}/{upload}/parts/1", raw=b"part"
    ),
    "PATCH /api/v1/storage/-/uploads/{bucket}/{upload}": member(
        UPLOADS + "/{bucket}/{begun}?offset=0&sha256=" + hashlib.sha256(b"segment").hexdigest(),
        raw=b"segment",
    ),
    "POST /api/v1/storage/-/uploads/{bucket}/{upload}/complete": member(
        UPLOADS + "/{bucket}/{upload}/complete", body={}
    ),
    "GET /api/v1/storage/-/unnameable/{bucket}": Row(STORAGE + "/-/unnameable/{bucket}"),
    "DELETE /api/v1/storage/-/unnameable/{bucket}/{name}": member(
        STORAGE + "/-/unnameable/{bucket}/{odd}"
    ),
    "PUT /api/v1/storage/{bucket}": member(STORAGE + "/{bucket}", taken=True),
    "DELETE /api/v1/storage/{bucket}": member(STORAGE + "/{empty}"),
    "GET /api/v1/storage/{bucket}": Row(STORAGE + "/{bucket}"),
    "HEAD /api/v1/storage/{bucket}/{key}": Row(STORAGE + "/{bucket}/{key}"),
    "GET /api/v1/storage/{bucket}/{key}": Row(STORAGE + "/{bucket}/{key}"),
    "PUT /api/v1/storage/{bucket}/{key}": member(STORAGE + "/{bucket}/{key}", raw=b"new"),
    "DELETE /api/v1/storage/{bucket}/{key}": member(STORAGE + "/{bucket}/{key}"),
    "GET /api/v1/admin/orgs": Row(ADMIN + "/orgs"),
    "POST /api/v1/admin/orgs": admin(ADMIN + "/orgs", body={"name": "fresh"}),
    "GET /api/v1/admin/orgs/{org}": Row(ADMIN + "/orgs/{org}"),
    "PATCH /api/v1/admin/orgs/{org}": admin(ADMIN + "/orgs/{org}", body={"mail": "a@example.com"}),
    "DELETE /api/v1/admin/orgs/{org}": admin(ADMIN + "/orgs/idle"),
    "GET /api/v1/admin/users": Row(ADMIN + "/users?org={org}", Role.OWNER),
    "POST /api/v1/admin/users": owner(ADMIN + "/users?org={org}", body={"name": "fresh"}),
    "GET /api/v1/admin/users/{user}": Row(USER + "?org={org}", Role.OWNER),
    "PATCH /api/v1/admin/users/{user}": owner(USER + "?org={org}", body={"mail": "a@example.com"}),
    "DELETE /api/v1/admin/users/{user}": owner(USER + "?org={org}"),
    "GET /api/v1/admin/keys": Row(ADMIN + "/keys?org={org}"),
    "POST /api/v1/admin/keys": member(ADMIN + "/keys?org={org}", body={}),
    "GET /api/v1/admin/keys/{access_key}": Row(KEY, Role.OWNER),
    "PATCH /api/v1/admin/keys/{access_key}": owner(KEY, body={"legacy_signatures": False}),
    "DELETE /api/v1/admin/keys/{access_key}": owner(KEY),
    "POST /api/v1/admin/keys/{access_key}/rotate": owner(KEY + "/rotate", body={}),
    "GET /api/v1/tokens": Row("/api/v1/tokens?org={org}"),
    "POST /api/v1/tokens": member(
        "/api/v1/tokens", body={"scopes": ["tokens:read"], "expires_in_s": 60}
    ),
    "GET /api/v1/tokens/{token}": Row("/api/v1/tokens/{token}", Role.OWNER),
    "DELETE /api/v1/tokens/{token}": owner("/api/v1/tokens/{token}"),
    "GET /api/v1/admin/audit": Row(ADMIN + "/audit?org={org}", Role.OWNER),
    "GET /api/v1/admin/quota": Row(ADMIN + "/quota?org={org}"),
    "GET /api/v1/admin/quota/applications": Row(ADMIN + "/quota/applications?org={org}"),
    "POST /api/v1/admin/quota/applications": owner(
        ADMIN + "/quota/applications?org={org}",
        body={"service": "jobs", "cpu": "1", "memory": "1G", "gpu": "0"},
    ),
    "POST /api/v1/admin/quota/applications/{application}/approve": admin(
        ADMIN + "/quota/applications/{application}/approve"
    ),
    "POST /api/v1/admin/quota/applications/{application}/decline": admin(
        ADMIN + "/quota/applications/{application}/decline"
    ),
    "PUT /api/v1/admin/quota/{org}": admin(ADMIN + "/quota/{org}", body={"storage": "1G"}),
    f"POST {V1}/train": member(V1 + "/train", body=job("fresh")),
    f"GET {V1}/train": Row(V1 + "/train?org_id={number}"),
    f"GET {V1}/train/{{name}}": Row(V1 + "/train/{job}"),
    f"GET {V1}/train/{{name}}/start": member(V1 + "/train/{job}/start"),
    f"DELETE {V1}/train/{{name}}": member(V1 + "/train/{job}"),
    f"GET {V1}/train/{{name}}/logs": Row(V1 + "/train/{job}/logs"),
    f"GET {V1}/train/{{name}}/events": Row(V1 + "/train/{job}/events"),
    f"GET {V1}/train/{{name}}/metrics": Row(V1 + "/train/{job}/metrics"),
    f"GET {V1}/train/{{name}}/hyperparameters": Row(V1 + "/train/{job}/hyperparameters"),
    f"POST {V1}/tensorboard": member(
        V1 + "/tensorboard",
        body={"tensorboard_name": "fresh", "logdir": "fds://{bucket}/logs", "enable_rank": 0},
    ),
    f"GET {V1}/tensorboard": Row(V1 + "/tensorboard?org_id={number}"),
    f"GET {V1}/tensorboard/{{name}}": Row(V1 + "/tensorboard/{board}"),
    f"DELETE {V1}/tensorboard/{{name}}": member(V1 + "/tensorboard/{board}"),
    f"GET {V1}/tensorboard/{{name}}/events": Row(V1 + "/tensorboard/{board}/events"),
    f"POST {V1}/hp": member(V1 + "/hp", body=hp("fresh")),
    f"GET {V1}/hp": Row(V1 + "/hp?org_id={number}"),
    f"GET {V1}/hp/{{name}}": Row(V1 + "/hp/{study}"),
    f"DELETE {V1}/hp/{{name}}": member(V1 + "/hp/{study}"),
    f"GET {V1}/hp/{{name}}/trials": Row(V1 + "/hp/{study}/trials"),
    f"GET {V1}/hp/{{name}}/events": Row(V1 + "/hp/{study}/events"),
    f"GET {V1}/hp/{{name}}/metrics": Row(V1 + "/hp/{study}/metrics"),
    f"GET {V1}/hp/{{name}}/{{trial}}/logs": Row(V1 + "/hp/{study}/0/logs"),
    f"POST {V1}/model": member(V1 + "/model", body=model("fresh")),
    f"GET {V1}/model": Row(V1 + "/model?org_id={number}"),
    f"GET {V1}/model/{{name}}/{{version}}": Row(V1 + "/model/{model}/v1"),
    f"PUT {V1}/model/{{name}}/{{version}}": member(V1 + "/model/{model}/v1", raw=b"replicas=2"),
    f"GET {V1}/model/{{name}}/{{version}}/start": member(V1 + "/model/{model}/v1/start"),
    f"DELETE {V1}/model/{{name}}/{{version}}": member(V1 + "/model/{model}/v1"),
    f"GET {V1}/model/{{name}}/{{version}}/logs": Row(V1 + "/model/{model}/v1/logs"),
    f"GET {V1}/model/{{name}}/{{version}}/events": Row(V1 + "/model/{model}/v1/events"),
    f"GET {V1}/model/{{name}}/{{version}}/metrics": Row(V1 + "/model/{model}/v1/metrics"),
    f"POST {V1}/secret": member(
        V1 + "/secret", body={"secret_name": "fresh", "data": "aHVudGVyMg=="}
    ),
    f"GET {V1}/secret": Row(V1 + "/secret?org_id={number}"),
    f"GET {V1}/secret/{{name}}": Row(V1 + "/secret/{secret}"),
    f"DELETE {V1}/secret/{{name}}": member(V1 + "/secret/{secret}"),
    f"GET {V1}/framework": Row(V1 + "/framework", None),
    f"GET {V1}/org_ids": Row(V1 + "/org_ids"),
    f"GET {V1}/authentication": Row(V1 + "/authentication"),
    f"POST {V1}/quota": Row(V1 + "/quota", body={}),
    f"GET {V1}/quota": Row(V1 + "/quota?org_id={number}"),
    f"PUT {V1}/quota/{{org_id}}": admin(V1 + "/quota/{number}", body={"train_cpu_quota": "4"}),
    f"POST {V1}/application": owner(
        V1 + "/application?org_id={number}",
        body={"service": "jobs", "cpu_limit": "1", "memory_limit": "1G", "gpu_limit": "0"},
    ),
    f"GET {V1}/resources": Row(V1 + "/resources?org_id={number}"),
    "GET /api/v1/experiments": Row("/api/v1/experiments"),
    "GET /api/v1/experiments/-/watch": Row("/api/v1/experiments/-/watch", streams=True),
    "GET /api/v1/experiments/{experiment}": Row("/api/v1/experiments/{experiment}"),
    "GET /api/v1/experiments/{experiment}/watch": Row(
        "/api/v1/experiments/{experiment}/watch", streams=True
    ),
    "GET /api/v1/experiments/{experiment}/active": Row("/api/v1/experiments/{experiment}/active"),
    "GET /api/v1/runs": Row("/api/v1/runs"),
    "GET /api/v1/runs/compare": Row("/api/v1/runs/compare?run={job}&run={run}"),
    "GET /api/v1/runs/-/watch": Row("/api/v1/runs/-/watch", streams=True),
    "GET /api/v1/runs/{run}": Row("/api/v1/runs/{run}"),
    "GET /api/v1/runs/{run}/watch": Row("/api/v1/runs/{run}/watch", streams=True),
    "DELETE /api/v1/runs/{run}": member("/api/v1/runs/{run}"),
    "GET /api/v1/runs/{run}/series": Row("/api/v1/runs/{run}/series"),
    "GET /api/v1/runs/{run}/series/{metric}": Row("/api/v1/runs/{run}/series/loss"),
    "GET /mlflow/health": Row("/mlflow/health", None),
    "GET /mlflow/version": Row("/mlflow/version", None),
    f"POST {MLFLOW}/experiments/create": member(
        MLFLOW + "/experiments/create", body={"name": "fresh"}
    ),
    f"POST {MLFLOW}/experiments/update": member(
        MLFLOW + "/experiments/update",
        body={"experiment_id": "{experiment}", "new_name": "fresh"},
    ),
    f"POST {MLFLOW}/experiments/delete": member(
        MLFLOW + "/experiments/delete", body={"experiment_id": "{experiment}"}
    ),
    f"POST {MLFLOW}/experiments/restore": member(
        MLFLOW + "/experiments/restore", body={"experiment_id": "{experiment}"}
    ),
    f"POST {MLFLOW}/experiments/set-experiment-tag": member(
        MLFLOW + "/experiments/set-experiment-tag",
        body={"experiment_id": "{experiment}", "key": "team", "value": "vision"},
    ),
    f"POST {MLFLOW}/experiments/delete-experiment-tag": member(
        MLFLOW + "/experiments/delete-experiment-tag",
        body={"experiment_id": "{experiment}", "key": "team"},
    ),
    f"GET {MLFLOW}/experiments/get": Row(MLFLOW + "/experiments/get?experiment_id={experiment}"),
    f"GET {MLFLOW}/experiments/get-by-name": Row(
        MLFLOW + "/experiments/get-by-name?experiment_name={group}"
    ),
    f"GET {MLFLOW}/experiments/search": Row(MLFLOW + "/experiments/search?max_results=5"),
    f"POST {MLFLOW}/experiments/search": Row(MLFLOW + "/experiments/search", body={}),
    f"POST {MLFLOW}/runs/create": member(
        MLFLOW + "/runs/create", body={"experiment_id": "{experiment}"}
    ),
    f"POST {MLFLOW}/runs/update": member(
        MLFLOW + "/runs/update", body={"run_id": "{run}", "status": "FINISHED"}
    ),
    f"POST {MLFLOW}/runs/delete": member(MLFLOW + "/runs/delete", body={"run_id": "{run}"}),
    f"POST {MLFLOW}/runs/restore": member(MLFLOW + "/runs/restore", body={"run_id": "{run}"}),
    f"GET {MLFLOW}/runs/get": Row(MLFLOW + "/runs/get?run_id={run}"),
    f"POST {MLFLOW}/runs/search": Row(MLFLOW + "/runs/search", body={"experiment_ids": ["0"]}),
    f"POST {MLFLOW}/runs/log-metric": log(
        "log-metric", run_id="{run}", key="loss", value=0.5, timestamp=1
    ),
    f"POST {MLFLOW}/runs/log-parameter": log("log-parameter", run_id="{run}", key="a", value="1"),
    f"POST {MLFLOW}/runs/log-batch": log("log-batch", run_id="{run}", tags=[]),
    f"POST {MLFLOW}/runs/set-tag": log("set-tag", run_id="{run}", key="a", value="b"),
    f"POST {MLFLOW}/runs/delete-tag": log("delete-tag", run_id="{run}", key="a"),
    f"POST {MLFLOW}/runs/log-inputs": log("log-inputs", run_id="{run}", datasets=[]),
    f"POST {MLFLOW}/runs/log-model": log("log-model", run_id="{run}", model_json="{}"),
    f"GET {MLFLOW}/metrics/get-history": Row(
        MLFLOW + "/metrics/get-history?run_id={run}&metric_key=loss"
    ),
    f"GET {MLFLOW}/metrics/get-history-bulk": Row(
        MLFLOW + "/metrics/get-history-bulk?run_id={run}&metric_key=loss"
    ),
    f"GET {MLFLOW}/metrics/get-history-bulk-interval": Row(
        MLFLOW + "/metrics/get-history-bulk-interval?run_ids={run}&metric_key=loss"
    ),
    f"GET {MLFLOW}/artifacts/list": Row(MLFLOW + "/artifacts/list?run_id={run}"),
    f"GET {ARTIFACTS}": Row(ARTIFACTS + "?path={run}/artifacts"),
    f"GET {ARTIFACTS}/{{path}}": Row(ARTIFACTS + "/{run}/artifacts/chair"),
    f"PUT {ARTIFACTS}/{{path}}": member(ARTIFACTS + "/{run}/artifacts/new", raw=b"new"),
    f"DELETE {ARTIFACTS}/{{path}}": member(ARTIFACTS + "/{run}/artifacts/chair"),
    f"POST {PARTS}/create/{{folder}}": member(
        PARTS + "/create/{run}/artifacts", body={"path": "new", "num_parts": 2}
    ),
    f"PUT {PARTS}/parts/{{upload}}/{{number}}/{{path}}": member(
        PARTS + "/parts/{sent}/1/{run}/artifacts/large", raw=b"part"
    ),
    f"POST {PARTS}/complete/{{folder}}": member(
        PARTS + "/complete/{run}/artifacts",
        body={
            "path": "/x/large",
            "upload_id": "{sent}",
            "parts": [{"part_number": 1, "etag": hashlib.sha256(b"part").hexdigest()}],
        },
    ),
    f"POST {PARTS}/abort/{{folder}}": member(
        PARTS + "/abort/{run}/artifacts", body={"path": "large", "upload_id": "{sent}"}
    ),
    f"POST {MLFLOW}/runs/outputs": log("outputs", run_id="{run}", models=[]),
    f"POST {MLFLOW}/logged-models": member(
        MLFLOW + "/logged-models", body={"experiment_id": "{experiment}", "name": "fresh"}
    ),
    f"GET {MLFLOW}/logged-models/{{model}}": Row(MLFLOW + "/logged-models/{logged}"),
    f"PATCH {MLFLOW}/logged-models/{{model}}": member(
        MLFLOW + "/logged-models/{logged}", body={"status": "LOGGED_MODEL_READY"}
    ),
    f"DELETE {MLFLOW}/logged-models/{{model}}": member(MLFLOW + "/logged-models/{logged}"),
    f"POST {MLFLOW}/logged-models/{{model}}/params": member(
        MLFLOW + "/logged-models/{logged}/params", body={"params": []}, traced=False
    ),
    f"PATCH {MLFLOW}/logged-models/{{model}}/tags": member(
        MLFLOW + "/logged-models/{logged}/tags", body={"tags": []}, traced=False
    ),
    f"DELETE {MLFLOW}/logged-models/{{model}}/tags/{{key}}": member(
        MLFLOW + "/logged-models/{logged}/tags/a", traced=False
    ),
    f"POST {MLFLOW}/logged-models/search": Row(MLFLOW + "/logged-models/search", body={}),
    f"POST {MLFLOW}/registered-models/create": member(
        MLFLOW + "/registered-models/create", body={"name": "fresh"}
    ),
    f"GET {MLFLOW}/registered-models/get": Row(MLFLOW + "/registered-models/get?name={registered}"),
    f"PATCH {MLFLOW}/registered-models/update": registry("registered-models/update"),
    f"POST {MLFLOW}/registered-models/rename": registry(
        "registered-models/rename", new_name="fresh"
    ),
    f"DELETE {MLFLOW}/registered-models/delete": registry("registered-models/delete"),
    f"GET {MLFLOW}/registered-models/search": Row(MLFLOW + "/registered-models/search"),
    f"GET {MLFLOW}/registered-models/get-latest-versions": Row(
        MLFLOW + "/registered-models/get-latest-versions?name={registered}"
    ),
    f"POST {MLFLOW}/registered-models/get-latest-versions": Row(
        MLFLOW + "/registered-models/get-latest-versions", body={"name": "{registered}"}
    ),
    f"POST {MLFLOW}/registered-models/set-tag": registry(
        "registered-models/set-tag", traced=False, key="a", value="b"
    ),
    f"DELETE {MLFLOW}/registered-models/delete-tag": registry(
        "registered-models/delete-tag", traced=False, key="a"
    ),
    f"POST {MLFLOW}/registered-models/alias": registry(
        "registered-models/alias", alias="best", version="1"
    ),
    f"DELETE {MLFLOW}/registered-models/alias": registry("registered-models/alias", alias="best"),
    f"GET {MLFLOW}/registered-models/alias": Row(
        MLFLOW + "/registered-models/alias?name={registered}&alias=champion"
    ),
    f"POST {MLFLOW}/model-versions/create": registry(
        "model-versions/create", source="s3://bucket/net"
    ),
    f"GET {MLFLOW}/model-versions/get": Row(
        MLFLOW + "/model-versions/get?name={registered}&version=1"
    ),
    f"GET {MLFLOW}/model-versions/get-download-uri": Row(
        MLFLOW + "/model-versions/get-download-uri?name={registered}&version=1"
    ),
    f"GET {MLFLOW}/model-versions/search": Row(MLFLOW + "/model-versions/search?max_results=5"),
    f"PATCH {MLFLOW}/model-versions/update": registry("model-versions/update", version="1"),
    f"DELETE {MLFLOW}/model-versions/delete": registry("model-versions/delete", version="1"),
    f"POST {MLFLOW}/model-versions/transition-stage": registry(
        "model-versions/transition-stage", version="1", stage="Staging"
    ),
    f"POST {MLFLOW}/model-versions/set-tag": registry(
        "model-versions/set-tag", traced=False, version="1", key="a", value="b"
    ),
    f"DELETE {MLFLOW}/model-versions/delete-tag": registry(
        "model-versions/delete-tag", traced=False, version="1", key="a"
    ),
    "fds list_buckets": Row("/"),
    "fds exists": Row("/{bucket}"),
    "fds describe": Row("/{bucket}"),
    "fds list_objects": Row("/{bucket}?prefix="),
    "fds create": member("/{bucket}", taken=True),
    "fds head": Row("/{bucket}/{key}"),
    "fds download": Row("/{bucket}/{key}"),
    "fds metadata": Row("/{bucket}/{key}?metadata"),
    "fds upload": member("/{bucket}/{key}", raw=b"new"),
    "fds initiate": member("/{bucket}/{key}?uploads"),
    "fds put_part": member("/{bucket}/big?uploadId={upload}&partNumber=1", raw=b"part"),
    "fds complete": member("/{bucket}/big?uploadId={upload}", body={"uploadPartResultList": []}),
    "fds abort": member("/{bucket}/big?uploadId={upload}"),
    "fds delete": member("/{bucket}/{key}"),
}


def operations(document: Mapping[str, Any]) -> set[str]:
    """What the doors have: by the OpenAPI document, and by the rooms that are not in it."""
    found = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    for room in (train, hp_room, model_room, accounts, secret, board_room):
        for route in room.router.routes:
            found |= {f"{method} {V1}{route.path}" for method in route.methods}  # type: ignore[attr-defined]
    for route in (route for room in mlflow.ROUTERS for route in room.routes):
        path = route.path.replace(":path}", "}")  # type: ignore[attr-defined]
        if "{rest}" not in path:  # what is not there yet
            found |= {f"{method} {path}" for method in route.methods}  # type: ignore[attr-defined]
    return found | {f"fds {one.run.__name__}" for one in OPERATIONS} | {"GET /api/v1/openapi.json"}


@dataclass(frozen=True)
class Request:
    """A row's request with its names filled in."""

    door: str
    method: str
    target: str
    content: bytes

    @classmethod
    def of(cls, name: str, names: Mapping[str, str]) -> Request:
        row, method = ROWS[name], name.partition(" ")[0]
        target, content = (
            row.target,
            row.raw or (b"" if row.body is None else json.dumps(row.body).encode()),
        )
        for word, value in names.items():
            target, content = (
                target.replace(f"{{{word}}}", value),
                content.replace(f"{{{word}}}".encode(), value.encode()),
            )
        if method == FDS:
            return cls(FDS, _fds(name).method, target, content)
        return cls(V1 if V1 in target else "", method, target, content)

    def signed(self, caller: Caller) -> dict[str, str]:
        """The headers of somebody who asks."""
        if self.door == FDS:
            return storage_protocol.signed(caller, self.method, self.target)
        if self.door == V1:
            return caller.sign_original(self.target, self.content)
        return caller.sign(self.method, self.target, self.content)

    async def send(
        self, caller: Caller, headers: Mapping[str, str] | None = None, *, whole: bool = True
    ) -> Answer:
        """Ask; of a stream that goes on only the beginning, if it is answered with one."""
        sent = self.signed(caller) if headers is None else headers
        async with caller.client.open(self.method, self.target, sent, self.content) as exchange:
            if not whole and exchange.status == 200:
                return Answer(200, exchange.headers, b"")
            return Answer(
                exchange.status,
                exchange.headers,
                b"".join([piece async for piece in exchange.chunks()]),
            )


def _fds(name: str) -> Operation:
    return next(one for one in OPERATIONS if f"fds {one.run.__name__}" == name)


async def trial_of(served: Served, study: str, name: str) -> None:
    """Submit a job as the trial of a study."""
    caller = served.platform.identities.find(served.admin.identity.access_key)
    assert caller is not None
    train_job = TrainJob(name, "trainer.task", TRAINER)
    capacity = await served.engine.capacity()
    served.platform.jobs.submit(caller, train_job, capacity, parent=ParentRef(STUDY.name, study))


async def furnish(served: Served, name: str) -> dict[str, str]:
    """Make one of everything in the first organisation, as the operation ``name`` wants to find
    it.
    """
    admin_ = served.admin

    async def made(
        method: str, target: str, document: Any = None, body: bytes | None = None
    ) -> Any:
        answer = await admin_.call(method, target, document, body=body)
        assert answer.status < 300, (method, target, answer.text)
        return answer.json()

    starts = name.endswith("/start")
    mine = await made("POST", "/api/v1/jobs", {**job("mine"), "save_mode": starts})
    if name.endswith("/stacks"):
        await served.run(mine["uid"])
    if "/reproduce" in name:
        served.move(mine["uid"], Phase.STOPPED)
    served.store.metrics.append(
        mine["uid"],
        ReportFile(1, "master-0"),
        [Value("loss", 1, 0, 0.5)],
        before=NOT_READ,
        after=FilePosition("file", 1),
        limits=MetricLimits(),
    )
    for bucket in ("furniture", "hollow"):
        await made("PUT", f"{STORAGE}/{bucket}")
    await made("POST", "/api/v1/models", {**model("served"), "save_mode": True})
    if name.endswith(
        ("/promote", "/rollback")
    ):  # it is as they want it already: release 2 is served, 1 has gone
        await made("PATCH", "/api/v1/models/served/v1", {"model_uri": "fds://cloudml/better"})
    await made("PUT", f"{STORAGE}/furniture/chair", body=b"wood")
    assert isinstance(served.platform.objects, MemoryObjectStore)
    served.platform.objects.plant("furniture", b"odd\xff")
    upload = (await made("POST", f"{UPLOADS}/furniture", {"key": "big"}))["id"]
    await made("PUT", f"{UPLOADS}/furniture/{upload}/parts/1", body=b"part")
    begun = (await made("POST", f"{UPLOADS}/furniture", {"key": "long"}))["id"]
    await made("POST", f"{ADMIN}/users", {"name": "tim"})
    key = (await made("POST", f"{ADMIN}/keys", {"user": "tim"}))["key"]["access_key"]
    await made("POST", "/api/v1/secrets", {"name": "ssh-key", "data": "dG9rZW4="})
    served.platform.objects.put("cloudml", TRAINER.removeprefix("fds://cloudml/"), b"code")
    searched = await made("POST", "/api/v1/studies", study("rates"))
    space = {"lr": {"min": 0.1, "max": 0.2}}
    await made("POST", "/api/v1/studies", {"name": "looped", "space": space, "local": True})
    if name.endswith(("/tell", "/report")):
        await made("POST", "/api/v1/studies/looped/ask", {"key": "first"})
    if name.endswith("/{trial}/logs"):
        await trial_of(served, searched["uid"], "rates-hp-0")
    board = {"name": "curves", "logdir": "fds://furniture/logs"}
    await made("POST", "/api/v1/tensorboards", board)
    application_request = {"service": "jobs", "cpu": "1", "memory": "1G", "gpu": "0"}
    token = (await made("POST", "/api/v1/tokens", {"scopes": ["jobs:read"], "expires_in_s": 3600}))[
        "info"
    ]["id"]
    application = (await made("POST", f"{ADMIN}/quota/applications", application_request))["id"]
    group = await made("POST", f"{MLFLOW}/experiments/create", {"name": "chairs"})
    logged = await made("POST", f"{MLFLOW}/runs/create", {"experiment_id": group["experiment_id"]})
    run = logged["run"]["info"]["run_id"]
    await made("PUT", f"{ARTIFACTS}/{run}/artifacts/chair", body=b"wood")
    large = {"path": "large", "num_parts": 1}
    sent = (await made("POST", f"{PARTS}/create/{run}/artifacts", large))["upload_id"]
    await made("PUT", f"{PARTS}/parts/{sent}/1/{run}/artifacts/large", body=b"part")
    kept = await made("POST", f"{MLFLOW}/logged-models", {"name": "net"})
    named = {"name": "seat"}
    await made("POST", f"{MLFLOW}/registered-models/create", named)
    version = {**named, "source": "s3://bucket/seat"}
    await made("POST", f"{MLFLOW}/model-versions/create", version)
    alias = {**named, "alias": "champion", "version": "1"}
    await made("POST", f"{MLFLOW}/registered-models/alias", alias)
    value = {"run_id": run, "key": "loss", "value": 1, "timestamp": 1}
    await made("POST", f"{MLFLOW}/runs/log-metric", value)
    await made("POST", f"{ADMIN}/orgs", {"name": "idle"})
    await made("PATCH", f"{ADMIN}/orgs/idle", {"enabled": False})
    return {
        "job": "mine",
        "model": "served",
        "secret": "ssh-key",
        "study": "rates",
        "local": "looped",
        "board": "curves",
        "bucket": "furniture",
        "empty": "hollow",
        "key": "chair",
        "upload": upload,
        "sent": sent,
        "begun": begun,
        "user": "tim",
        "access_key": key,
        "token": token,
        "application": application,
        "org": "default",
        "number": "1",
        "own": "furniture",
        "odd": "odd%5Cxff",
        "experiment": group["experiment_id"],
        "group": "chairs",
        "run": run,
        "logged": kept["model"]["info"]["model_id"],
        "registered": "seat",
    }


ABSENT = {
    "job": "none", "study": "nates", "local": "nooped", "board": "nurves", "model": "nerved", "secret": "nsh-key",
    "bucket": "nofurnitu", "empty": "nollow", "key": "nhair", "user": "nim", "org": "nefault",
    "number": "9", "access_key": "AK" + "0" * 20, "token": "tk" + "0" * 14, "odd": "nod%5Cxff",
    "experiment": "9" * 18, "group": "nhairs", "run": "0" * 32,
    "logged": "m-" + "0" * 32, "registered": "neat",
}  # fmt: skip
"""Names of the same lengths that nobody has; an upload and an application are made up of zeros."""
