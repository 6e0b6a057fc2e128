"""Names of copies."""

from __future__ import annotations

from itertools import islice

import pytest

from cloud_ml.sdk.jobs.copies import free_names


@pytest.mark.parametrize(
    ("name", "word", "first"),
    [
        ("linear", "", ["linear-2", "linear-3"]),
        ("linear-2", "", ["linear-2", "linear-3"]),
        ("linear", "again", ["linear-again", "linear-again-2"]),
        # A copy must not take the name of a trial to come.
        ("rates-hp-1", "", ["rates-hp-1-2", "rates-hp-1-3"]),
        ("rates-hp-12", "again", ["rates-hp-12-again", "rates-hp-12-again-2"]),
    ],
)
def test_a_copy_has_a_name_of_its_own(name: str, word: str, first: list[str]) -> None:
    assert list(islice(free_names(name, word), 2)) == first
