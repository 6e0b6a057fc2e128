"""Signs what schemathesis makes up, so that it gets further than the door."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import schemathesis

from cloud_ml.auth.signature import content_sha256, sign


def signed(request: Any) -> Any:
    """For ``requests``: the request as it will be sent, with our headers."""
    body = request.body or b""
    if isinstance(body, str):
        body = body.encode()
    headers = sign(
        request.method,
        request.path_url,
        key=os.environ["CLOUDML_ACCESS_KEY"],
        secret=os.environ["CLOUDML_SECRET_KEY"],
        now=datetime.now(UTC),
        content=content_sha256(body),
    )
    request.headers.update(headers)
    return request


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    kwargs["auth"] = signed
