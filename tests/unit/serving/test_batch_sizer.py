"""How many rows run together, for models of which each row costs something else beside others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from cloud_ml.serving.batch_sizer import KINDS, TRIES, BatchSizer

IMAGE = ((3, 224, 224),)


def even(rows: int) -> float:
    """A model to which it is all the same."""
    return 0.0025 * rows


def crowded(rows: int) -> float:
    """A model whose rows are in each other's way."""
    return 0.0025 * rows * (1 + rows / 100)


def shared(rows: int) -> float:
    """A model that reads its weights once for all rows."""
    return 0.007 + 0.0005 * rows


def shared_until_four(rows: int) -> float:
    """The same, with so much between its layers that more than four rows outgrow the caches."""
    return 0.007 + 0.0005 * rows + 0.005 * max(0, rows - 4)


def images(rows: int) -> float:
    """A network as it was measured: two together are best, one alone and four are a little
    dearer.
    """
    return {1: 0.0049, 2: 0.0093, 4: 0.0196}.get(rows, 0.0055 * rows)


def runs_of(
    took: Callable[[int], float],
    waiting: int,
    portions: BatchSizer | None = None,
    *,
    runs: int = 3_000,
    last: int = 1_000,
) -> Counter[int]:
    """How many rows the last batches had, where so many always wait and no other bound is near."""
    portions = portions or BatchSizer(least_s=0.001)
    sizes = []
    for _ in range(runs):
        rows = min(waiting, portions.limit(IMAGE, waiting, 1024))
        portions.ran(IMAGE, rows, took(rows))
        sizes.append(rows)
    return Counter(sizes[-last:])


def settled(
    took: Callable[[int], float],
    waiting: int,
    portions: BatchSizer | None = None,
    *,
    runs: int = 3_000,
) -> int:
    """How many rows most batches have in the end."""
    ((rows, _),) = runs_of(took, waiting, portions, runs=runs).most_common(1)
    return rows


@pytest.mark.parametrize(
    ("took", "waiting", "together"),
    [
        (even, 32, 1), (crowded, 32, 1), (shared, 32, 32), (shared, 1, 1), (shared_until_four, 32, 4), (images, 32, 2),
        (images, 2, 1), (images, 7, 1), (images, 8, 2),
    ],
)  # fmt: skip
def test_rows_run_together_where_that_is_cheaper(
    took: Callable[[int], float], waiting: int, together: int
) -> None:
    """Where few wait, a little dearer is good enough."""
    assert settled(took, waiting) == together


def test_most_runs_are_of_the_size_that_was_found() -> None:
    assert runs_of(images, 32)[2] > 950


def test_nobody_waits_long_for_it_to_be_found() -> None:
    """From 32 rows to one."""
    portions, rows = BatchSizer(least_s=0.001), 0
    while (size := min(32, portions.limit(IMAGE, 32, 1024))) > 1 or rows < 32:
        portions.ran(IMAGE, size, even(size))
        rows += size
    assert rows < 400


@pytest.mark.parametrize("seed", range(5))
def test_what_the_machine_does_besides_does_not_mislead(seed: int) -> None:
    """Runs that take up to a quarter longer by chance, on a machine that is slow for a second
    every other second.
    """
    noise, now = random.Random(seed), 0.0

    def took(rows: int) -> float:
        nonlocal now
        seconds = images(rows) * noise.uniform(1, 1.25) * (1.3 if int(now) % 2 else 1)
        now += seconds
        return seconds

    found = runs_of(took, 32, runs=20_000, last=20_000)
    assert found[2] > 10_000
    assert found[16] + found[32] < 1_000


def test_batches_that_are_short_are_not_made_shorter() -> None:
    assert settled(lambda rows: 0.0001 * rows, 32) == 16  # of 1.6 ms


def test_more_callers_than_ever_run_together_again() -> None:
    portions = BatchSizer(least_s=0.001)
    assert settled(shared, 4, portions) == 4
    assert settled(shared, 64, portions) == 64


def test_fewer_callers_than_before_are_learned_of_too() -> None:
    """Of those who wait after a smaller batch there are fewer than before a larger one."""
    portions = BatchSizer(least_s=0.001)
    assert settled(shared, 32, portions, runs=5) == 32
    assert settled(even, 20, portions) == 1


def test_what_was_good_enough_where_few_waited_is_forgotten_with_the_sizes() -> None:
    """Two at most, of which one alone is nearly as cheap; then more come than ever, and nothing
    is known of those.
    """
    portions = BatchSizer(least_s=0.001)
    assert settled(images, 2, portions) == 1
    portions.ran(IMAGE, 40, 0.0001)  # short, so that nothing is compared
    assert portions.limit(IMAGE, 2, 1024) == 1024


def test_one_large_request_among_small_ones_changes_nothing() -> None:
    portions = BatchSizer(least_s=0.001)
    assert settled(even, 32, portions) == 1
    for _ in range(10):
        portions.ran(IMAGE, 64, even(64))
        assert portions.limit(IMAGE, 32, 1024) <= 2


def test_requests_that_do_not_fit_into_what_is_compared_end_it() -> None:
    """Three rows each, where two and four are compared."""
    portions = BatchSizer(least_s=0.001)
    assert settled(images, 32, portions) == 2
    for _ in range(5_000):
        portions.ran(IMAGE, 3, images(3))
    assert settled(images, 32, portions) == 2


def test_what_was_learned_while_the_machine_was_busy_is_learned_anew() -> None:
    portions = BatchSizer(least_s=0.001)
    assert settled(lambda rows: shared(rows) if rows < 32 else 9.0, 32, portions) == 16
    assert settled(even, 32, portions) == 1
    assert settled(shared, 32, portions, runs=TRIES) == 1
    assert settled(shared, 32, portions, runs=10_000) == 32


def test_only_what_is_limited_or_compared_follows_its_short_runs() -> None:
    portions = BatchSizer(least_s=0.001)
    assert not portions.follows(IMAGE)
    portions.ran(IMAGE, 1, 0.5)  # the first one compiles
    portions.ran(IMAGE, 32, 0.0001)
    assert not portions.follows(IMAGE)
    assert settled(even, 32, portions) == 1
    assert portions.follows(IMAGE)


def test_what_is_remembered_has_an_end() -> None:
    portions = BatchSizer(least_s=0.001)
    for size in range(3 * KINDS):
        portions.ran(((size,),), 32, 1.0)
    assert len(portions.searches) <= KINDS
    portions.ran(IMAGE, 0, 1.0)
    assert IMAGE not in portions.searches
