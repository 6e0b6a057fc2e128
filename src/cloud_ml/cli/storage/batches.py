"""Small files that are copied together, in few requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.errors import CloudMlError
from cloud_ml.models.common import parse_object_uri
from cloud_ml.sdk.storage.batches import BATCH_BYTES, BATCH_FILES, SMALL_BYTES, BucketFile

if TYPE_CHECKING:
    from cloud_ml.cli.storage.plan import Item
    from cloud_ml.sdk.storage.client import Storage

Outcome = str | CloudMlError | OSError
"""What became of one thing: a word for the summary, or the error."""


def together(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The things to copy, in order, with small ones that go between files and one bucket put
    together.
    """
    gathered: list[Item] = []
    size, group = 0, ""
    for item in items:
        other = _group(item)
        full = len(gathered) >= BATCH_FILES or size + item.size > BATCH_BYTES
        if gathered and (other != group or full):
            yield gathered
            gathered, size = [], 0
        if not other:
            yield [item]
            continue
        gathered.append(item)
        size, group = size + item.size, other
    if gathered:
        yield gathered


def _group(item: Item) -> str:
    """Direction and bucket of a small file; empty for what goes alone."""
    if item.size > SMALL_BYTES or item.up == item.down:
        return ""
    uri = item.target if item.up else item.source
    return f"{item.up} {uri.removeprefix('fds://').partition('/')[0]}"


def copy_batch(
    store: Storage, items: Sequence[Item], place_of: Callable[[Item], Path]
) -> Sequence[Outcome]:
    """Copy things that ``together`` has put together; returns what became of each.

    Args:
        store: The server's side.
        items: What to copy.
        place_of: The file that an object becomes; raises where it may not.

    Raises:
        CloudMlError: None of them could be copied, or nothing is known.
    """
    up = items[0].up
    found: dict[int, Outcome] = {}
    files: list[tuple[int, BucketFile]] = []
    bucket = ""
    for number, item in enumerate(items):
        try:
            uri = parse_object_uri("uri", item.target if up else item.source)
            files.append((number, BucketFile(Path(item.source) if up else place_of(item), uri.key)))
        except (CloudMlError, OSError) as error:
            found[number] = error
        else:
            bucket = uri.bucket
    if files:
        batch = [file for _, file in files]
        done = store.upload_files(bucket, batch) if up else store.download_files(bucket, batch)
        for (number, _), outcome in zip(files, done, strict=True):
            found[number] = outcome if isinstance(outcome, CloudMlError) else "copied"
    return [found[number] for number in range(len(items))]
