"""Where a server is: one text, parsed once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from cloud_ml.models.common import refuse

DEFAULT_ENDPOINT = "http://127.0.0.1:8471"
"""Where ``cloudml server`` listens unless told otherwise."""

_ALLOWED = "a URL such as http://127.0.0.1:8471 or https://cloudml.example.com"
_API = re.compile(r"/(api/v1|cloud_ml/v1)\b.*$")
_LOOPBACK_V4 = re.compile(r"127(\.\d{1,3}){3}")
_LOOPBACK = ("localhost", "127.", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address. ``prefix`` is the path under which a proxy shows it: empty, or like
    ``/ml``.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme == "https"

    @property
    def local(self) -> bool:
        """Whether it is this machine by its loopback address."""
        return self.host in ("localhost", "::1") or _LOOPBACK_V4.fullmatch(self.host) is not None

    @property
    def authority(self) -> str:
        """Host and port as they stand in addresses; the usual port of the scheme is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"


def parse_endpoint(text: str) -> Endpoint:
    """Read an endpoint. Without a scheme, ``http`` is taken for loopback addresses and ``https``
    for all others.

    Raises:
        InvalidRequest: Another scheme, no host, a port out of range, or parts that have no place
            here (credentials, a query).
    """
    text = text.strip()
    if not text.isprintable() or " " in text:  # some of these would be left out in silence
        raise refuse("endpoint", text, _ALLOWED)
    if "://" not in text:
        text = ("http://" if text.startswith(_LOOPBACK) else "https://") + text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise refuse("endpoint", text, _ALLOWED) from None
    if parts.username is not None or parts.password is not None:
        # The value is left out of the message: it holds a password.
        raise refuse("endpoint", "…@…", f"{_ALLOWED}, without a user and a password")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or port == 0
    ):
        raise refuse("endpoint", text, _ALLOWED)
    if api := _API.search(parts.path):
        raise refuse(
            "endpoint", text, "the server's address alone", suggestion=text[: text.rindex(api[0])]
        )
    secure = parts.scheme == "https"
    return Endpoint(
        parts.scheme, parts.hostname, port or (443 if secure else 80), parts.path.rstrip("/")
    )
