"""What a function that handles requests takes from one, read from its signature.

FastAPI reads the same, for the OpenAPI document and for what it serves itself, but offers it to
nobody. A test compares what is read here with the document. What is not understood here
(bodies, cookies, what is no scalar) is left to FastAPI.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from fastapi.params import Depends, Header, Query
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from starlette.requests import HTTPConnection

PATH, QUERY, HEADER = "path", "query", "header"
REQUIRED = inspect.Parameter.empty
"""The default of a parameter that a request must have."""
_SCALARS = frozenset({str, int, float, bool, NoneType})


@dataclass(frozen=True)
class Parameter:
    """A parameter of the address or of the headers.

    ``alias`` is its name in a request. ``place`` is ``PATH``, ``QUERY`` or ``HEADER``. With
    ``many`` it may be repeated. ``default`` may be ``REQUIRED``.
    """

    name: str
    alias: str
    place: str
    many: bool
    default: Any
    form: Any
    """Its type, with the bounds of its values."""

    @property
    def required(self) -> bool:
        """Whether a request must have it."""
        return self.default is REQUIRED

    @functools.cached_property
    def parse(self) -> Callable[[Any], Any]:
        """The value of a text, or of the texts of one that is repeated.

        Raises:
            pydantic.ValidationError: It is not of its form.
        """
        return TypeAdapter(self.form).validate_python


@dataclass(frozen=True)
class Handler:
    """A function and what it is given: that of a route, or a dependency.

    ``needs`` are the dependencies in the order in which they are called, each with the name under
    which its result is passed, or ``None``. ``unknown`` are parameters that are not understood.
    """

    call: Callable[..., Any]
    needs: Sequence[tuple[str | None, Handler]]
    parameters: Sequence[Parameter]
    request_names: Sequence[str]
    unknown: Sequence[str]

    def all(self) -> Iterator[Handler]:
        """It and all dependencies."""
        yield self
        for _, one in self.needs:
            yield from one.all()


def handler_of(route: APIRoute) -> Handler:
    """What a route wants: its own dependencies and those of its router first."""
    names = frozenset(route.param_convertors)
    own = _read(route.endpoint, names)
    before = [
        (None, _read(one.dependency, names))
        for one in cast("Sequence[Depends]", route.dependencies)
        if one.dependency is not None
    ]
    return Handler(own.call, [*before, *own.needs], own.parameters, own.request_names, own.unknown)


@functools.cache  # most routes share their dependencies
def _read(call: Callable[..., Any], path_names: frozenset[str]) -> Handler:
    hints = get_type_hints(call, include_extras=True)
    needs: list[tuple[str | None, Handler]] = []
    parameters: list[Parameter] = []
    request_names: list[str] = []
    unknown: list[str] = []
    for name, declared in inspect.signature(call).parameters.items():
        hint = hints.get(name, Any)
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        mark = marks[-1] if marks else declared.default
        if isinstance(mark, Depends) and mark.dependency is not None:
            needs.append((name, _read(mark.dependency, path_names)))
        elif isinstance(kind, type) and issubclass(kind, HTTPConnection):
            request_names.append(name)
        elif isinstance(mark, Query | Header) and marks:
            parameters.append(_parameter(declared, hint, kind, mark))
        elif _is_scalar(hint) and name in path_names:
            parameters.append(Parameter(name, name, PATH, many=False, default=REQUIRED, form=hint))
        elif _is_scalar(hint):
            parameters.append(
                Parameter(name, name, QUERY, many=False, default=declared.default, form=hint)
            )
        else:
            unknown.append(name)
    return Handler(call, needs, parameters, request_names, unknown)


def _parameter(declared: inspect.Parameter, hint: Any, kind: Any, mark: FieldInfo) -> Parameter:
    name = declared.name
    if isinstance(mark, Header):
        place, usual = HEADER, name.replace("_", "-")
    else:
        place, usual = QUERY, name
    return Parameter(
        name, mark.alias or usual, place, many=_is_list(kind), default=declared.default, form=hint
    )


def _is_list(kind: Any) -> bool:
    """Whether a type is a list, or a list or nothing."""
    if get_origin(kind) in (Union, UnionType):
        return any(_is_list(one) for one in get_args(kind) if one is not NoneType)
    return get_origin(kind) is list


def _is_scalar(kind: Any) -> bool:
    """Whether a type without a mark is one of a parameter of the address."""
    if get_origin(kind) in (Union, UnionType):
        return all(_is_scalar(one) for one in get_args(kind))
    return kind in _SCALARS
