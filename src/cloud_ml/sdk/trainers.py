"""Local code on its way to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloud_ml.errors import AlreadyExists, NotFound
from cloud_ml.models.common import refuse
from cloud_ml.models.local_paths import local_path
from cloud_ml.sdk.packaging import Package, packed
from cloud_ml.sdk.progress import Progress

if TYPE_CHECKING:
    from cloud_ml.sdk.storage import Storage


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a trainer lies on the server. ``size`` in bytes; ``fresh`` if it had to be uploaded."""

    uri: str
    size: int
    fresh: bool


def is_local(trainer_uri: str) -> bool:
    """Whether a trainer is a path of this machine, not a URI."""
    return "://" not in trainer_uri


def send_trainer(
    storage: Storage, source: str, bucket: str, *, progress: Progress | None = None
) -> Sent:
    """Pack the file or folder ``source`` and upload it, unless the server has the very same
    already.

    ``progress`` is told how far the upload is; never, if there is none.

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
    with packed(local_path(source)) as package:
        uri = package_uri(bucket, package)
        return Sent(
            uri, package.body.size, fresh=_upload_if_absent(storage, package, uri, progress)
        )


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
