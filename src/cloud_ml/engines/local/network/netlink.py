"""The few requests to the kernel's routing netlink that a network takes: links, addresses,
routes (rtnetlink(7)).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

_NEWLINK, _DELLINK, _NEWADDR, _GETADDR, _NEWROUTE, _GETROUTE = 16, 17, 20, 22, 24, 26
_REQUEST, _ACK, _DUMP, _CREATE, _EXCLUSIVE = 0x1, 0x4, 0x300, 0x400, 0x200
_ERROR, _DONE = 2, 3
_HEADER, _LINK, _ADDRESS, _ROUTE = (
    struct.Struct("=IHHII"),
    struct.Struct("=BxHiII"),
    struct.Struct("=BBBBi"),
    "=8BI",
)
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 4, 18, 28
_IFLA_IFALIAS, _ALIAS_BYTES = 20, 255
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DESTINATION, _RTA_DEVICE, _RTA_GATEWAY = 1, 4, 5
_MAIN_TABLE, _BY_BOOT, _UNICAST = 254, 3, 1
_UP = 1


@dataclass(frozen=True)
class Route:
    """A route of any table. ``device`` is empty where none is told."""

    to: IPv4Network
    device: str


def make_pair(name: str, peer: str, peer_namespace: int, mtu: int) -> None:
    """A pair of virtual interfaces: ``name`` here, ``peer`` in the namespace of that descriptor.

    Raises:
        OSError: Not permitted, or a name is taken.
    """
    there = _LINK.pack(0, 0, 0, 0, 0) + _name(peer) + _number(_IFLA_MTU, mtu)
    there += _number(_IFLA_NET_NS_FD, peer_namespace)
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, there))
    body = (
        _LINK.pack(0, 0, 0, 0, 0)
        + _name(name)
        + _number(_IFLA_MTU, mtu)
        + _attribute(_IFLA_LINKINFO, info)
    )
    _ask(_NEWLINK, body, _CREATE | _EXCLUSIVE)


def remove(name: str) -> None:
    """Remove an interface, and its peer with it.

    Raises:
        OSError: There is none of that name, or not permitted.
    """
    _ask(_DELLINK, _LINK.pack(0, 0, 0, 0, 0) + _name(name))


def set_up(name: str) -> None:
    """Switch an interface on."""
    _ask(_NEWLINK, _LINK.pack(0, 0, socket.if_nametoindex(name), _UP, _UP))


def set_alias(name: str, alias: str) -> None:
    """Note a text beside an interface; one that is too long for the kernel is left out."""
    if len(alias.encode()) <= _ALIAS_BYTES:
        body = _LINK.pack(0, 0, socket.if_nametoindex(name), 0, 0)
        _ask(_NEWLINK, body + _attribute(_IFLA_IFALIAS, alias.encode()))


def give_address(name: str, address: IPv4Address, peer: IPv4Address) -> None:
    """Give an interface an address of a line between two."""
    body = _ADDRESS.pack(socket.AF_INET, 32, 0, 0, socket.if_nametoindex(name))
    _ask(
        _NEWADDR,
        body + _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, peer.packed),
        _CREATE | _EXCLUSIVE,
    )


def route_all(gateway: IPv4Address, name: str) -> None:
    """Send everything without a better way through ``gateway``."""
    body = struct.pack(_ROUTE, socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _BY_BOOT, 0, _UNICAST, 0)
    body += _attribute(_RTA_GATEWAY, gateway.packed) + _number(
        _RTA_DEVICE, socket.if_nametoindex(name)
    )
    _ask(_NEWROUTE, body, _CREATE | _EXCLUSIVE)


def routes() -> list[Route]:
    """Every unicast route of every table of this namespace."""
    names = dict(socket.if_nameindex())
    found = []
    for body in _ask(_GETROUTE, struct.pack(_ROUTE, socket.AF_INET, *[0] * 8), _DUMP):
        length, kind = body[1], body[7]
        if kind == _UNICAST:
            attributes = dict(_attributes(body[12:]))
            to = IPv4Network((attributes.get(_RTA_DESTINATION, b"\0\0\0\0"), length), strict=False)
            found.append(
                Route(to, names.get(int.from_bytes(attributes.get(_RTA_DEVICE, b""), "little"), ""))
            )
    return found


def addresses() -> list[IPv4Address]:
    """Every address of this namespace."""
    body = _ADDRESS.pack(socket.AF_INET, 0, 0, 0, 0)
    answers = [dict(_attributes(answer[8:])) for answer in _ask(_GETADDR, body, _DUMP)]
    return [
        IPv4Address(attributes[_IFA_LOCAL]) for attributes in answers if _IFA_LOCAL in attributes
    ]


def _ask(kind: int, body: bytes, flags: int = 0) -> list[bytes]:
    """Send one request and read its answers, without their heads.

    Raises:
        OSError: The kernel's answer.
    """
    answers: list[bytes] = []
    # A dump ends with its own message. Any other request is acknowledged only if it asks for
    # that.
    flags |= _REQUEST | (0 if flags & _DUMP == _DUMP else _ACK)
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as line:
        line.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body)
        while True:
            data = line.recv(1 << 18)
            at = 0
            while at < len(data):
                length, answer, *_ = _HEADER.unpack_from(data, at)
                content = data[at + _HEADER.size : at + length]
                at += length + 3 & ~3
                if answer == _DONE:
                    return answers
                if answer == _ERROR:
                    # An error of 0 is the acknowledgement (netlink(7)).
                    error = -struct.unpack_from("=i", content)[0]
                    if error:
                        raise OSError(error, os.strerror(error))
                    return answers
                answers.append(content)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _name(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind, data[at + 4 : at + length]
        at += length + 3 & ~3
