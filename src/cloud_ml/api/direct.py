"""Requests on the shortest way to the function that answers them.

FastAPI declares the routes and describes them; to serve one, it passes seven layers and works out
anew what the function takes, which is most of what a small answer costs. Here ``handlers`` works
that out once for each route. Functions, dependencies, their order and what they are given are the
same. Whatever is out of the ordinary (no such path, another method, a parameter that is not of its
form) goes to FastAPI, untouched: it has the words for it.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cloud_ml.api import errors
from cloud_ml.api.handlers import HEADER, PATH, QUERY, Handler, Parameter, handler_of
from cloud_ml.errors import CloudMlError

_PLACE_DEPTH = 4
Given = dict[str, Any]


class Direct:
    """Plain ASGI, since it is on the way of every request.

    Args:
        routers: Whose routes are served here, in the order in which they are looked through.
        others: Answers everything else.
    """

    def __init__(self, routers: Iterable[APIRouter], others: ASGIApp) -> None:
        self._others = others
        self._stops: dict[tuple[str, str], list[_Stop]] = {}
        for router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute):
                    for method in route.methods or ():
                        self._stops.setdefault((method, _place(route.path)), []).append(
                            _Stop(route)
                        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or (step := self._find(scope)) is None:
            await self._others(scope, receive, send)
            return
        request = Request(scope, receive, send)
        if (given := step.read(request)) is None:
            await self._others(scope, receive, send)
            return
        try:
            response = await step.run(request, iter(given))
        except CloudMlError as error:
            response = await errors.answer_to(request, error)
        assert isinstance(response, Response)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> _Step | None:
        """What the route of a request does; the scope tells of the route as the framework would."""
        path = scope["path"]
        for stop in self._stops.get((scope["method"], _place(path)), ()):
            route = stop.route
            if (match := route.path_regex.match(path)) is not None:
                convertors = route.param_convertors
                scope["path_params"] = {
                    name: convertors[name].convert(text) for name, text in match.groupdict().items()
                }
                scope["route"], scope["endpoint"] = route, route.endpoint
                return stop.step
        return None


class _Stop:
    """A route, and what it does: worked out when it is first used."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route

    @functools.cached_property
    def step(self) -> _Step | None:
        return _step_of(handler_of(self.route))


@dataclass(frozen=True, slots=True)
class _Step:
    """A function and what it is given: the endpoint of a route, or one of the dependencies
    before it.
    """

    call: Callable[..., Any]
    needs: tuple[tuple[str | None, _Step], ...]
    request: tuple[str, ...]
    path: tuple[Parameter, ...]
    query: tuple[Parameter, ...]
    headers: tuple[Parameter, ...]
    defaults: Mapping[str, Any]
    required: frozenset[str]
    fresh: tuple[str, ...] = field(default=())
    """Defaults that could be altered: each request has its own."""

    def read(self, request: Request) -> list[Given] | None:
        """The parameters of this step and of those before it, in their order; ``None`` if one is
        not as it should.
        """
        collected: list[Given] = []
        return collected if self._collect(request, collected) else None

    def _collect(self, request: Request, collected: list[Given]) -> bool:
        for _, step in self.needs:
            if not step._collect(request, collected):
                return False
        given = dict(self.defaults)
        for name in self.fresh:
            given[name] = copy.copy(given[name])
        for name in self.request:
            given[name] = request
        sources: list[tuple[tuple[Parameter, ...], Any]] = [(self.path, request.path_params)]
        if self.query and request.scope["query_string"]:
            sources.append((self.query, request.query_params))
        if self.headers:
            sources.append((self.headers, request.headers))
        for parameters, source in sources:
            for one in parameters:
                value = source.getlist(one.alias) or None if one.many else source.get(one.alias)
                if value is None:
                    continue
                try:
                    given[one.name] = one.parse(value)
                except ValidationError:
                    return False
        if not self.required <= given.keys():
            return False
        collected.append(given)
        return True

    async def run(self, request: Request, collected: Iterator[Given]) -> Any:
        """Call what is needed, then the function."""
        results = [(name, await step.run(request, collected)) for name, step in self.needs]
        given = next(collected)
        for name, result in results:
            if name is not None:
                given[name] = result
        return await self.call(**given)


def _place(path: str) -> str:
    """The beginning of a path, up to where it says which one of many: ``/api/v1/jobs``.

    It selects candidates and decides nothing: the expression of the route decides, in the order of
    declaration.
    """
    return "/".join(path.split("/", _PLACE_DEPTH)[:_PLACE_DEPTH])


def _step_of(handler: Handler) -> _Step | None:
    """The step of a function; ``None`` if it takes more than is done here."""
    needs = [(name, _step_of(one)) for name, one in handler.needs]
    if (
        handler.unknown
        or not inspect.iscoroutinefunction(handler.call)
        or any(step is None for _, step in needs)
    ):
        return None
    parameters = handler.parameters
    defaults = {one.name: one.default for one in parameters if not one.required}
    return _Step(
        call=handler.call,
        needs=tuple((name, step) for name, step in needs if step is not None),
        request=tuple(handler.request_names),
        path=tuple(one for one in parameters if one.place == PATH),
        query=tuple(one for one in parameters if one.place == QUERY),
        headers=tuple(one for one in parameters if one.place == HEADER),
        defaults=defaults,
        required=frozenset(one.name for one in parameters if one.required),
        fresh=tuple(
            name for name, value in defaults.items() if isinstance(value, (list, dict, set))
        ),
    )
