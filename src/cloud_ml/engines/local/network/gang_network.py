"""The network of a gang whose tasks reach each other and nothing else.

It has a loopback, which all tasks share, and an interface that leads nowhere: daemons of MPI refuse
a network whose only interface is the loopback. That is a pair with both ends in the network. A kernel
that has networks of organisations has pairs, and may have no dummies.

Nothing of it has a name on the machine. The kernel removes it, with its interfaces, when the last
process and the last descriptor of it are gone: also when the supervisor is killed.
"""

from __future__ import annotations

import os
import threading
from ipaddress import IPv4Address

from cloud_ml import linux
from cloud_ml.engines.local.network import machine, netlink

ADDRESS = IPv4Address("192.0.2.1")
"""Of the interface. The range is for documentation, so no machine has such an address (RFC 5737)."""
_INTERFACE, _OTHER_END = "nowhere0", "nowhere1"
_MTU = 1500
_DESCRIPTORS = "/proc/self/fd"


class GangNetwork:
    """A fresh network, kept by this process until ``close``. Its ``task_ports`` are for tasks, and
    given to no connection.

    Raises:
        OSError: Not permitted, or the kernel has no such interface.
    """

    def __init__(self, task_ports: str = "") -> None:
        self._network = _make(task_ports)
        self._folder = os.open(_DESCRIPTORS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def place(self) -> tuple[int, str]:
        """Where processes find it: an open folder, and the name in it."""
        return self._folder, str(self._network)

    def close(self) -> None:
        """Let go of it. Processes that are in it stay there until they end."""
        os.close(self._folder)
        os.close(self._network)


def obstacle() -> str:
    """Why gangs cannot have such networks here; empty if they can."""
    try:
        GangNetwork().close()
    except OSError as error:
        return str(error)
    return ""


def _make(task_ports: str) -> int:
    """Make it in a thread: each has a network of its own, and the rest of the process stays where
    it is.
    """
    made: list[int] = []
    failure: list[OSError] = []

    def make() -> None:
        try:
            linux.leave_network()
            machine.write_sysctl("ipv6/conf/default/disable_ipv6", 1, needed=False)
            machine.reserve_ports(task_ports)
            netlink.set_up("lo")
            # /proc/self would show the main thread, which is still in the old network namespace.
            network = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            made.append(network)
            netlink.make_pair(_INTERFACE, _OTHER_END, network, _MTU)
            netlink.give_address(_INTERFACE, ADDRESS, ADDRESS)
            for name in (_INTERFACE, _OTHER_END):
                netlink.set_up(name)
        except OSError as error:
            failure.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failure:
        for network in made:
            os.close(network)
        raise failure[0]
    return made[0]
