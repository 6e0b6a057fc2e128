"""A network for each organisation: made when a job first needs it, kept for the next ones, and
taken away again.

Each has a loopback of its own and one line to the machine, which forwards and lends its address.
Everything here can be done again over whatever a killed predecessor left.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.local.cleanup.owners import owner_of, owner_of_link
from cloud_ml.engines.local.config import LocalConfig, Network
from cloud_ml.engines.local.network import (
    firewall,
    machine,
    netlink,
    pins,
    ranges,
    resolvers,
    rules,
)
from cloud_ml.engines.local.network.pins import Pins
from cloud_ml.settings import reachable

_LEAST_MTU = 1280
_HOST_SIDE = {
    "forwarding": 1,
    # Drops packets whose source address does not lead back through the interface.
    "rp_filter": 1,
    "accept_source_route": 0,
    "send_redirects": 0,
    "accept_redirects": 0,
}


class Networks:
    """The networks of one server's organisations. One thread of one process at a time, as root.

    Args:
        config: The engine's; its ``network`` says what jobs may reach.
        home: Where networks are mounted.
    """

    def __init__(self, config: LocalConfig, home: Path = pins.HOME) -> None:
        self._network: Network = config.network
        self._root = config.root
        self._owner = owner_of(config.root)
        self.resolv = config.etc / "resolv.conf"
        self.pins = Pins(self._network.instance, home)
        self._table = f"cloudml-{self._network.instance}"
        self._interfaces = f"{rules.PREFIX}{self._network.instance[:5]}-"
        self._used: dict[int, float] = {}
        self._resolver_mark: tuple[object, ...] = ()
        self._policy = rules.Policy()
        self.changes: socket.socket | None = None
        """Readable when somebody has changed the machine's firewall."""

    def start(self) -> None:
        """Go on with what a predecessor left, clear away what nobody will need, and put the
        machine's table up.

        Raises:
            OSError: What is needed is not permitted, or there are no addresses.
        """
        with self.pins.alone():
            self.pins.create(self._root)
            try:
                self.pins.addresses = self._choose_range()
            except OSError:
                if not self.pins.slots():
                    self.pins.remove()
                raise
        self._read_policy()
        for tenant in self.pins.slots():
            if self.pins.is_ready(tenant) and self._has_interface(tenant):
                self._used[tenant] = time.monotonic()
                self._fence(tenant)
            else:
                self._remove(tenant)
        self._outside()
        if self.changes is None:
            self.changes = firewall.news()

    def folder(self) -> int:
        """The folder of mounts, opened: in it, names are found from every mount table."""
        return os.open(self.pins.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def renew(self) -> bool:
        """Begin again if somebody has removed all of it; whether that was so, and ``folder`` is
        another one.

        Raises:
            OSError: As ``start``.
        """
        if self.pins.addresses is not None:
            return False
        self._used.clear()
        self.start()
        return True

    def need(self, tenant: int) -> None:
        """Have the network of an organisation, in the state that the settings and the machine ask
        for.

        Raises:
            OSError: It cannot be had.
        """
        self.refresh()
        if tenant not in self._used:
            self._make(tenant)
        self._used[tenant] = time.monotonic()

    def refresh(self) -> None:
        """Follow the machine's name servers."""
        if self._resolver_mark != resolvers.mark():
            self._read_policy()
            for tenant in self._used:
                self._fence(tenant)
            self._outside()

    def restore(self) -> None:
        """After a change of the machine's firewall: put our table up again if it is gone."""
        assert self.changes is not None
        if firewall.lost_a_table(self.changes):
            self._have_table()

    def tidy(self, running: Sequence[int]) -> None:
        """Follow the machine's ways out, look after its table, and take away what was not used for
        long.

        Args:
            running: Organisations that have jobs.
        """
        self.refresh()
        self._have_table()
        if self._used:
            self._forward(self._uplinks())
        now = time.monotonic()
        for tenant in running:
            self._used[tenant] = now
        old = [tenant for tenant, last in self._used.items() if now - last > self._network.idle_s]
        if old:
            inhabited = pins.list_inhabited()
            for tenant in old:
                if pins.identity(self.pins.path(tenant)) in inhabited:
                    self._used[tenant] = now
                else:
                    self._remove(tenant)

    def leave(self) -> None:
        """Take everything away, unless a process is still in one of the networks."""
        if self.changes is not None:
            self.changes.close()
        inhabited = pins.list_inhabited()
        if not any(
            pins.identity(self.pins.path(tenant)) in inhabited for tenant in self.pins.slots()
        ):
            with self.pins.alone():
                clear(self.pins)

    # ---- one network

    def _make(self, tenant: int) -> None:
        self._remove(tenant)
        addresses = self._addresses()
        line = ranges.line(addresses, self.pins.take_slot(tenant, ranges.slots(addresses)))
        uplinks = self._uplinks()
        mtu = min(
            [1500, *(mtu for device in uplinks if (mtu := machine.mtu(device)) >= _LEAST_MTU)]
        )
        name, pin = self._interface(tenant), self.pins.path(tenant)
        pin.touch(mode=0o600)
        fence = rules.inside(self._policy, line, netlink.addresses())
        # The child leaves this network, and puts one end of the pair back into it.
        here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:

            def make() -> None:
                linux.leave_network()
                # Only this mount keeps the network alive after the child has ended.
                linux.bind_mount(Path("/proc/self/ns/net"), pin)
                machine.write_sysctl("ipv6/conf/default/disable_ipv6", 1, needed=False)
                machine.reserve_ports(self._network.task_ports)
                netlink.set_up("lo")
                # Add the rules before the interface, so that no packet passes without them.
                firewall.nft(["-f", "-"], fence)
                netlink.make_pair(rules.OUTSIDE, name, here, mtu)
                netlink.give_address(rules.OUTSIDE, line.inside, line.host)
                netlink.set_up(rules.OUTSIDE)

            machine.in_child(make)
            with contextlib.suppress(OSError):  # it says whose the link is, no more
                netlink.set_alias(name, self._owner.mark)
            for setting, value in _HOST_SIDE.items():
                machine.write_sysctl(
                    f"ipv4/conf/{name}/{setting}", value, needed=setting == "forwarding"
                )
            machine.write_sysctl(f"ipv6/conf/{name}/disable_ipv6", 1, needed=False)
            netlink.give_address(name, line.host, line.inside)
            netlink.set_up(name)
            self._inside(tenant, lambda: netlink.route_all(line.host, rules.OUTSIDE))
            self._forward(uplinks)
        except OSError:
            self._remove(tenant)
            raise
        finally:
            os.close(here)
        # Write this note last: a network without it is created again.
        self.pins.note_ready(tenant)

    def _remove(self, tenant: int) -> None:
        self._used.pop(tenant, None)
        with contextlib.suppress(OSError):
            netlink.remove(self._interface(tenant))
        self.pins.forget(tenant)

    def _fence(self, tenant: int) -> None:
        """Put the rules of a network that is there anew."""
        addresses = self._addresses()
        text = rules.inside(
            self._policy, ranges.line(addresses, self.pins.slots()[tenant]), netlink.addresses()
        )
        self._inside(tenant, lambda: firewall.nft(["-f", "-"], text))

    def _inside(self, tenant: int, act: Callable[[], object]) -> None:
        pin = os.open(self.pins.path(tenant), os.O_RDONLY | os.O_CLOEXEC)
        try:
            machine.in_network(pin, act)
        finally:
            os.close(pin)

    def _interface(self, tenant: int) -> str:
        return f"{self._interfaces}{tenant:x}"

    def _has_interface(self, tenant: int) -> bool:
        return Path("/sys/class/net", self._interface(tenant)).exists()

    # ---- the machine

    def _choose_range(self) -> IPv4Network:
        """The range that was chosen before, while it fits; else the configured one, else a free
        one.
        """
        network_range = IPv4Network(self._network.range) if self._network.range else None
        kept = self.pins.addresses
        if kept is not None and network_range in (None, kept):
            return kept
        if kept is not None:
            for tenant in self.pins.slots():
                self._remove(tenant)
        taken = [
            route.to for route in netlink.routes() if not route.device.startswith(rules.PREFIX)
        ]
        taken += [other.addresses for other in self.pins.others() if other.addresses]
        if network_range is None:
            network_range = ranges.pick(taken)
        elif clash := next(
            (one for one in taken if one.prefixlen and one.overlaps(network_range)), None
        ):
            raise OSError(
                f"engine.network_range {network_range} overlaps with {clash}, "
                "which this machine has a route to"
            )
        if network_range is None:
            raise OSError(
                "all ranges for jobs' networks are in use on this machine: set engine.network_range"
            )
        return network_range

    def _read_policy(self) -> None:
        self._resolver_mark = resolvers.mark()
        found = resolvers.find(self._network.dns)
        self._policy = rules.Policy(
            found.servers, reachable.parse(self._network.allow), self._network.connections
        )
        draft = self.resolv.with_name(f"{self.resolv.name}.draft")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(found.text)
        draft.chmod(0o644)
        draft.replace(self.resolv)

    def _have_table(self) -> None:
        if not firewall.nft(["list", "table", "inet", self._table], check=False):
            self._outside()

    def _outside(self) -> None:
        addresses = self._addresses()

        def text(comment: str) -> str:
            opened = self.pins.opened()
            return rules.outside(
                self._table, self._interfaces, addresses, self._policy, opened, comment=comment
            )

        if not firewall.nft(["-f", "-"], text(self._owner.mark), check=False):
            firewall.nft(["-f", "-"], text(""))  # an older program knows no comments of tables

    def _addresses(self) -> IPv4Network:
        addresses = self.pins.addresses
        if addresses is None:
            raise OSError(
                f"{self.pins.folder} is gone, and with it the networks: the next job that "
                "needs one creates it again"
            )
        return addresses

    def _uplinks(self) -> list[str]:
        """Interfaces that lead to where jobs may go."""
        also = [
            *(one.range for one in self._policy.allowed),
            *map(IPv4Network, self._policy.servers),
        ]
        found = {route.device for route in netlink.routes() if ranges.leads_out(route.to, also)}
        return sorted(
            name for name in found if name not in ("", "lo") and not name.startswith(rules.PREFIX)
        )

    def _forward(self, devices: Sequence[str]) -> None:
        """Have the machine take the answers that come for jobs, and forward nothing else that it
        did not before.
        """
        closed = [
            device for device in devices if not machine.reads_one(f"ipv4/conf/{device}/forwarding")
        ]
        forwarding = [
            device for device in devices if device in closed or device in self.pins.opened()
        ]
        if not closed and all(self.pins.has_opened(device) for device in forwarding):
            return
        with self.pins.alone():
            for device in forwarding:
                self.pins.note_opened(device)
            self._outside()  # the rule first, the opening after it
            for device in closed:
                with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                    machine.write_sysctl(f"ipv4/conf/{device}/forwarding", 1)


def address_of(config: LocalConfig, tenant: int, home: Path = pins.HOME) -> IPv4Address | None:
    """Where this machine reaches what an organisation's jobs listen on; ``None`` if there is no
    such network.
    """
    kept = Pins(config.network.instance, home)
    addresses, slot = kept.addresses, kept.slots().get(tenant)
    return (
        ranges.line(addresses, slot).inside if addresses is not None and slot is not None else None
    )


def clear(kept: Pins) -> None:
    """Take away everything of a server, which must not run any more."""
    prefix = f"{rules.PREFIX}{kept.instance[:5]}-"
    for _, name in socket.if_nameindex():
        owner = owner_of_link(name)
        if name.startswith(prefix) and (owner is None or owner.instance == kept.instance):
            with contextlib.suppress(OSError):
                netlink.remove(name)
    for device in kept.release():
        with contextlib.suppress(OSError):
            machine.write_sysctl(f"ipv4/conf/{device}/forwarding", 0)
    with contextlib.suppress(OSError):
        firewall.nft(["-f", "-"], rules.without(f"cloudml-{kept.instance}"))
    kept.remove()
