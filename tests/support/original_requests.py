"""Requests of the original interface, signed as its client signs them."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from typing import Any

from cloud_ml.auth import legacy
from support.server import RealServer


def original_request(
    server: RealServer, method: str, path: str, document: Any = None
) -> tuple[int, Any]:
    """A request as the original client signs it."""
    keys, body = server.credentials, b"" if document is None else json.dumps(document).encode()
    server.client().admin.change_key(keys["access_key"], legacy_signatures=True)
    date, digest = str(int(time.time())), hashlib.md5(body, usedforsecurity=False).hexdigest()
    headers = {
        legacy.KEY: keys["access_key"],
        legacy.DATE: date,
        legacy.CONTENT: digest,
        legacy.AUTHORIZATION: f"{legacy.SCHEME} "
        f"{legacy.signature(path, date, digest, keys['secret_key'])}",
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    result = json.loads(answer.read())
    connection.close()
    return answer.status, result
