"""How many rows run together, for models of which each row costs something else beside others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_ml.serving.portions import KINDS, TRIES, Portions

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


def settled(took: Callable[[int], float], waiting: int, portions: Portions | None = None, runs: int = 100) -> int:
    """How many rows a batch has in the end, where so many always wait."""
    portions = portions or Portions(least_s=0.001)
    rows = waiting
    for _ in range(runs):
        rows = min(waiting, portions.limits.get(IMAGE, waiting))
        portions.ran(IMAGE, rows, took(rows))
    return rows


@pytest.mark.parametrize(
    ("took", "waiting", "together"),
    [(even, 32, 1), (crowded, 32, 1), (shared, 32, 32), (shared, 1, 1), (shared_until_four, 32, 4)],
)
def test_rows_run_together_where_that_is_cheaper(took: Callable[[int], float], waiting: int, together: int) -> None:
    assert settled(took, waiting) == together


def test_batches_that_are_short_are_not_made_shorter() -> None:
    assert settled(lambda rows: 0.0001 * rows, 32) == 16  # of 1.6 ms


def test_more_callers_than_ever_run_together_again() -> None:
    portions = Portions(least_s=0.001)
    assert settled(shared, 4, portions) == 4
    assert settled(shared, 64, portions) == 64


def test_what_was_learned_while_the_machine_was_busy_is_learned_anew() -> None:
    portions = Portions(least_s=0.001)
    assert settled(lambda rows: shared(rows) if rows < 32 else 9.0, 32, portions) == 16
    assert settled(even, 32, portions) == 1
    assert settled(shared, 32, portions, runs=TRIES) == 1
    assert settled(shared, 32, portions) > 1


def test_what_is_remembered_has_an_end() -> None:
    portions = Portions(least_s=0.001)
    for size in range(3 * KINDS):
        for _ in range(TRIES):
            portions.ran(((size,),), 32, 1.0)
        assert portions.limits[(size,),] == 16
    assert len(portions.limits) <= KINDS
    portions.ran(IMAGE, 0, 1.0)
    assert IMAGE not in portions.limits
