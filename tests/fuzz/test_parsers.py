"""Every harness over everything that is known to be worth trying, and over what hypothesis makes
of it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuzz.harness import Target, escaped, load, unescaped

TARGETS = load()
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "15"))


def changed(one: Target) -> st.SearchStrategy[bytes]:
    """Pieces of what is known, words of the grammar and anything, in any order."""
    known = one.inputs()
    cut = st.tuples(st.sampled_from(known), st.integers(0, 200), st.integers(0, 200)).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[0][drawn[2] :]
    )
    some = st.one_of(
        cut,
        st.sampled_from([*one.words, b"\0"]),
        st.binary(max_size=8),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
    )
    return st.lists(some, max_size=6).map(b"".join)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_is_known(name: str) -> None:
    for data in TARGETS[name].inputs():
        try:
            TARGETS[name].run(data)
        except BaseException as error:
            error.add_note(f"the input was {escaped(data)[:1000]}")
            raise


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_hypothesis_makes_of_it(name: str) -> None:
    one = TARGETS[name]

    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @example(b"")
    @given(changed(one))
    def holds(data: bytes) -> None:
        one.run(data)

    holds()


def test_lines_of_the_corpus_are_bytes_again() -> None:
    every = bytes(range(256)) + b"\\n\n\r"
    assert unescaped(escaped(every)) == every
    assert "\n" not in escaped(every)
