"""Who am I, what is offered, and how the server is."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents, errors
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.errors import Unavailable
from cloud_ml.models.server import ServerInfo, WhoAmI

router = APIRouter(tags=["server"], default_response_class=Response, dependencies=CHECKED)


@router.get("/api/v1/whoami", responses=answers(WhoAmI))
async def whoami(here: Here, call: Signed) -> Response:
    """Whom the server takes the caller for."""
    organisation, scopes = call.caller.organisation, call.caller.scopes
    return documents.answer(
        WhoAmI(
            org=organisation.name,
            org_id=str(organisation.number),
            user=call.caller.user,
            role=call.caller.role.value,
            default_bucket=organisation.default_bucket,
            keeps_git=here.trainer_settings.git,
            scopes=None if scopes is None else [str(scope) for scope in scopes],
        )
    )


@router.get("/api/v1/frameworks", responses=answers(dict[str, list[str]]))
async def frameworks(here: Here, _: Signed) -> Response:
    """Framework → its versions, newest first."""
    return documents.answer(
        {name: list(versions) for name, versions in here.catalog.listing().items()}
    )


@router.get("/api/v1/server", responses=answers(ServerInfo))
async def server(here: Here, _: Signed) -> Response:
    """The version, and what this server gives to jobs."""
    return documents.answer(here.info())


@router.get("/healthz", tags=["health"])
async def healthz() -> Response:
    """The process answers."""
    return documents.answer({"status": "ok"})


@router.get("/readyz", tags=["health"])
async def readyz(here: Here) -> Response:
    """The server takes new work: the store can be written and the engine answers."""
    problems = await here.health.problems()
    if not problems:
        return documents.answer({"status": "ready"})
    parts = " and ".join(problems)
    return errors.answer(Unavailable(f"not ready: {parts}; the server's log says more"))
