"""What servers whose folders are gone have left on this machine: found by its owner, and removed.

Whatever has no owner, or one that lives, or one whose folder cannot be seen from here, is not
touched.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.engines.local.cgroups import files
from cloud_ml.engines.local.cleanup import owners
from cloud_ml.engines.local.cleanup.owners import Owner
from cloud_ml.engines.local.network import firewall, netlink, pins, rules, tenants
from cloud_ml.engines.local.network.pins import Pins

_TABLE = re.compile(r"table inet cloudml-([0-9a-f]{12})")
_COMMENT = re.compile(r'^\s*comment "([^"]*)"', re.MULTILINE)
_GROUP = re.compile(r"cloudml-([0-9a-f]{12})")
_LINKS = Path("/sys/class/net")


@dataclass
class Orphan:
    """What is left of one engine. ``pinned``: its networks are still mounted."""

    owner: Owner
    tables: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    groups: list[Path] = field(default_factory=list)
    pinned: bool = False

    @property
    def commands(self) -> str:
        """What removes it by hand."""
        lines = [f"ip link delete {link}" for link in self.links]
        lines += [f"nft delete table inet {table}" for table in self.tables]
        lines += [f"find {group} -depth -type d -exec rmdir {{}} +" for group in self.groups]
        return "; ".join(lines)

    @property
    def summary(self) -> str:
        """How many things of each kind there are, in words."""
        counts = [
            (len(self.tables), "firewall table"),
            (len(self.links), "link"),
            (len(self.groups), "control group"),
            (int(self.pinned), "folder of networks"),
        ]
        return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts if count)

    def __str__(self) -> str:
        return f"{self.owner.root}: {self.summary}"


def find(group_folders: Sequence[Path] = (), home: Path = pins.HOME) -> list[Orphan]:
    """What is left of engines whose folders are gone.

    Args:
        group_folders: Where control groups of servers lie.
        home: Where networks are mounted.
    """
    return find_of(lambda owner: owner.gone, group_folders, home)


def find_of(
    is_listed: Callable[[Owner], bool], group_folders: Sequence[Path] = (), home: Path = pins.HOME
) -> list[Orphan]:
    """What the engines have on this machine whose owners ``is_listed`` names."""
    found: dict[str, Orphan] = {}

    def of(owner: Owner | None) -> Orphan | None:
        return (
            found.setdefault(owner.instance, Orphan(owner))
            if owner is not None and is_listed(owner)
            else None
        )

    for kept in Pins("", home).others():
        if (orphan := of(kept.owner)) is not None:
            orphan.pinned = True
    for name, owner in _tables():
        if (orphan := of(owner)) is not None:
            orphan.tables.append(name)
    for name, owner in _links():
        if (orphan := of(owner)) is not None:
            orphan.links.append(name)
    for folder, owner in _groups(group_folders):
        if (orphan := of(owner)) is not None:
            orphan.groups.append(folder)
    return list(found.values())


def remove(group_folders: Sequence[Path] = (), home: Path = pins.HOME) -> list[Orphan]:
    """Remove what is left; returns what was. A network in which a process still is stays, with its
    rules.

    Servers that start at once take turns: what one has looked at, another has not removed
    meanwhile.
    """
    gone = []
    with Pins("", home).alone():
        for orphan in find(group_folders, home):
            if not _has_processes(orphan, home):
                take_away(orphan, home)
                gone.append(orphan)
    return gone


def _has_processes(orphan: Orphan, home: Path) -> bool:
    kept = Pins(orphan.owner.instance, home)
    there = {
        identity
        for tenant in kept.slots()
        if (identity := pins.identity(kept.path(tenant))) is not None
    }
    return bool(there) and not there.isdisjoint(pins.list_inhabited())


def take_away(orphan: Orphan, home: Path = pins.HOME) -> None:
    """Remove all of it, whoever is in it. The caller holds ``Pins.alone``."""
    # Remove links before rules: without the rules, a network that still has its link could reach
    # the machine.
    for link in orphan.links:
        with contextlib.suppress(OSError):
            netlink.remove(link)
    for table in orphan.tables:
        with contextlib.suppress(OSError):
            firewall.nft(["-f", "-"], rules.without(table))
    if orphan.pinned:
        tenants.clear(Pins(orphan.owner.instance, home))
    for group in orphan.groups:
        for child in files.subfolders(group):
            files.remove(group / child)
        files.remove(group)


def _tables() -> Iterator[tuple[str, Owner | None]]:
    with contextlib.suppress(OSError):
        for match in _TABLE.finditer(firewall.list_rules(["tables", "inet"])):
            name = f"cloudml-{match[1]}"
            comment = _COMMENT.search(firewall.list_rules(["table", "inet", name]))
            yield name, owners.parse(comment[1], match[1]) if comment else None


def _links() -> Iterator[tuple[str, Owner | None]]:
    with contextlib.suppress(OSError):
        for path in sorted(_LINKS.glob(f"{owners.LINK_PREFIX}*")):
            yield path.name, owners.owner_of_link(path.name)


def _groups(folders: Sequence[Path]) -> Iterator[tuple[Path, Owner | None]]:
    for folder, name in itertools.chain.from_iterable(
        ((folder, name) for name in files.subfolders(folder)) for folder in folders
    ):
        if match := _GROUP.fullmatch(name):
            yield folder / name, owners.read_attribute(folder / name, match[1])


def group_folders(description: dict[str, str]) -> list[Path]:
    """Where the control groups of this server lie, and so those of others that were started
    alike.
    """
    own = [Path(place) for name, place in description.items() if name != "version"]
    return sorted({place.parent for place in own if os.path.isabs(place)})  # noqa: PTH117
