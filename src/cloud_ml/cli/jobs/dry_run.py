"""What ``--dry-run`` prints of a job: the files that would be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures
from cloud_ml.cli.display.output import note
from cloud_ml.models.escaping import escaped
from cloud_ml.models.ignoring import IGNORE_FILE
from cloud_ml.models.local_paths import local_path

if TYPE_CHECKING:
    from cloud_ml.sdk.packaging import Package

_MOST_FILES, _MOST_LEFT_OUT = 10, 10


def describe_package(trainer_uri: str) -> None:
    """Pack the code and print what would be sent; nothing for code that is on a server already."""
    from cloud_ml.sdk.packaging import packed
    from cloud_ml.sdk.trainers import is_local

    if not is_local(trainer_uri):
        return
    with packed(local_path(trainer_uri)) as package:
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
            yield f"  {figures.size(size):>9}  {_shown(name)}"
        if more := len(package.files) - len(largest):
            yield f"  {'':>9}  and {figures.files(more)} more"
    if package.left_out:
        names = ", ".join(_shown(name) for name in package.left_out[:_MOST_LEFT_OUT])
        more = len(package.left_out) - _MOST_LEFT_OUT
        rest = f", and {more} more" if more > 0 else ""
        yield f"Left out, by {IGNORE_FILE} or as caches, environments and history: {names}{rest}"


def _shown(name: str) -> str:
    return escaped(name.encode("utf-8", "surrogateescape"))
