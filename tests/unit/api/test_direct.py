"""Requests on the shortest way: every modern route has one, and what is out of the ordinary is
refused as ever.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import APIRouter, Body
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from cloud_ml.api.direct import Direct
from cloud_ml.api.handlers import handler_of
from cloud_ml.api.routes import (
    admin,
    audit,
    jobs,
    models,
    monitoring,
    quota,
    replicas,
    runtimes,
    server,
    storage,
    uploads,
    watching,
)
from support.platform import Served

ROOMS = (
    watching,
    jobs,
    models,
    replicas,
    uploads,
    storage,
    admin,
    audit,
    quota,
    server,
    runtimes,
    monitoring,
)
ROUTES = [route for room in ROOMS for route in room.router.routes if isinstance(route, APIRoute)]


async def beyond(scope: Any, receive: Any, send: Any) -> None:
    scope["beyond"] = True


def scope_of(path: str, method: str = "GET", query: str = "") -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }


async def messages_sent(direct: Direct, scope: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await direct(scope, None, send)  # type: ignore[arg-type]
    return sent


DIRECT = Direct((room.router for room in ROOMS), beyond)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_every_modern_route_is_served_without_the_framework(route: APIRoute) -> None:
    (method, *_) = route.methods
    path = route.path.replace(":path", "").replace("{", "").replace("}", "")
    scope = scope_of(path, method)
    assert DIRECT._find(scope) is not None
    assert scope["route"] is route


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")
def test_parameters_are_those_that_the_framework_reads(route: APIRoute) -> None:
    document = get_openapi(title="", version="", routes=[route])
    (path,) = document["paths"].values()
    (operation,) = path.values()
    described = {
        (one["in"], one["name"].lower(), one["required"], "'array'" in str(one["schema"]))
        for one in operation.get("parameters", ())
    }
    read = {
        (one.place, one.alias.lower(), one.required, one.many)
        for handler in handler_of(route).all()
        for one in handler.parameters
    }
    assert read == described


def framework_choice(method: str, path: str) -> APIRoute | None:
    """The first route that fits, in the order of their declaration: what the framework takes."""
    for route in ROUTES:
        if method in (route.methods or ()) and route.path_regex.match(path) is not None:
            return route
    return None


WORDS = sorted(
    {word for route in ROUTES for word in route.path.split("/") if word and "{" not in word}
)


@pytest.mark.parametrize("value", ["x", "a%2fb", "-", "..", "x.y:z", "", *WORDS])
def test_a_path_leads_where_the_framework_leads_it(value: str) -> None:
    """Routes are looked up by the beginning of a path: no value of a parameter may lead a
    request elsewhere.
    """
    for template in ROUTES:
        path = re.sub(r"\{[^}]*\}", value, template.path)
        for altered in (path, f"{path}/", f"/{path}", f"{path}/{value}", path.upper()):
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
                scope = scope_of(altered, method)
                found = DIRECT._find(scope)
                expected = framework_choice(method, altered)
                assert scope.get("route") is expected, (method, altered)
                assert found is None or expected is not None


@pytest.mark.anyio
async def test_what_takes_more_than_parameters_goes_to_the_framework() -> None:
    router = APIRouter()

    @router.post("/made")
    async def made(what: dict[str, str] = Body()) -> None:  # noqa: B008
        raise AssertionError(what)

    @router.get("/blocking")
    def blocking() -> None:
        raise AssertionError

    direct = Direct([router], beyond)
    for scope in (
        scope_of("/made", "POST"),
        scope_of("/blocking"),
        scope_of("/nowhere"),
        scope_of("/made", "PUT"),
    ):
        await messages_sent(direct, scope)
        assert scope["beyond"]


@pytest.mark.parametrize(
    ("target", "status", "field"),
    [
        ("/api/v1/jobs?limit=many", 400, "limit"),
        ("/api/v1/jobs?limit=0", 400, "limit"),
        ("/api/v1/jobs?limit=1&limit=2", 400, "limit"),
        ("/api/v1/jobs?lmit=1", 400, "lmit"),
        ("/api/v1/jobs/-/nothing/here", 404, None),
    ],
)
@pytest.mark.anyio
async def test_what_is_not_of_its_form_is_refused_in_our_words(
    served: Served, target: str, status: int, field: str | None
) -> None:
    answer = await served.member.call("GET", target)
    assert (answer.status, answer.json().get("field")) == (status, field)


@pytest.mark.anyio
async def test_who_is_not_believed_hears_nothing_of_parameters(served: Served) -> None:
    answer = await served.client.send("GET", "/api/v1/jobs?limit=many")
    assert answer.status == 401


@pytest.mark.anyio
async def test_what_one_request_alters_another_does_not_see(served: Served) -> None:
    """A default that is a list is each request's own."""
    await served.submitted(labels={"team": "red"})
    some = await served.member.call("GET", "/api/v1/jobs?label=team%3Dred")
    every = await served.member.call("GET", "/api/v1/jobs")
    assert len(some.json()["items"]) == len(every.json()["items"]) == 1
