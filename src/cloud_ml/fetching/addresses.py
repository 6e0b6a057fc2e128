"""Which addresses a tenant's URL may lead to: the open internet, and what the operator allowed
by name. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
    )
)
"""Where clouds tell machines their secrets; some of these are not private by their number."""
_WRAPPING = tuple(
    ipaddress.ip_network(text)
    for text in ("::/96", "2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv6 addresses that stand for an IPv4 address: what a gateway makes of them is not ours to
know.
"""
_NOT_FOR_HOSTS = tuple(
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")
)
"""Set aside for protocols and books; not every Python release knows them all."""
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""The third quarter of an address whose last one is an IPv4 address to tunnel to."""


@dataclass(frozen=True)
class Allowed:
    """What the operator allowed beyond the open internet."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = field(default=())

    @classmethod
    def parse(cls, words: Sequence[str]) -> Allowed:
        """Host names, addresses and ranges such as ``10.1.0.0/16``.

        Raises:
            ValueError: A word is none of these; it is the message.
        """
        hosts, networks = set(), []
        for word in filter(None, (word.strip().lower() for word in words)):
            try:
                networks.append(ipaddress.ip_network(word))
            except ValueError:
                if (
                    not word.replace("-", "").replace(".", "").isalnum()
                    or word.replace(".", "").isdigit()
                ):
                    raise ValueError(word) from None
                hosts.add(word.rstrip("."))
        return cls(frozenset(hosts), tuple(networks))


def refusal(host: str, text: str, allowed: Allowed) -> str | None:
    """Why an address that ``host`` leads to must not be reached; ``None`` if it may be.

    The address itself is not repeated: it may come from a name service that only the operator may
    ask.
    """
    if is_named(host, text, allowed):
        return None
    address = _parse_address(text)
    return "is link-local" if address is None else _class_of(address)


def is_named(host: str, text: str, allowed: Allowed) -> bool:
    """Whether the operator allowed this host, or the address that it leads to."""
    address = _parse_address(text)
    within = address is not None and any(address in network for network in allowed.networks)
    return within or host.lower().rstrip(".") in allowed.hosts


def _parse_address(text: str) -> Address | None:
    """An address, unwrapped if it is a mapped one; ``None`` for one with a scope, such as
    ``fe80::1%eth0``.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _class_of(address: Address) -> str | None:
    if address in _METADATA:
        return "is a metadata service"
    if address.is_loopback or address.is_unspecified:
        return "is loopback"
    if address.is_link_local:
        return "is link-local"
    if address.is_multicast:
        return "is multicast"
    if any(address in network for network in _WRAPPING) or _is_isatap(address):
        return "is an IPv6 form of another address"
    return None if _is_public(address) else "is private"


def _is_public(address: Address) -> bool:
    """Whether hosts of the internet have such an address."""
    if address.is_private or address.is_reserved or not address.is_global:
        return False
    if isinstance(address, ipaddress.IPv6Address) and (
        address.is_site_local or address not in _GLOBAL_V6
    ):
        return False
    return not any(address in network for network in _NOT_FOR_HOSTS)


def _is_isatap(address: Address) -> bool:
    return address.version == 6 and (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP
