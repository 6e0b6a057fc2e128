"""Cross-origin requests of browsers: https://fetch.spec.whatwg.org/#http-cors-protocol."""

import re
from collections.abc import Collection

from cloud_ml.net.http1.heads import Head

ANY = "*"
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_EXPOSED = b"Access-Control-Expose-Headers: cloudml-release, inference-header-content-length, retry-after\r\n"
PREFLIGHT = (
    b"Access-Control-Allow-Methods: GET, HEAD, POST\r\n"
    b"Access-Control-Allow-Headers: accept, authorization, cloudml-release, content-encoding, content-type, "
    b"inference-header-content-length, x-amzn-sagemaker-target-model\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)
"""Fields of the answer to a browser that asks what it may send."""


def parse_origins(text: str) -> frozenset[str]:
    """Origins with commas between, or ``*`` for all; an empty text is none.

    Raises:
        ValueError: with what is no origin.
    """
    origins = frozenset(each.strip() for each in text.split(",") if each.strip())
    for origin in sorted(origins):
        if origin != ANY and _ORIGIN.fullmatch(origin) is None:
            raise ValueError(
                f"{origin!r} is no origin such as https://app.example.com, or * for all"
            )
    return origins


class Cors:
    """Lets pages of some origins read answers. Credentials of the browser are not allowed:
    tokens stand in a field.
    """

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def fields(self, head: Head) -> bytes:
        """Lines of the head of an answer; none for a request of another origin, or of no page."""
        if not self._origins:
            return b""
        origin = head.fields.get("origin")
        if origin is None:
            # `Vary` stands on answers without the origin's fields, too: a shared cache would
            # otherwise give a page the answer that another origin got.
            return b"" if ANY in self._origins else b"Vary: Origin\r\n"
        if ANY in self._origins:
            return b"Access-Control-Allow-Origin: *\r\n" + _EXPOSED
        if origin not in self._origins:
            return b"Vary: Origin\r\n"
        return b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n%b" % (
            origin.encode("latin-1"),
            _EXPOSED,
        )

    def is_preflight(self, head: Head) -> bool:
        """Whether a browser asks what a page of an origin that is allowed may send."""
        if head.method != "OPTIONS" or "access-control-request-method" not in head.fields:
            return False
        return ANY in self._origins or head.fields.get("origin") in self._origins
