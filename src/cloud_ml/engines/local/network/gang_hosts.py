"""How the tasks of a gang find each other: a table of names, seen by each of them as
``/etc/hosts``.

All jobs of an organisation share the loopback of its network, and what is on a loopback is reached
from nowhere else. So every name stands for that address, and the ports tell the tasks apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ADDRESS = "127.0.0.1"
INTERFACE = "lo"
TARGET = "/etc/hosts"


def content(names: Sequence[str], machine: str) -> str:
    """The table for a gang whose tasks have these names.

    The names come first and win over the same ones in ``machine``, the table that other jobs see.
    """
    own = "".join(f"{ADDRESS} {name}\n" for name in names)
    return f"{ADDRESS} localhost\n{own}{machine}"


def write(path: Path, names: Sequence[str], etc: str) -> None:
    """Write the table to ``path``, for everybody to read.

    ``etc`` is the folder that jobs see as ``/etc``.
    """
    table = Path(etc, "hosts")
    machine = table.read_text("utf-8", "replace") if table.is_file() else ""
    path.write_text(content(names, machine), "utf-8")
    path.chmod(0o644)
