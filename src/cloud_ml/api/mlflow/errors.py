"""Errors in the form of MLflow's API: ``error_code`` and ``message``, beside what ours say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloud_ml.auth.claims import HOW_TO_AUTHENTICATE

PREFIX = "/mlflow/"
_WITHOUT_PREFIX = ("/api/2.0/mlflow", "/ajax-api/2.0/mlflow")
_AUTHENTICATION_HINT = (
    "Set a token: export MLFLOW_TRACKING_TOKEN=$(cloudml token create --scope runs:write)"
)
_CODES: Mapping[int, str] = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    405: "ENDPOINT_NOT_FOUND",
    409: "RESOURCE_ALREADY_EXISTS",
    413: "INVALID_PARAMETER_VALUE",
    429: "REQUEST_LIMIT_EXCEEDED",
    501: "NOT_IMPLEMENTED",
    503: "TEMPORARILY_UNAVAILABLE",
    507: "RESOURCE_EXHAUSTED",
}


def document(path: str, status: int, ours: Mapping[str, Any]) -> dict[str, Any]:
    """An error document as those expect it who have asked at a path."""
    if path.startswith(_WITHOUT_PREFIX):
        # The client was given the server's address and not that of its endpoint.
        ours = {**ours, "hint": "Add /mlflow to MLFLOW_TRACKING_URI, as in https://HOST/mlflow"}
    elif not path.startswith(PREFIX):
        return dict(ours)
    elif ours.get("hint") == HOW_TO_AUTHENTICATE:  # MLflow's users send no headers themselves
        ours = {**ours, "hint": _AUTHENTICATION_HINT}
    code = _CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    # A path that is not there, in contrast to a resource: MLflow's client then tries an older call.
    if status == 404 and ours.get("field") is None:
        code = "ENDPOINT_NOT_FOUND"
    hint = ours.get("hint")
    message = str(ours.get("message", ""))
    if hint:
        message = f"{message.removesuffix('.')}. {hint}"
    return {"error_code": code, **ours, "message": message}
