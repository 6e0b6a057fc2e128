"""Carries out a plan: a few transfers at once, on past errors, with one bar and a summary."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.cli.display.figures import size as readable
from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.progress import bar
from cloud_ml.cli.storage.batches import Outcome, copy_batch, together
from cloud_ml.cli.storage.move import remove_source
from cloud_ml.cli.storage.plan import Item, Plan
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound, TransportError

if TYPE_CHECKING:
    from cloud_ml.models.storage.objects import StoredObject
    from cloud_ml.sdk.storage.client import Storage

_FAILED = 1


class TransferInterrupted(Exception):
    """Ends a transfer in its thread after an interrupt."""


class Totals:
    """Adds up how far many transfers are, for one bar. Thread-safe."""

    def __init__(self, show: Callable[[int, int | None], None], total: int) -> None:
        self._show = show
        self._total = total
        self._done: dict[Item, int] = {}
        self._sum = 0
        self._lock = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End all transfers at their next step, rather than wait for the end of large ones."""
        self._stopped = True

    def of(self, item: Item) -> Callable[[int, int | None], None]:
        """What a transfer tells how far it is."""

        def tell(done: int, _: int | None) -> None:
            if self._stopped:
                raise TransferInterrupted
            with self._lock:
                self._sum += done - self._done.get(item, 0)
                self._done[item] = done
                self._show(self._sum, self._total)

        return tell


def perform(
    store: Storage,
    plan: Plan,
    *,
    update: bool = False,
    dry_run: bool = False,
    move: bool = False,
    rename: Callable[[str], str] = lambda text: text,
) -> int:
    """Copy everything in the plan; returns the exit code. The first interrupt ends it.

    Args:
        store: The server's side.
        plan: What to copy.
        update: Skip what is there already, by size and digest.
        dry_run: Only print what would be done.
        move: Remove each source once its copy is verified.
        rename: What is said of a place in its stead, in all that is shown.
    """
    report = _CopyReport(rename)
    for place, why in plan.skipped:
        report.note(f"left out {place}: {why}")
    for place, why in plan.problems:
        report.failure(place, why)
    total = sum(item.size for item in plan.items)
    with bar(rename(_label(plan.items)), total) as show:
        totals = Totals(show, total)

        def copy(items: Sequence[Item]) -> Sequence[Outcome]:
            if len(items) > 1:
                return _together(store, items, totals)
            return _alone(store, items[0], totals.of(items[0]), update, dry_run, move)

        # What is compared, removed or only printed goes file by file: batches only send.
        alone = update or dry_run or move
        batches = [[item] for item in plan.items] if alone else together(plan.items)
        copies = _copy_all(batches, copy, store.transfers.parallel, totals.stop)
        with contextlib.closing(copies):  # its threads end here, also after an interrupt
            for item, outcome in copies:
                report.outcome(item, outcome)
    if len(plan.items) + len(plan.problems) > 1:
        counts = report.counts
        verb = "would be copied" if dry_run else "copied"
        parts = [f"{counts['copied']} {verb} ({readable(counts['bytes'])})"]
        parts += [f"{counts[word]} {word}" for word in ("unchanged", "failed") if counts[word]]
        note(", ".join(parts))
    return _FAILED if report.counts["failed"] else 0


class _CopyReport:
    """Says what becomes of each thing, and counts it."""

    def __init__(self, rename: Callable[[str], str]) -> None:
        self.counts: Counter[str] = Counter()
        self._rename = rename

    def outcome(self, item: Item, outcome: Outcome) -> None:
        if isinstance(outcome, CloudMlError):
            hint = f" ({outcome.hint})" if outcome.hint else ""
            self.failure(item.source, outcome.message + hint)
            return
        if isinstance(outcome, OSError):
            why = str(outcome.strerror or outcome)
            self.failure(item.source, f"{item.target}: {why}" if item.down else why)
            return
        self.counts[outcome] += 1
        if outcome == "copied":
            self.counts["bytes"] += item.size
            self.note(f"{item.source} -> {item.target}  {readable(item.size)}")

    def failure(self, place: str, why: str) -> None:
        self.counts["failed"] += 1
        self.note(f"cloudml: {place}: {why}")

    def note(self, text: str) -> None:
        note(self._rename(text))


def _label(items: Sequence[Item]) -> str:
    return f"Copying {items[0].source}" if len(items) == 1 else f"Copying {len(items)} files"


def _copy_all(
    batches: Iterable[Sequence[Item]],
    copy: Callable[[Sequence[Item]], Sequence[Outcome]],
    parallel: int,
    stop: Callable[[], None],
) -> Generator[tuple[Item, Outcome]]:
    """Copy so many batches at a time; each item as soon as its batch is through.

    Batches are handed over as threads become free, so that an interrupt leaves no queue behind. Then
    ``stop`` ends those that run.
    """
    waiting = iter(batches)
    running: dict[Future[Sequence[Outcome]], Sequence[Item]] = {}
    with ThreadPoolExecutor(parallel) as pool:
        try:
            while True:
                for items in itertools.islice(waiting, parallel - len(running)):
                    running[pool.submit(copy, items)] = items
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield from zip(running.pop(done), done.result(), strict=True)
        except BaseException:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _alone(  # noqa: PLR0917
    store: Storage,
    item: Item,
    progress: Callable[[int, int | None], None],
    update: bool,
    dry_run: bool,
    move: bool,
) -> Sequence[Outcome]:
    try:
        return [_one(store, item, progress, update, dry_run, move)]
    except (CloudMlError, OSError) as error:
        return [error]


def _together(store: Storage, items: Sequence[Item], totals: Totals) -> Sequence[Outcome]:
    """Copy small files in one request. What keeps out all of them may be the fault of one: then
    each goes alone.
    """
    try:
        outcomes = copy_batch(store, items, file_place)
    except TransportError as error:
        return [error] * len(items)
    except CloudMlError:
        return [
            outcome
            for item in items
            for outcome in _alone(store, item, totals.of(item), False, False, False)
        ]
    for item in items:
        totals.of(item)(item.size, item.size)
    return outcomes


def _one(  # noqa: PLR0917
    store: Storage,
    item: Item,
    progress: Callable[[int, int | None], None],
    update: bool,
    dry_run: bool,
    move: bool,
) -> str:
    if update and _same(store, item):
        progress(item.size, item.size)
        return "unchanged"
    if dry_run:
        return "copied"
    stored = _transfer(store, item, progress)
    if move:
        remove_source(store, item, stored)
    return "copied"


def _transfer(
    store: Storage, item: Item, progress: Callable[[int, int | None], None]
) -> StoredObject | None:
    """Copy one thing; returns the new object, ``None`` where it is a file."""
    if item.up:
        return store.upload(Path(item.source), item.target, progress=progress)
    if item.down:
        store.download(item.source, file_place(item), progress=progress)
        return None
    stored = store.copy(item.source, item.target)
    progress(item.size, item.size)
    return stored


def file_place(item: Item) -> Path:
    """Where an object is written: below the target, whatever its key is and whatever links stand
    there.

    Raises:
        InvalidRequest: It would be elsewhere.
    """
    place = Path(item.target)
    root = item.root if item.root is not None else place
    inside = place.is_relative_to(root) and ".." not in place.relative_to(root).parts
    if inside:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Check again now that the folders exist: one of them may be a symbolic link.
        inside = place == root or place.parent.resolve().is_relative_to(root.resolve())
    if not inside:
        raise InvalidRequest(
            f"{place} lies outside of {root}: a link or an odd key leads there", field="target"
        )
    if place.is_dir():
        raise InvalidRequest(f"{place} is a folder", field="target", value=str(place))
    return place


def _same(store: Storage, item: Item) -> bool:
    """Whether the target has the same bytes: first by size, then by digest."""
    try:
        if item.down:
            place = Path(item.target)
            there: int | None = place.stat().st_size if place.is_file() else None
        else:
            there = store.head(item.target).size
    except NotFound:
        return False
    if there != item.size:
        return False
    return _digest(store, item.source) == _digest(store, item.target)


def _digest(store: Storage, place: str) -> str | None:
    if place.startswith("fds://"):
        return store.digest(place)
    with Path(place).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
