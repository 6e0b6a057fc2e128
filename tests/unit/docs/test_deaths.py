"""The page about deaths says what the table says, and the table names tests that exist."""

from __future__ import annotations

import re

import cloud_ml_docs
import pytest

from support import deaths
from support.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "what-happens-when-a-task-dies.md"


def test_every_row_is_on_the_page() -> None:
    page = cloud_ml_docs.fill(PAGE.read_text("utf-8"))
    shown = [line for line in page.splitlines() if line.endswith("` |")]
    assert len(shown) == len(deaths.rows())
    for line, row in zip(shown, deaths.rows(), strict=True):
        words = deaths.words()
        for part, keys in (("who", row.who), ("causes", row.causes), ("jobs", row.jobs)):
            assert "; ".join(words[part][key] for key in keys) in line
        assert words["follows"][row.follows] in line


@pytest.mark.parametrize("test", sorted({row.test or deaths.played_by() for row in deaths.rows()}))
def test_every_row_names_a_test_that_exists(test: str) -> None:
    path, name = test.split("::")
    assert re.search(rf"^ *(?:async )?def {name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE)


def test_every_combination_is_run() -> None:
    """A test of its own reads the table, unless its row is a single combination."""
    for row in deaths.rows():
        count = len(row.jobs) * len(row.who) * len(row.causes) * len(row.moments)
        if row.test and count > 1:
            source = (ROOT / row.test.partition("::")[0]).read_text("utf-8")
            assert "deaths.played(TEST)" in source, row


def test_no_two_rows_are_about_the_same() -> None:
    assert len(deaths.played()) > 200
