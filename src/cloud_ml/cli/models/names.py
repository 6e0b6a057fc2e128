"""Which service is meant: name and version, the version left out where there is one only, and
names that are near.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.session import Session
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound

_LOOKED_AT = 1000


def find_name(session: Session, name: str, version: str | None) -> tuple[str, str]:
    """Name and version of a service; the version is found out where the model has one only.

    Raises:
        NotFound: There is no service of that name.
        InvalidRequest: There are several versions.
    """
    if version:
        return name, version
    versions = [
        one.version for one in session.client.list_model_services(name=name, limit=_LOOKED_AT)
    ]
    if not versions:
        raise NotFound(f"there is no model service {name}", field="model_name", value=name)
    if len(versions) > 1:
        raise InvalidRequest(
            f"{name} has several versions: {', '.join(sorted(versions))}", field="model_version",
            allowed=f"one of them: {name} {min(versions)}",
        )  # fmt: skip
    return name, versions[0]


@contextlib.contextmanager
def near_models(session: Session) -> Iterator[None]:
    """Within this, an error about a service that does not exist tells which ones are like it."""
    try:
        yield
    except NotFound as error:
        if error.field == "model_name" and not error.hint and isinstance(error.value, str):
            with contextlib.suppress(CloudMlError):
                from difflib import get_close_matches  # only on this way out

                there = list(session.client.list_model_services(limit=_LOOKED_AT))
                if same := sorted(one.version for one in there if one.name == error.value):
                    error.hint = f"There is {' and '.join(f'{error.value} {one}' for one in same)}."
                elif near := get_close_matches(error.value, {one.name for one in there}, n=3):
                    error.hint = f"Did you mean {' or '.join(near)}?"
        raise


class ModelsGroup(LazyGroup):
    """Commands that name services."""

    def invoke(self, ctx: click.Context) -> object:
        with near_models(ctx.ensure_object(Session)):
            return super().invoke(ctx)
