"""The firewall's rules, as text for ``nft -f``. Pure, so that they can be read and tested by eye.

There are two tables. One stands in each organisation's own network, where neither its jobs nor
another firewall of the machine can touch it; it looks at addresses only and remembers nothing, so
loopback costs nothing. The other stands in the machine's: it keeps jobs from the machine itself,
whatever its addresses are, and from each other, and lends them the machine's address on the way
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from cloud_ml.engines.local.cleanup.owners import LINK_PREFIX
from cloud_ml.engines.local.network.ranges import DENIED, UplinkAddresses, merge_networks
from cloud_ml.settings.reachable import Reachable

PREFIX = LINK_PREFIX
OUTSIDE = "eth0"
"""What a job sees beside its loopback."""
_REFUSE = "reject with icmp admin-prohibited"
_NAMES = 53
_COMMENT = re.compile(r"[\w ./,:=+@%~-]{1,127}", re.ASCII)


@dataclass(frozen=True)
class Policy:
    """What jobs may reach beside the open internet: name servers, and what the operator opened.

    ``connections`` is how many an organisation may have at once.
    """

    servers: tuple[IPv4Address, ...] = ()
    allowed: tuple[Reachable, ...] = ()
    connections: int = 4096

    @property
    def by_port(self) -> list[str]:
        """A rule for each port that is open at some addresses."""
        ranges: dict[int, list[IPv4Network]] = {
            _NAMES: [IPv4Network(server) for server in self.servers]
        }
        for one in self.allowed:
            ranges.setdefault(one.port, []).append(one.range)
        return [
            f"meta l4proto {{ tcp, udp }} ip daddr {{ {_join_elements(merge_networks(found))} }} th dport "
            f"{port} accept"
            for port, found in ranges.items()
            if port and found
        ]

    @property
    def whole(self) -> list[IPv4Network]:
        """Ranges of which every port is open."""
        return merge_networks(one.range for one in self.allowed if not one.port)


def inside(policy: Policy, line: UplinkAddresses, own: Sequence[IPv4Address]) -> str:
    """The table of one organisation's network. ``own`` are the machine's addresses."""
    machine = merge_networks(IPv4Network(address) for address in {*own, line.host})
    return _table("fence", [
        _set("machine", machine),
        _set("allowed", policy.whole),
        _set("denied", merge_networks(DENIED)),
        "chain output {",
        "type filter hook output priority filter; policy drop;",
        'oifname "lo" accept',
        "meta nfproto ipv6 reject with icmpv6 admin-prohibited",
        f"ip saddr != {line.inside} drop",
        # Only the segment that opens a connection has SYN alone, so this table needs no memory of
        # connections.
        # answers to the server
        f"ip daddr {line.host} tcp flags & (fin|syn|rst|ack) != syn accept",
        *policy.by_port,
        f"ip daddr @machine {_REFUSE}",
        "ip daddr @allowed accept",
        f"ip daddr @denied {_REFUSE}",
        "accept",
        "}",
    ])  # fmt: skip


def outside(
    name: str,
    interfaces: str,
    addresses: IPv4Network,
    policy: Policy,
    opened: Iterable[str],
    *,
    comment: str = "",
) -> str:
    """The machine's table.

    Args:
        name: Of the table.
        interfaces: What the names of this server's interfaces begin with.
        addresses: All of its organisations'.
        policy: What jobs may reach.
        opened: Interfaces that forward because a server of ours asked for it: for jobs, and for
            nobody else.
        comment: Says whose the table is. The firewall's language has no way to write every text;
            one that it cannot write is left out, and so is one that is too long for it.
    """
    ours, anybody = f'"{interfaces}*"', f'"{PREFIX}*"'
    devices = _join_elements(f'"{device}"' for device in sorted(opened))
    comment_lines = [f'comment "{comment}"'] if _COMMENT.fullmatch(comment) else []
    return _table(name, [
        *comment_lines,
        _set("allowed", policy.whole),
        _set("denied", merge_networks(DENIED)),
        "set connected { type ipv4_addr; size 65535; flags dynamic; }",
        "chain input {",
        "type filter hook input priority filter - 5; policy accept;",
        f"iifname {ours} jump from_jobs",
        "}",
        "chain from_jobs {",
        "meta nfproto ipv6 drop",
        f"ip saddr != {addresses} drop",
        "meta l4proto tcp ct state established accept",  # answers to the server
        *policy.by_port,
        _REFUSE,
        "}",
        "chain forward {",
        "type filter hook forward priority filter - 5; policy accept;",
        f"iifname {ours} jump out",
        f"oifname {ours} ct state established,related accept",
        f"oifname {ours} drop",
        *([f"iifname {{ {devices} }} oifname != {anybody} drop"] if devices else []),
        "}",
        "chain out {",
        f"oifname {anybody} {_REFUSE}",
        "meta nfproto ipv6 drop",
        f"ip saddr != {addresses} drop",
        f"ct state new add @connected {{ ip saddr ct count over {policy.connections} }} {_REFUSE}",
        *policy.by_port,
        "ip daddr @allowed accept",
        f"ip daddr @denied {_REFUSE}",
        "accept",
        "}",
        "chain nat {",
        "type nat hook postrouting priority srcnat; policy accept;",
        f"ip saddr {addresses} oifname != {anybody} masquerade",
        "}",
    ])  # fmt: skip


def without(name: str) -> str:
    """No table of that name, whether there was one or not."""
    # Deleting fails if there is no table, so add it first. One run of nft is one transaction, so
    # there is no moment without rules.
    return f"add table inet {name}\ndelete table inet {name}\n"


def _table(name: str, content: Sequence[str]) -> str:
    """The table in place of what was there, in one step."""
    return f"{without(name)}table inet {name} {{\n" + "\n".join(content) + "\n}\n"


def _set(name: str, elements: Iterable[object]) -> str:
    listed = _join_elements(elements)
    filled = f" elements = {{ {listed} }}" if listed else ""
    return f"set {name} {{ type ipv4_addr; flags interval;{filled} }}"


def _join_elements(elements: Iterable[object]) -> str:
    return ", ".join(map(str, elements))
