"""A browser as far as the application front is concerned: names below localhost, cookies, headers."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

NAVIGATION = {
    "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
}  # fmt: skip
FETCH = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@dataclass(frozen=True)
class Page:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    """Keeps cookies for each host name alone, as host-only cookies are kept."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    def get(
        self,
        url: str,
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
    ) -> Page:
        """One request; redirects are not followed."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        sent = {"Host": parts.netloc, **(NAVIGATION if headers is None else headers)}
        if host in self.cookies:
            sent.setdefault("Cookie", self.cookies[host])
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        ) as connection:
            connection.request(method, target, body=body, headers=sent)
            answer = connection.getresponse()
            found: dict[str, str] = {}
            for name, value in answer.getheaders():
                known = found.get(name.lower())
                found[name.lower()] = value if known is None else f"{known}, {value}"
            page = Page(answer.status, found, answer.read())
        if cookie := page.headers.get("set-cookie"):
            self.cookies[host] = cookie.partition(";")[0]
        return page
