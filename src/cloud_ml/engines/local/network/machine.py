"""What networks change of the machine besides its firewall: the kernel's switches, and where a
process is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from cloud_ml import linux

_SYSCTL = "/proc/sys/net"


def in_child(act: Callable[[], object]) -> None:
    """Do something in a process of its own, which may change its network.

    Raises:
        OSError: It could not be done; the message says why.
    """
    words, ours = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException as error:
            os.write(ours, str(error).encode()[:4000])
        finally:
            os._exit(1)
    os.close(ours)
    with os.fdopen(words, "rb") as reader:
        message = reader.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(f"the network of an organisation cannot be made: {message or status}")


def in_network(network: int, act: Callable[[], object]) -> None:
    """Do something in a process of its own that has entered a network, given as an open file.

    Raises:
        OSError: It could not be done; the message says why.
    """

    def enter() -> None:
        linux.enter_network(network)
        act()

    in_child(enter)


def write_sysctl(name: str, value: int, *, needed: bool = True) -> None:
    """Turn one of the network's switches.

    Raises:
        OSError: It is ``needed`` and cannot be turned.
    """
    try:
        Path(_SYSCTL, name).write_text(str(value))
    except OSError:
        if needed:
            raise


def reserve_ports(ports: str) -> None:
    """Have the kernel give ports to no connection of the network that this process is in: a task is
    about to listen on them. Ranges, such as ``20000-29999, 31000``.
    """
    with contextlib.suppress(OSError):  # then an attempt whose port is taken is made again
        words = ",".join(ports.replace(",", " ").split())
        Path(_SYSCTL, "ipv4/ip_local_reserved_ports").write_text(words)


def reads_one(name: str) -> bool:
    """Whether one of the network's switches is on."""
    try:
        return Path(_SYSCTL, name).read_text().strip() == "1"
    except OSError:
        return False


def mtu(device: str) -> int:
    """The largest packet that an interface sends; 0 if it does not say."""
    try:
        return int(Path("/sys/class/net", device, "mtu").read_text())
    except (OSError, ValueError):
        return 0
