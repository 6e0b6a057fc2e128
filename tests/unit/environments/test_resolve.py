"""What uv says, as the one line that a user sees."""

from __future__ import annotations

import pytest

from cloud_ml.environments.resolve import NoSolution, first_reason


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "  × No solution found when resolving dependencies:\n"
            "  ╰─▶ Because nothing was not found in the package registry and you require\n"
            "      nothing==9, we can conclude that your requirements are unsatisfiable.\n\n"
            "      hint: try again\n",
            "Because nothing was not found in the package registry and you require nothing==9, we can conclude that "
            "your requirements are unsatisfiable.",
        ),
        ("\x1b[1m\x1b[31merror\x1b[39m\x1b[0m\x1b[1m:\x1b[0m Failed to fetch\n  cause: dns error\n", "dns error"),
        ("warning: x\nerror: Couldn't parse requirement in `r.txt`\n", "Couldn't parse requirement in `r.txt`"),
        ("", ""),
    ],
)
def test_the_first_reason(words: str, reason: str) -> None:
    assert first_reason(words) == reason


def test_a_long_reason_is_cut() -> None:
    told = first_reason("error: " + "x" * 1000)
    assert (len(told), told[-1]) == (300, "…")


def test_without_a_reason_the_log_is_named() -> None:
    assert "see the log" in NoSolution(b"").message
    assert "dns error" in NoSolution(b"cause: dns error").message
