"""Which scope a token needs for a request. What is not known here is refused to every token."""

from __future__ import annotations

from starlette.requests import Request

from cloud_ml.api import tokens
from cloud_ml.domain.scopes import ACTIONS, Scope
from cloud_ml.errors import Forbidden

_FOR_EVERY_TOKEN = frozenset({"whoami", "frameworks", "server"})
"""What they tell holds no data of an organisation but its name."""

_SAME = {"experiments": "runs", "optuna": "studies"}
"""Resources that have the scopes of another one."""


def needed_by(request: Request, *, mutation: bool) -> Scope | None:
    """The scope that a request needs; ``None`` if any token may ask.

    The route decides, not the path: ``/api/v1/RESOURCE/…`` and ``/api/v1/admin/RESOURCE/…``.

    Raises:
        Forbidden: No token may ask this.
    """
    if request.scope["route"].path.startswith(tokens.MLFLOW):
        return Scope("runs", "write" if mutation else "read")
    parts = request.scope["route"].path.split("/")[3:]
    resource = next((part for part in parts if part != "admin"), "")
    if resource in _FOR_EVERY_TOKEN and not mutation:
        return None
    resource = _SAME.get(resource, resource)
    action = "write" if mutation else "read"
    if action not in ACTIONS.get(resource, ()):
        raise Forbidden(
            "This operation needs a signed request; tokens are not accepted.", field="Authorization"
        )
    return Scope(resource, action)
