"""What jobs reach by a socket in their network: MLflow's endpoint, and the calls of Optuna's client.

Only tokens of jobs are accepted, of the organisation whose network it is. The paths of everything
else are not there, whatever their proof.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cloud_ml.api.platform import Platform
from cloud_ml.api.tokens import MLFLOW
from cloud_ml.auth import bearer
from cloud_ml.auth.headers import Headers
from cloud_ml.errors import Forbidden
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.job_tokens import refused

_ENDPOINT = "cloud_ml.job_endpoint"
_NOT_HERE = json.dumps(
    {
        "error_code": "ENDPOINT_NOT_FOUND",
        "message": "Jobs reach the MLflow endpoint and the calls of Optuna's client here only.",
    }
).encode()
OPTUNA = "/api/v1/optuna/"
"""Where ``cloudml hp proxy`` calls."""


@dataclass(frozen=True)
class _Network:
    """Whose jobs call: those of the organisation of that number, or all of the machine, or only the
    one job; and whether a job sees no processes but its own.
    """

    tenant: int | None
    sandboxed: bool
    job_uid: str


class JobEndpoint:
    """The application as jobs see it.

    Args:
        app: The whole application.
        tenant: The number of the organisation whose jobs reach this; ``None`` for all jobs.
        sandboxed: Whether a job sees no processes but its own.
        job_uid: The only job that reaches this; empty for several.
    """

    def __init__(
        self, app: ASGIApp, tenant: int | None, *, sandboxed: bool = False, job_uid: str = ""
    ) -> None:
        self._app = app
        self._network = _Network(tenant, sandboxed, job_uid)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith((MLFLOW, OPTUNA)):
            scope[_ENDPOINT] = self._network
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":
            length = str(len(_NOT_HERE)).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", length)]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": _NOT_HERE})


def comes_from_job(request: Request) -> bool:
    """Whether a request has come to the endpoint of jobs."""
    return _ENDPOINT in request.scope


async def authenticate(request: Request, platform: Platform, headers: Headers) -> Identity:
    """The job that calls.

    Raises:
        Unauthenticated: It carries no token of a job of this network that runs.
        Forbidden: It is a call of Optuna's client, and jobs have no sandbox.
    """
    sent = bearer.read_job(headers)
    caller = platform.job_tokens.cached(sent)
    if caller is None:
        caller = await platform.read(platform.job_tokens.find, sent)
    network: _Network = request.scope[_ENDPOINT]
    job_uid = caller.job.uid if caller.job is not None else ""
    is_foreign = network.tenant not in (None, caller.organisation.number)
    if is_foreign or network.job_uid not in ("", job_uid):
        raise refused("The token of the job is not valid.")
    if request.scope["path"].startswith(OPTUNA) and not network.sandboxed:
        raise Forbidden(
            "In this job there is no proxy for Optuna's client: jobs of this server have no "
            "sandbox, so a proxy cannot tell the processes of its own job from those of others.",
            hint="Run a job for each trial with `cloudml hp submit`, or the proxy on your machine.",
        )
    return caller
