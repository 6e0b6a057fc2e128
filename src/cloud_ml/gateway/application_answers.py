"""What the application front lets through of an application's answer, and what it adds."""

from __future__ import annotations

_PASSED = frozenset({
    b"accept-ranges", b"allow", b"cache-control", b"content-disposition", b"content-encoding",
    b"content-language", b"content-range", b"content-security-policy", b"content-type", b"etag",
    b"expires", b"last-modified", b"location", b"retry-after", b"vary",
})  # fmt: skip
"""Fields of answers that are passed on. Others could reach beyond the application's origin: cookies
of a parent domain, ``Clear-Site-Data``, ``Strict-Transport-Security``, ``Alt-Svc``, reports.
"""

GUARDS = (
    b"Content-Security-Policy: frame-ancestors 'none'\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Referrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\n"
)
"""No page frames an application, opens it with a handle, or loads parts of it."""

PLAIN = b"Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"


def filtered(fields: bytes) -> tuple[bytes, bool]:
    """The lines of a head that are passed on, with our own; and whether the body is packed."""
    kept, packed = [], False
    for line in fields.split(b"\r\n"):
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name not in _PASSED:
            continue
        if name == b"content-encoding":
            if value.strip().lower() == b"identity":
                continue
            packed = True
        kept.append(line + b"\r\n")
    return b"".join(kept) + GUARDS, packed
