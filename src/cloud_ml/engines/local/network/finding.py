"""What this machine gives of a network for each organisation: found out by putting one up, in a
process that ends.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from urllib.parse import urlsplit

from cloud_ml import linux
from cloud_ml.engines.local.config import Network
from cloud_ml.engines.local.network import (
    HOST,
    NONE,
    TENANT,
    firewall,
    gang_network,
    machine,
    netlink,
    ranges,
    resolvers,
    rules,
)
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.packages.pipconfig import PipConfig
from cloud_ml.settings import EngineSettings

_RESOLVE_S = 2.0
_PORTS = {"http": 80, "https": 443}
_DROPS = re.compile(r"table (\S+ \S+) \{|hook forward [^;]*; policy (\w+);")


def find(
    settings: EngineSettings, instance: str, *, sandboxed: bool
) -> tuple[Network, str, list[str]]:
    """The network of jobs.

    Returns:
        What is in force, why it is less than the settings ask for (empty if it is not), and
        sentences about what will be missing in it.
    """
    if settings.network not in ("auto", TENANT):
        no_gangs = gang_network.obstacle() if settings.network == NONE else ""
        network = Network(
            fence=settings.network,
            instance=instance,
            no_gangs=no_gangs,
            task_ports=settings.ports,
        )
        return network, "", []
    why = _obstacle(sandboxed)
    if why:
        return (
            Network(fence=HOST, instance=instance),
            f"jobs share the machine's network: {why}",
            [],
        )
    indexes, missing = _indexes(pipconfig.read())
    network = Network(
        fence=TENANT,
        instance=instance,
        allow=", ".join(filter(None, (settings.network_allow, *indexes))),
        range=settings.network_range,
        dns=tuple(settings.network_dns.replace(",", " ").split()),
        connections=settings.network_connections,
        idle_s=settings.network_idle_s,
        task_ports=settings.ports,
    )
    if not resolvers.find(network.dns).servers:
        missing.append(
            "jobs find no names: the name servers of this machine are on its loopback, where jobs' "
            "networks do not lead; set engine.network_dns"
        )
    if table := drops_forwarded():
        missing.append(
            "jobs may have no way out: the chain for forwarded packets of the firewall's table "
            f"{table} drops what it does not know; let pass what comes in by interfaces whose "
            f"names begin with {rules.PREFIX}, and the answers: iptables -I FORWARD -i "
            f"{rules.PREFIX}+ -j ACCEPT; iptables -I FORWARD -o {rules.PREFIX}+ -m conntrack "
            "--ctstate ESTABLISHED,RELATED -j ACCEPT"
        )
    return network, "", missing


def _obstacle(sandboxed: bool) -> str:
    if not sandboxed:
        return "one of each organisation's own takes a sandbox"
    if os.geteuid() != 0:
        return "one of each organisation's own takes root; run the server as root, or set engine.network to none or host"  # noqa: E501
    if shutil.which("nft") is None:
        return "nft is not installed; apt install nftables (or dnf, pacman, …)"
    if not os.access("/proc/sys/net/ipv4/conf/default/forwarding", os.W_OK):
        return "/proc/sys/net cannot be written here"
    try:
        _try()
    except OSError as error:
        return f"one of each organisation's own cannot be made here: {error}"
    return ""


def _try() -> None:
    """Make a network with everything in it, connected to nothing, and have the machine's rules
    checked.
    """
    line = ranges.line(IPv4Network("10.0.0.0/31"), 0)
    policy = rules.Policy((IPv4Address("10.0.0.2"),))

    def make() -> None:
        linux.leave_network()
        netlink.set_up("lo")
        firewall.nft(["-f", "-"], rules.inside(policy, line, []))
        firewall.nft(
            ["-f", "-"],
            rules.outside("probe", rules.PREFIX, IPv4Network("10.0.0.0/31"), policy, ["eth0"]),
        )
        here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        netlink.make_pair("probe0", "probe1", here, 1500)

    machine.in_child(make)


def _indexes(config: PipConfig) -> tuple[list[str], list[str]]:
    """Where packages come from, as far as that is private, as entries of what is allowed; and
    what is out of reach.
    """
    places = (config.index or "", *config.extra_indexes, *config.find_links)
    parts = [part for part in map(urlsplit, places) if part.scheme in _PORTS and part.hostname]
    found, missing = set(), []
    for host, port in sorted(
        {(part.hostname or "", part.port or _PORTS[part.scheme]) for part in parts}
    ):
        for address in _resolve_host(host):
            if address.is_loopback:
                missing.append(
                    f"jobs cannot reach the package index {host}:{port}: it is on this machine's "
                    "loopback; have it listen on another address"
                )
            elif any(address in network for network in ranges.DENIED):
                found.add(f"{address}:{port}")
    return sorted(found), missing


def _resolve_host(host: str) -> Iterable[IPv4Address]:
    """The addresses of a host, unless the name server takes long to say."""
    found: list[IPv4Address] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            return
        found.extend(IPv4Address(answer[4][0]) for answer in answers)

    # getaddrinfo(3) has no timeout, so a hanging thread is left running.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_RESOLVE_S)
    return sorted(set(found))


def drops_forwarded() -> str:
    """The table of another firewall that drops what is forwarded, unless it knows it; empty if
    there is none.
    """
    try:
        listed = subprocess.run(
            ["nft", "list", "chains"],  # noqa: S607
            capture_output=True,
            timeout=20,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    table = ""
    for match in _DROPS.finditer(listed):
        table = match[1] or table
        if match[2] == "drop":
            return table
    return ""
