"""Which control groups this machine lets us make, and where."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from cloud_ml.engines.local.cgroups import files
from cloud_ml.engines.local.cgroups.base import Hierarchy, Limits
from cloud_ml.engines.local.cgroups.v1 import CONTROLLERS, HierarchyV1
from cloud_ml.engines.local.cgroups.v2 import HierarchyV2
from cloud_ml.engines.local.cleanup.owners import Owner, write_attribute


def find(
    instance: str,
    *,
    root: Path = Path("/sys/fs/cgroup"),
    own: str | None = None,
    owner: Owner | None = None,
) -> tuple[Hierarchy | None, str]:
    """The hierarchy in which this process may make groups, or ``None`` and the sentence that says
    why.

    Args:
        instance: Tells platform instances on one machine apart.
        root: Where control groups are mounted.
        own: The content of ``/proc/self/cgroup``.
        owner: Whose the folders are, to be noted at them.
    """
    lines = (own if own is not None else Path("/proc/self/cgroup").read_text("ascii")).splitlines()
    entries = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    places = {name: path for _, controllers, path in entries for name in controllers.split(",")}
    try:
        # Both versions can be mounted, but the kernel attaches each controller to only one of
        # them. The version with the memory controller is the one to use.
        if "memory" in places and (root / "memory").is_dir():
            return _mark_owner(_find_v1(instance, root, places), owner), ""
        if (root / "cgroup.controllers").exists():
            # The line of version 2 is ``0::<path>``: it names no controllers.
            return _mark_owner(_find_v2(instance, root, places.get("", "/")), owner), ""
    except OSError as error:
        return None, _no_limits(error)
    return (
        None,
        "control groups are not mounted, so limits are not enforced; mount cgroup2 on "
        "/sys/fs/cgroup",
    )


def restore(description: dict[str, str]) -> Hierarchy | None:
    """The hierarchy that another process described; an empty description is none."""
    if not description:
        return None
    rest = {key: value for key, value in description.items() if key != "version"}
    return HierarchyV1(rest) if description["version"] == "1" else HierarchyV2(rest["folder"])


def _find_v1(instance: str, root: Path, places: dict[str, str]) -> Hierarchy:
    folders = {}
    for controller in CONTROLLERS:
        mount = root / controller
        if controller in places and mount.is_dir():
            folder = mount / places[controller].lstrip("/") / instance
            folder.mkdir(parents=True, exist_ok=True)
            folders[controller] = str(folder)
    hierarchy = HierarchyV1(folders)
    return _probe_hierarchy(hierarchy)


def _find_v2(instance: str, root: Path, own: str) -> Hierarchy:
    """Below our own group when it was delegated to us, else at the top (root only).

    A group with processes in it cannot hand controllers down (the "no internal processes" rule of
    cgroup-v2), so ours are made beside the server's: in the parent folder.
    """
    mine = root / own.lstrip("/")
    for parent in dict.fromkeys((mine.parent if mine != root else root, root)):
        folder = parent / instance
        try:
            _hand_down(parent)
            folder.mkdir(exist_ok=True)
            _hand_down(folder)
            return _probe_hierarchy(HierarchyV2(str(folder)))
        except OSError as error:
            failure = error
            with contextlib.suppress(OSError):
                folder.rmdir()
    raise failure


def _hand_down(folder: Path) -> None:
    offered = (folder / "cgroup.controllers").read_text("ascii").split()
    controllers = [f"+{name}" for name in ("memory", "pids", "cpu") if name in offered]
    if "+memory" not in controllers:
        raise OSError(errno.EACCES, "the memory controller is not handed down to", str(folder))
    files.write(folder / "cgroup.subtree_control", " ".join(controllers))


def _probe_hierarchy(hierarchy: Hierarchy) -> Hierarchy:
    probe = hierarchy.make(f"probe-{os.getpid()}")
    try:
        # Set a limit on trial: the kernel may refuse it although the files exist.
        probe.limit(Limits(memory_bytes=64 * 2**20, processes=16))
    finally:
        probe.remove()
    return hierarchy


def _mark_owner(hierarchy: Hierarchy, owner: Owner | None) -> Hierarchy:
    if owner is not None:
        for name, folder in hierarchy.description().items():
            if name != "version":
                write_attribute(Path(folder), owner)
    return hierarchy


def _no_limits(error: OSError) -> str:
    return (
        f"limits are not enforced: control groups cannot be made ({error.strerror}: "
        f"{error.filename}); run the server as root, or in a delegated group: systemd-run --user "
        "--scope -p Delegate=yes cloudml server"
    )
