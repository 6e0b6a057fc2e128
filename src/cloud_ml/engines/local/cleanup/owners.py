"""Whose a thing of the machine is: a table of the firewall, a link, a control group.

Things of the machine outlive the server that made them. Each carries the folder of its engine: a
table in its comment, a link in its alias, a control group in an attribute. So anybody can look up
the owner, and whoever comes later can remove what belongs to a folder that is gone, and nothing
else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_MARK = re.compile(r"cloudml (\d{1,20}) (/.*)", re.DOTALL)
# trusted.* requires CAP_SYS_ADMIN (xattr(7)); servers without root use user.*.
_ATTRIBUTES = ("trusted.cloudml_owner", "user.cloudml_owner")
_INSTANCE_LENGTH = 12
_LINKS = Path("/sys/class/net")
LINK_PREFIX = "cml"
"""Of links of every server on this machine."""


@dataclass(frozen=True)
class Owner:
    """The engine of a folder. ``mounts`` is the number of the mount table in which the folder
    has that path.
    """

    root: str
    mounts: int

    @property
    def instance(self) -> str:
        """The word by which the names of its things tell it from others."""
        return instance_of(self.root)

    @property
    def mark(self) -> str:
        """The owner as one line."""
        return f"cloudml {self.mounts} {self.root}"

    @property
    def gone(self) -> bool:
        """Whether the folder was deleted. Of a folder in another mount table nobody can tell, nor
        of one below a folder that this user may not enter: it counts as there.
        """
        if self.mounts != _mounts():
            return False
        try:
            return not Path(self.root).is_dir()
        except PermissionError:
            return False


def owner_of(root: str) -> Owner:
    """The engine of the folder ``root``, as this process sees it."""
    return Owner(root, _mounts())


def parse(mark: str, instance: str) -> Owner | None:
    """The owner that ``mark`` names.

    ``None`` if it is no mark, or one whose instance does not begin with ``instance``, as the name
    of the thing says:
    it was cut, or is a lie.
    """
    found = _MARK.fullmatch(mark)
    owner = Owner(found[2], int(found[1])) if found else None
    return owner if owner is not None and owner.instance.startswith(instance) else None


def owner_of_link(name: str) -> Owner | None:
    """The owner of a link, as its alias says; ``None`` if it has none. Names hold the first
    signs of the instance.
    """
    try:
        alias = (_LINKS / name / "ifalias").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return parse(alias, name.removeprefix(LINK_PREFIX).partition("-")[0])


def instance_of(root: str) -> str:
    """The word for the engine of a folder that no other one on this machine has."""
    return hashlib.sha256(root.encode()).hexdigest()[:_INSTANCE_LENGTH]


def write_attribute(folder: Path, owner: Owner) -> None:
    """Mark a control group. Where that is not possible it stays without an owner, and nobody
    else removes it.
    """
    for name in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            os.setxattr(folder, name, owner.mark.encode())
            return


def read_attribute(folder: Path, instance: str) -> Owner | None:
    """The owner of a control group; ``None`` if it has none."""
    for name in _ATTRIBUTES:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return parse(os.getxattr(folder, name).decode(), instance)
    return None


def is_unmarked(folder: Path) -> bool:
    """Whether that is a control group without any mark, as where the file system stores no
    attributes.
    """
    for name in _ATTRIBUTES:
        with contextlib.suppress(OSError):
            os.getxattr(folder, name)
            return False
    return folder.is_dir()


def _mounts() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino  # noqa: PTH116 - a link that says a number
