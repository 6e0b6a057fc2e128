"""Which addresses the networks of organisations have, and which ones no job may reach. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

DENIED = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # the metadata service of a cloud, private only by agreement
    )
)
"""Private, shared, link-local, multicast, reserved; metadata services among them."""
_CANDIDATES = tuple(
    part
    for text in ("10.213.0.0/16", "172.27.0.0/16", "192.168.192.0/18", "100.99.0.0/16")
    for part in IPv4Network(text).subnets(new_prefix=20)
)


@dataclass(frozen=True)
class UplinkAddresses:
    """The two ends of an organisation's way out."""

    host: IPv4Address
    inside: IPv4Address


def line(all_of_them: IPv4Network, slot: int) -> UplinkAddresses:
    """The addresses of a slot."""
    first = all_of_them.network_address + 2 * slot
    return UplinkAddresses(first, first + 1)


def slots(all_of_them: IPv4Network) -> int:
    """How many organisations a range has addresses for."""
    return all_of_them.num_addresses // 2


def pick(taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """A range that overlaps with nothing that is taken. The way to everywhere takes nothing."""
    taken = [one for one in taken if one.prefixlen > 0]
    return next(
        (one for one in _CANDIDATES if not any(one.overlaps(other) for other in taken)), None
    )


def leads_out(to: IPv4Network, also: Iterable[IPv4Network]) -> bool:
    """Whether a route leads to something that jobs may reach: what is not denied, or one of
    ``also``.
    """
    return not any(to.subnet_of(one) for one in DENIED) or any(to.overlaps(one) for one in also)


def merge_networks(networks: Iterable[IPv4Network]) -> list[IPv4Network]:
    """The same addresses, each once: sets of the firewall refuse overlaps."""
    return list(collapse_addresses(networks))
