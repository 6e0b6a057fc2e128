"""Networks that outlive whoever made them: each is mounted at a file of its own.

Below ``/run`` and not in the data folder, because they end with the machine's run, like processes
do. A folder for each server tells by its files what there is, so that whoever comes next can go on
with it, or clear it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

from cloud_ml import linux
from cloud_ml.engines.local.cleanup.owners import Owner, owner_of

HOME = Path("/run/cloudml-networks")
_RANGE, _ROOT, _MOUNTS, _SLOT, _READY = "range", "root", "mounts", "slot-", ".ready"
_LOCK, _OPENED = ".lock", ".opened"
_PROC = Path("/proc")


class Pins:
    """The folder of one server.

    Args:
        instance: A word for the server that no other one on this machine has.
        home: Where the folders of all servers are.
    """

    def __init__(self, instance: str, home: Path = HOME) -> None:
        self.instance = instance
        self.home = home
        self.folder = home / instance

    def create(self, root: str) -> None:
        """Make the folder; ``root`` is the engine's, for whoever finds the folder later."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / _MOUNTS).write_text(str(owner_of(root).mounts))
        # Write the root last: ``owner`` is ``None`` without it, so no reader sees an incomplete
        # owner.
        (self.folder / _ROOT).write_text(root)

    @property
    def root(self) -> str:
        """The folder of the engine that these belong to."""
        return _read(self.folder / _ROOT)

    @property
    def owner(self) -> Owner | None:
        """Whose these are; ``None`` where nobody has said."""
        root, mounts = self.root, _read(self.folder / _MOUNTS)
        if not root:
            return None
        return Owner(root, int(mounts)) if mounts.isdigit() else owner_of(root)

    @property
    def addresses(self) -> IPv4Network | None:
        """The addresses that this server took."""
        text = _read(self.folder / _RANGE)
        return IPv4Network(text) if text else None

    @addresses.setter
    def addresses(self, taken: IPv4Network) -> None:
        _write(self.folder / _RANGE, str(taken))

    def path(self, tenant: int) -> Path:
        """Where the network of an organisation is mounted."""
        return self.folder / str(tenant)

    def slots(self) -> dict[int, int]:
        """Organisation to slot, of each that has one."""
        found = {}
        for path in self.folder.glob(f"{_SLOT}*"):
            if tenant := _read(path):
                found[int(tenant)] = int(path.name.removeprefix(_SLOT))
        return found

    def take_slot(self, tenant: int, of: int) -> int:
        """A slot for an organisation that has none.

        Raises:
            OSError: All are taken.
        """
        taken = set(self.slots().values())
        free = next((slot for slot in range(of) if slot not in taken), None)
        if free is None:
            raise OSError(
                f"all {of} networks of this machine are in use: engine.network_range has no "
                "more addresses"
            )
        _write(self.folder / f"{_SLOT}{free}", str(tenant))
        return free

    def forget(self, tenant: int) -> None:
        """Take the mount and the slot away. Processes in that network keep it until they end."""
        pin = self.path(tenant)
        with contextlib.suppress(OSError):
            linux.unmount(pin)
        for path in (pin, pin.with_name(f"{pin.name}{_READY}")):
            path.unlink(missing_ok=True)
        slot = self.slots().get(tenant)
        # Remove the slot last, so that its addresses are reused only when nothing of this network
        # is left.
        if slot is not None:
            (self.folder / f"{_SLOT}{slot}").unlink(missing_ok=True)

    def is_ready(self, tenant: int) -> bool:
        """Whether a network was made to its end, in this run of the machine."""
        pin = self.path(tenant)
        return pin.with_name(f"{pin.name}{_READY}").exists() and identity(pin) is not None

    def note_ready(self, tenant: int) -> None:
        """Say that a network is whole."""
        pin = self.path(tenant)
        pin.with_name(f"{pin.name}{_READY}").touch()

    def remove(self) -> None:
        """Take everything of this server away."""
        for tenant in self.slots():
            self.forget(tenant)
        shutil.rmtree(self.folder, ignore_errors=True)

    def others(self) -> list[Pins]:
        """Those of other servers, living or not."""
        try:
            names = [
                path.name
                for path in self.home.iterdir()
                if path.is_dir() and not path.name.startswith(".")
            ]
        except OSError:
            return []
        return [Pins(name, self.home) for name in names if name != self.instance]

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While no other server of this machine chooses addresses or switches forwarding."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    # ---- interfaces that forward because of us

    def opened(self) -> list[str]:
        """Interfaces that forward because a server of ours needs it."""
        with contextlib.suppress(OSError):
            return sorted(path.name for path in (self.home / _OPENED).iterdir())
        return []

    def has_opened(self, device: str) -> bool:
        """Whether this server has said that it needs ``device`` to forward."""
        return (self.home / _OPENED / device / self.instance).exists()

    def note_opened(self, device: str) -> None:
        """Say that this server needs ``device`` to forward, which it did not."""
        folder = self.home / _OPENED / device
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.instance).touch()

    def release(self) -> list[str]:
        """Need none any more; returns those that nobody needs now."""
        free = []
        for device in self.opened():
            folder = self.home / _OPENED / device
            (folder / self.instance).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                # This fails while another server has a file in it.
                folder.rmdir()
                free.append(device)
        return free


def identity(pin: Path) -> int | None:
    """The number of the network that is mounted at ``pin``; ``None`` if none is."""
    try:
        facts, around = pin.stat(), pin.parent.stat()
    except OSError:
        return None
    # If nothing is mounted here, this is the plain file, on the same file system as its folder.
    return facts.st_ino if facts.st_dev != around.st_dev else None


def list_inhabited() -> set[int]:
    """The numbers of all networks in which a process of this machine is."""
    found = set()
    for path in _PROC.glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            found.add(path.stat().st_ino)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    # Replace the file in one step, so that other processes read either the old or the new text.
    # The dot hides the draft from ``slots``.
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.replace(path)
