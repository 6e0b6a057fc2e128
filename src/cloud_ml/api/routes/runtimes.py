"""``/api/v1/runtimes``: the versions of frameworks, one by one, and what of them is ready."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from fastapi import APIRouter
from starlette.responses import Response

from cloud_ml.api import documents, streams
from cloud_ml.api.auth import Signed
from cloud_ml.api.openapi import answers, bytes_of
from cloud_ml.api.routes import CHECKED, Here
from cloud_ml.models import codec
from cloud_ml.models.jobs.framework import PreparationLine, RuntimePage

router = APIRouter(
    prefix="/api/v1/runtimes",
    tags=["server"],
    default_response_class=Response,
    dependencies=CHECKED,
)


@router.get("", responses=answers(RuntimePage))
async def list_runtimes(here: Here, _: Signed) -> Response:
    """Every runtime that jobs may ask for."""
    return documents.answer(RuntimePage(items=list(await here.runtimes.list())))


@router.get("/{framework}", responses=answers(RuntimePage))
async def of_framework(here: Here, _: Signed, framework: str) -> Response:
    """The runtimes of one framework."""
    return documents.answer(RuntimePage(items=list(await here.runtimes.of(framework))))


@router.post("/{framework}/prepare", responses=bytes_of("application/x-ndjson"))
async def prepare(here: Here, call: Signed, framework: str, version: str | None = None) -> Response:
    """Install a runtime ahead, for administrators. A stream of JSON lines; the last one tells how
    it ended.

    Asking twice installs once, and it goes on when the connection ends.
    """
    lines = await here.runtimes.prepare(call.caller, framework, version or None, once=call.once)
    return streams.json_lines(_encode_lines(lines))


@router.delete("/{framework}", status_code=204, responses=answers(None, 204))
async def remove(here: Here, call: Signed, framework: str, version: str | None = None) -> Response:
    """Remove what is installed of a runtime, for administrators; the next job that needs it
    installs it again.
    """
    await here.runtimes.remove(call.caller, framework, version or None, once=call.once)
    return Response(status_code=204)


async def _encode_lines(lines: AsyncIterator[PreparationLine]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield json.dumps(codec.encode(line)).encode() + b"\n"
