"""What ``--dry-run`` does with a job: ask whether it would be taken, and list its files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import note
from cloud_ml.models.paths.escaping import escape_path
from cloud_ml.models.paths.ignoring import IGNORE_FILE
from cloud_ml.models.paths.local import local_path

if TYPE_CHECKING:
    from cloud_ml.cli.session import Session
    from cloud_ml.models.jobs.train_job import TrainJob
    from cloud_ml.sdk.trainers.packaging import Package

_MOST_FILES, _MOST_LEFT_OUT = 10, 10


def check_job(session: Session, job: TrainJob, *, resubmit_of: str | None = None) -> str:
    """Refuse what the server would refuse. Returns what is to be said where none can be asked."""
    from cloud_ml.errors import InvalidRequest, TransportError, TryAgain

    unchecked = "Note: no server has checked this job"
    try:
        client = session.client
    except InvalidRequest as error:  # there is no key, say
        return f"{unchecked}: {error}"
    try:
        client.check_train_job(job, resubmit_of=resubmit_of)
    except (TransportError, TryAgain) as error:
        return f"{unchecked}: {error}"
    return ""


def describe_package(trainer_uri: str) -> None:
    """Pack the code and print what would be sent; nothing for code that is on a server already."""
    from cloud_ml.sdk.trainers.packaging import pack_source
    from cloud_ml.sdk.trainers.upload import is_local

    if not is_local(trainer_uri):
        return
    with pack_source(local_path(trainer_uri)) as package:
        for line in package_lines(trainer_uri, package):
            note(line)


def package_lines(trainer_uri: str, package: Package) -> Iterator[str]:
    """The lines of a package: its size, its largest files, and what is left out."""
    body = package.body
    yield f"{trainer_uri} would be sent as {package.name}: {body.size} bytes, sha256 {body.sha256}"
    if package.files:
        total = figures.size(sum(size for _, size in package.files))
        largest = sorted(package.files, key=lambda file: (-file[1], file[0]))[:_MOST_FILES]
        shown = " (the largest first)" if len(largest) > 1 else ""
        yield f"It holds {figures.files(len(package.files))}, {total} unpacked{shown}:"
        for name, size in largest:
            yield f"  {figures.size(size):>9}  {_escape_name(name)}"
        if more := len(package.files) - len(largest):
            yield f"  {'':>9}  and {figures.files(more)} more"
    if package.left_out:
        names = ", ".join(_escape_name(name) for name in package.left_out[:_MOST_LEFT_OUT])
        more = len(package.left_out) - _MOST_LEFT_OUT
        rest = f", and {more} more" if more > 0 else ""
        yield f"Left out, by {IGNORE_FILE} or as caches, environments and history: {names}{rest}"


def _escape_name(name: str) -> str:
    return escape_path(name.encode("utf-8", "surrogateescape"))
