"""Whether the names of applications keep them apart from the API. Pure."""

from __future__ import annotations

import re

from cloud_ml.models import common
from cloud_ml.settings.all_settings import Settings
from cloud_ml.settings.gateway import ports_of
from cloud_ml.settings.server import is_loopback

_NAME = re.compile(
    r"(?=.{1,190}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
_SHARED_LABELS = 2


def check_applications(settings: Settings) -> None:
    """Look at the settings of applications together.

    Raises:
        InvalidRequest: A name is none, or pages of applications could reach the API's cookies.
    """
    chosen = settings.applications
    if any(chosen.port in ports for ports in ports_of(settings.gateway.ports)):
        allowed = f"a port that is not among gateway.ports ({settings.gateway.ports})"
        raise common.refuse("applications.port", chosen.port, allowed)
    for field, name in (("domain", chosen.domain), ("api_name", chosen.api_name)):
        if (field == "domain" or name) and not _NAME.fullmatch(name):
            allowed = "a name of a host in lower case, such as apps.example.net"
            raise common.refuse(f"applications.{field}", name, allowed)
    if chosen.local:
        if not is_loopback(settings.applications_host):
            raise common.refuse(
                "applications.host",
                chosen.host,
                "an address of loopback while applications.domain is localhost, such as 127.0.0.1",
            )
        return
    if not chosen.api_name:
        allowed = "the name under which browsers reach the API, where applications.domain is set"
        raise common.refuse("applications.api_name", chosen.api_name, allowed)
    if are_related(chosen.domain, chosen.api_name):
        raise common.refuse(
            "applications.domain",
            chosen.domain,
            f"a domain that is no parent, child or sibling of {chosen.api_name}: pages of one could "
            "set cookies for the other",
        )
    if not settings.applications_tls and not settings.server.behind_proxy:
        raise common.refuse(
            "applications.domain",
            chosen.domain,
            "localhost, or any with gateway.tls_cert, or with server.behind_proxy",
        )


def are_related(one: str, other: str) -> bool:
    """Whether two names could share a cookie: one is below the other, or both are below a domain
    of at least two labels. Public suffixes of two labels, such as co.uk, count as such a domain.
    """
    if one == other or one.endswith(f".{other}") or other.endswith(f".{one}"):
        return True
    ends = [name.split(".")[-_SHARED_LABELS:] for name in (one, other)]
    return len(ends[0]) == _SHARED_LABELS and ends[0] == ends[1]
