"""Asking an address whether somebody is there."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from urllib.parse import unquote

_TIMEOUT_S = 5.0


class Unreachable(Exception):
    """Nobody answered; the message says how."""


def reach(url: str, environ: Mapping[str, str] | None = None) -> Message:
    """Ask ``url`` (http, https or file) once; any HTTP answer is an answer. Returns its headers.

    Args:
        url: Credentials in it are not sent, and in no message.
        environ: Where ``SSL_CERT_FILE`` may name certificates; proxies are the standard library's
            affair.

    Raises:
        Unreachable: No answer within five seconds.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        if not Path(unquote(rest)).exists():
            raise Unreachable("there is no such folder")
        return Message()
    if scheme not in ("http", "https"):
        raise Unreachable(f"{scheme} is no scheme to ask")
    host = rest.split("/", 1)[0]
    address = f"{scheme}://{rest.replace(host, host.rpartition('@')[2], 1)}"
    context = ssl.create_default_context(cafile=(environ or {}).get("SSL_CERT_FILE") or None)
    question = urllib.request.Request(address, method="HEAD")  # noqa: S310 - one of two schemes
    try:
        with urllib.request.urlopen(question, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310
            headers: Message = answer.headers
            return headers
    except urllib.error.HTTPError as error:
        return error.headers
    except (OSError, ValueError) as error:
        raise Unreachable(str(getattr(error, "reason", error))) from error
