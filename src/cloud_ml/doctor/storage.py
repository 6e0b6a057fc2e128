"""The folder of data: that it can be used, how much room there is, and how fast it keeps."""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.doctor.findings import Area, Finding
from cloud_ml.domain.tenancy import BUCKET, ORGANISATION
from cloud_ml.engines.local.disk.kept_disk import AS_MUCH_AS_IS_FREE, NO_LIMIT
from cloud_ml.engines.local.disk.project_ids import unusable
from cloud_ml.engines.local.isolation.sandbox import find_bwrap
from cloud_ml.engines.local.probe import default_disk_bytes, kept_disk_bytes
from cloud_ml.errors import CloudMlError
from cloud_ml.models.common import format_memory
from cloud_ml.settings import Settings, StorageSettings
from cloud_ml.state.sql.inspection import specs

_AREA = Area("storage")
_LEAST_BYTES = 5 * 2**30
_LEAST_INODES = 100_000
_SHOWN = 5
_SLOW_MS = 20.0
_ROUNDS = 15
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"})
_WITH_PROJECT_QUOTAS = frozenset({"xfs", "ext4", "f2fs"})
_PROJECT_QUOTA_OPTIONS = frozenset({"prjquota", "pquota"})
_FLEETING = frozenset({"tmpfs", "ramfs"})


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at the data folder, or at the place where it would be made."""
    data = settings.data_dir
    place = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    if place != data:
        yield _AREA.ok("data", f"{data} is made at the first start")
    elif data.stat().st_mode & 0o022:
        yield _AREA.problem("data", f"others may write into {data}", f"chmod go-w {data}")
    else:
        yield _AREA.ok("data", str(data))
    if not os.access(place, os.W_OK | os.X_OK):
        yield _AREA.problem(
            "writing", f"{place} cannot be written by this user", "choose another with --data-dir"
        )
        return
    yield from _room(place)
    yield _default_limit(settings)
    yield _kept_limit(settings)
    yield _object_limits(settings.storage)
    yield from _owners(settings)
    mount = _mount_of(place)
    yield _kind(mount)
    yield _project_quotas(mount, settings, place)
    yield from _speed(place)


def _owners(settings: Settings) -> Iterator[Finding]:
    """Buckets whose folder belongs to another user than their organisation's.

    Only a server that is root has such users, and not always: root's own folders are no fault.
    """
    objects = settings.data_dir / "objects"
    if os.geteuid() != 0 or not objects.is_dir():
        return
    try:
        buckets = specs(settings.database_url, BUCKET)
        numbers = {
            name: each.number for name, each in specs(settings.database_url, ORGANISATION).items()
        }
    except CloudMlError:  # the area of the database says what is wrong with it
        return
    owners = {
        name: settings.engine.tenant_uid_base + numbers[each.org]
        for name, each in buckets.items()
        if each.org in numbers
    }
    wrong = {
        name: found
        for name, owner in owners.items()
        if (found := _uid_of(objects / name)) not in (None, 0, owner)
    }
    for name, found in sorted(wrong.items())[:_SHOWN]:
        owner = owners[name]
        command = f"chown -hR --from={found} {owner}:{owner} {shlex.quote(str(objects / name))}"
        yield _AREA.problem(
            f"bucket {name}",
            f"user {found} owns its folder, and jobs of {buckets[name].org} run as {owner}: "
            "they cannot use it",
            f"start the server again, which repairs empty ones; if the files are theirs: {command}",
        )
    if len(wrong) > _SHOWN:
        yield _AREA.problem("buckets", f"{len(wrong) - _SHOWN} more have a wrong owner", "as above")


def _uid_of(folder: Path) -> int | None:
    try:
        return folder.lstat().st_uid
    except OSError:
        return None


def _room(place: Path) -> Iterator[Finding]:
    usage = shutil.disk_usage(place)
    message = f"{format_memory(usage.free)} of {format_memory(usage.total)} free"
    enough = usage.free >= _LEAST_BYTES
    remedy = (
        "environments of the larger frameworks take gigabytes; environments.home can lie elsewhere"
    )
    yield _AREA.ok("room", message) if enough else _AREA.warning("room", message, remedy)
    facts = os.statvfs(place)
    if facts.f_files and facts.f_favail < _LEAST_INODES:
        yield _AREA.warning(
            "inodes", f"{facts.f_favail} free", "each environment has thousands of files"
        )


def _default_limit(settings: Settings) -> Finding:
    size, setting = (
        default_disk_bytes(settings.engine, settings.data_dir),
        settings.engine.default_disk,
    )
    if not size:
        message = "jobs that name no disk limit have none"
        return _AREA.warning(
            "limit", message, "set engine.default_disk to auto, or to a size such as 20G"
        )
    why = "a quarter of what is free" if setting == "auto" else "by setting"
    return _AREA.ok(
        "limit", f"jobs that name no disk limit may keep {format_memory(size)} each: {why}"
    )


def _kept_limit(settings: Settings) -> Finding:
    limit = kept_disk_bytes(settings.engine)
    if limit == NO_LIMIT:
        message = "ended jobs of one organisation may fill the disk"
        return _AREA.warning(
            "ended jobs", message, "set engine.kept_disk to auto, or to a size such as 100G"
        )
    most = "as much as is free" if limit == AS_MUCH_AS_IS_FREE else format_memory(limit)
    return _AREA.ok("ended jobs", f"those of one organisation may keep {most}")


def _object_limits(settings: StorageSettings) -> Finding:
    limits = {
        "objects_per_org": (settings.objects_per_org, "objects and folders"),
        "buckets_per_org": (settings.buckets_per_org, "buckets"),
    }
    if open_ones := [f"storage.{name}" for name, (most, _) in limits.items() if not most]:
        message = f"one organisation may take all files of the disk: {' and '.join(open_ones)} is 0"
        return _AREA.warning(
            "objects", message, "set a limit, such as 1000000 objects and 1000 buckets"
        )
    if not settings.disk_reserve:
        message = "uploads may fill the disk to its last byte: storage.disk_reserve is empty"
        return _AREA.warning("objects", message, "set storage.disk_reserve, such as 1G")
    limits_text = ", ".join(f"{most} {what}" for most, what in limits.values())
    return _AREA.ok(
        "objects",
        f"one organisation may have {limits_text}; uploads leave {settings.disk_reserve} free",
    )


def _kind(mount: _Mount) -> Finding:
    kind = mount.kind
    if kind in _FLEETING:
        return _AREA.warning(
            "file system", f"{kind}: everything is gone when the machine stops", "use a disk"
        )
    if kind in _REMOTE:
        message = f"{kind}: locks and flushes over a network are what SQLite cannot rely on"
        return _AREA.warning(
            "file system", message, "use a local disk, or PostgreSQL with --database-url"
        )
    return _AREA.ok("file system", kind)


def _project_quotas(mount: _Mount, settings: Settings, place: Path) -> Finding:
    """Whether the kernel holds jobs to their disk limits by itself. Limits are measured in either
    case.
    """
    measured = "disk limits of jobs are measured, and may be passed by 128 MiB"
    engine, as_root = settings.engine, os.geteuid() == 0
    if engine.project_id_base:
        user = (engine.tenant_uid_base, engine.tenant_uid_base) if as_root else None
        fenced = (
            as_root and engine.sandbox not in ("none", "landlock") and bool(find_bwrap(user)[0])
        )
        why = unusable(place, engine.project_id_base, own_users=fenced)
        if not why:
            return _AREA.ok(
                "project quotas",
                f"used at {mount.point} for the home directories of jobs and their /tmp",
            )
        remedy = "see the how-to on isolation, or set engine.project_id_base to 0"
        return _AREA.warning("project quotas", f"not used, because {why}: {measured}", remedy)
    if mount.kind not in _WITH_PROJECT_QUOTAS:
        return _AREA.ok("project quotas", f"{mount.kind} has none: {measured}")
    if not _PROJECT_QUOTA_OPTIONS.isdisjoint(mount.options):
        unused = f"on at {mount.point}, and not used without engine.project_id_base: {measured}"
        return _AREA.ok("project quotas", unused)
    return _AREA.ok("project quotas", f"off at {mount.point}: {measured}")


@dataclass(frozen=True)
class _Mount:
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


def _mount_of(place: Path) -> _Mount:
    """The file system of ``place``: that of the longest mount point above it."""
    real = place.resolve()
    best = _Mount("", "unknown", frozenset())
    for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
        _, mounted, kind, options, *_ = line.split(" ")
        point = mounted.encode().decode("unicode_escape")
        if real.is_relative_to(point) and len(point) > len(best.point):
            best = _Mount(point, kind, frozenset(options.split(",")))
    return best


def _speed(place: Path) -> Iterator[Finding]:
    """What a promise costs: a submit is acknowledged after one flush to the disk."""
    try:
        middle = _median_flush_ms(place)
    except OSError as error:  # a disk that is full or read-only, /proc
        message = f"no file can be written in {place} ({error.strerror})"
        yield _AREA.problem("writing", message, "choose another with --data-dir")
        return
    message = f"a flush takes {middle:.1f} ms"
    if middle > _SLOW_MS:
        remedy = "each submit waits for one; a faster disk is a faster platform"
        yield _AREA.warning("speed", message, remedy)
    else:
        yield _AREA.ok("speed", message)


def _median_flush_ms(place: Path) -> float:
    took = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".cloudml-doctor-") as file:
        for _ in range(_ROUNDS):
            before = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - before))
    return statistics.median(took)
