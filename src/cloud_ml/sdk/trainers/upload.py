"""Local code on its way to the server."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_ml.errors import AlreadyExists, NotFound
from cloud_ml.models.common import refuse
from cloud_ml.models.paths.local import local_path
from cloud_ml.sdk.config import config_path, read_configuration
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.storage.transfers import file_body
from cloud_ml.sdk.trainers.git_facts import git_facts
from cloud_ml.sdk.trainers.packaging import Package, pack_source

if TYPE_CHECKING:
    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.sdk.storage.client import Storage


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a trainer lies on the server. ``size`` in bytes; ``fresh`` if it had to be uploaded.
    ``git`` is as in ``TrainJob``; ``None`` if nothing is known.
    """

    uri: str
    size: int
    fresh: bool
    git: dict[str, Any] | None = None


def wants_git(job: TrainJob) -> bool:
    """Whether facts of git are to be kept. ``git=False`` leaves them out; else ``CLOUDML_NO_GIT``
    decides where it is set, and else the user's file.

    Raises:
        InvalidRequest: The file cannot be read.
    """
    if job.git is False:
        return False
    if variable := os.environ.get("CLOUDML_NO_GIT"):
        return variable in ("0", "false")
    return read_configuration(config_path()).git


def is_local(trainer_uri: str) -> bool:
    """Whether a trainer is a path of this machine, not a URI."""
    return "://" not in trainer_uri


def send_trainer(
    storage: Storage,
    source: str,
    bucket: str,
    *,
    progress: Progress | None = None,
    git: bool = False,
) -> Sent:
    """Pack the file or folder ``source`` and upload it, unless the server has the very same
    already.

    ``progress`` is told how far the upload is; never, if there is none. With ``git``, changes that
    were not committed are uploaded beside it.

    Raises:
        InvalidRequest: It cannot be packed; see ``packaging.packed``.
        TooLarge: It is too big.
    """
    if not bucket:
        raise refuse(
            "trainer_uri",
            source,
            "fds://bucket/path: your organisation has no default bucket to upload to",
        )
    with pack_source(local_path(source)) as package:
        uri = package_uri(bucket, package)
        fresh = _upload_if_absent(storage, package, uri, progress)
        facts = _git(storage, local_path(source), bucket, package) if git else None
        return Sent(uri, package.body.size, fresh=fresh, git=facts)


def _git(storage: Storage, source: Path, bucket: str, package: Package) -> dict[str, Any] | None:
    root = source.resolve()
    if root.is_file():
        if not package.files and root.suffix != ".py":
            return None  # an archive: nobody knows of which files
        found = git_facts(root.parent, [name for name, _ in package.files] or [root.name])
    else:
        names = [name for name, _ in package.files]
        inside = f"{root.name}/"
        if all(name.startswith(inside) for name in names) and not (root / root.name).exists():
            names = [name.removeprefix(inside) for name in names]
        found = git_facts(root, names)
    if found is None:
        return None
    if not found.diff:
        return found.facts
    with tempfile.TemporaryDirectory(prefix="cloudml-") as work:
        file = Path(work) / "changes.diff"
        file.write_bytes(found.diff)
        changes = Package(file.name, file_body(file))
        uri = package_uri(bucket, changes)
        _upload_if_absent(storage, changes, uri, None)
    return {**found.facts, "diff": uri}


def package_uri(bucket: str, package: Package) -> str:
    """Where a package belongs: a place that its content alone decides."""
    digest = package.body.sha256
    return f"fds://{bucket}/.trainers/{digest[:2]}/{digest}/{package.name}"


def _upload_if_absent(
    storage: Storage, package: Package, uri: str, progress: Progress | None
) -> bool:
    try:
        storage.head(uri)
    except NotFound:
        pass
    else:
        return False
    try:
        storage.upload(package.body.path, uri, only_if_absent=True, progress=progress)
    except AlreadyExists:  # somebody else sent the same bytes in the meantime
        return False
    return True
