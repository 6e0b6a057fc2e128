"""What a process in a TensorBoard's sandbox asks the server for."""

from __future__ import annotations

import json

from cloud_ml.domain.tensorboards.mirror_requests import ListFiles, ReadFile, parse_request
from cloud_ml.errors import InvalidRequest
from fuzz.harness import target

_SOURCES = 3


@target(
    "domain.tensorboards.mirror_requests",
    seeds=(
        b'{"list": 0, "after": ""}',
        b'{"list": 2, "after": "run/events.out.tfevents.1"}',
        b'{"read": 1, "path": "a/events.out.tfevents.1.host", "start": 4096}',
    ),
    words=(b'"list"', b'"read"', b'"after"', b'"path"', b'"start"', b"true", b"-1", b"1e3", b"\\ud800", b"../"),
)  # fmt: skip
def mirror_request(data: bytes) -> None:
    """A request is one of the two, of a source that there is, and says what it was read from."""
    try:
        found = parse_request(data, _SOURCES)
    except InvalidRequest:
        return
    assert type(found.source) is int
    assert 0 <= found.source < _SOURCES
    sent = json.loads(data)
    if isinstance(found, ListFiles):
        assert sent == {"list": found.source, "after": found.after}
        return
    assert isinstance(found, ReadFile)
    assert found.path
    assert found.start >= 0
    assert sent == {"read": found.source, "path": found.path, "start": found.start}
