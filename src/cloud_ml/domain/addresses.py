"""Where a process of a job can be called, in a form that names no folder of any machine.

An engine gives an address. Other processes pass it on and connect to it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobSocket:
    """A Unix socket that a job made in its working folder, by the name that the job gave it.

    Where the folder lies is known to the engine of that machine, and to nobody else.
    """

    job_uid: str
    name: str


@dataclass(frozen=True)
class TcpAddress:
    """A port of a host. ``host`` is a name or an IP address."""

    host: str
    port: int


Address = JobSocket | TcpAddress
"""The kinds differ in the names of their fields, which is how their JSON is told apart."""
