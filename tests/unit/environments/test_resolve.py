"""What uv says, as the one line that a user sees."""

from __future__ import annotations

import pytest

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.packages.requirements import parse_all
from cloud_ml.environments.packages.resolve import (
    NoSolution,
    check_forbidden,
    first_reason,
    make_room,
)
from cloud_ml.environments.runtime import Runtime

TORCH = Runtime(
    "torch", "2", requires=("torch==2.13.0", "numpy", "pip"), forbids=("nvidia-*", "triton")
)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "  × No solution found when resolving dependencies:\n"
            "  ╰─▶ Because nothing was not found in the package registry and you require\n"
            "      nothing==9, we can conclude that your requirements are unsatisfiable.\n\n"
            "      hint: try again\n",
            "Because nothing was not found in the package registry and you require nothing==9, we "
            "can conclude that your requirements are unsatisfiable.",
        ),
        (
            "\x1b[1m\x1b[31merror\x1b[39m\x1b[0m\x1b[1m:\x1b[0m Failed to fetch\n  cause: dns "
            "error\n",
            "dns error",
        ),
        (
            "error: Failed to download and build `a @ git+https://h.test/a.git`\n  cause: Git "
            "operation failed\n"
            "  cause: process didn't exit successfully: `/usr/bin/git fetch` (exit status: 128)\n"
            "         --- stderr\n         fatal: unable to access 'https://h.test/a.git/': "
            "Could not resolve host\n",
            "git: unable to access 'https://h.test/a.git/': Could not resolve host",
        ),
        (
            "warning: x\nerror: Couldn't parse requirement in `r.txt`\n",
            "Couldn't parse requirement in `r.txt`",
        ),
        (
            "error: Couldn't parse requirement in `r.txt` at position 15\n  cause: after parsing `1`, "
            "found `..0`, which is not part of a valid version\n         six===1..0\n"
            "            ^^^^^^^\n",
            "after parsing `1`, found `..0`, which is not part of a valid version six===1..0",
        ),
        ("", ""),
    ],
)
def test_the_first_reason(words: str, reason: str) -> None:
    assert first_reason(words) == reason


def test_a_long_reason_is_cut() -> None:
    reason = first_reason("error: " + "x" * 1000)
    assert (len(reason), reason[-1]) == (300, "…")


@pytest.mark.parametrize("joint", [". And because", " and because"])
def test_of_a_long_conflict_the_end_is_told(joint: str) -> None:
    end = "you require pandas>=2 and numpy<1, we can conclude that your requirements are unsatisfiable."
    causes = [f"pandas=={number}.0 depends on numpy>={number}" for number in range(2, 30)]
    reason = first_reason(f"  ╰─▶ Because {f'{joint} '.join(causes)}{joint} {end}\n")
    assert reason.endswith(end)
    assert reason.startswith("… And because" if joint.startswith(".") else "… ")
    assert 200 < len(reason) <= 300


def test_without_a_reason_the_log_is_named() -> None:
    assert "see the log" in NoSolution(b"").message
    assert "dns error" in NoSolution(b"cause: dns error").message


def test_a_requirement_of_the_runtime_that_is_in_the_way_is_named() -> None:
    words = (
        b"  x No solution found when resolving dependencies:\n  \xe2\x95\xb0\xe2\x94\x80\xe2\x96\xb6 "
        b"Because you require torch==2.* and you require numpy==1.23.5, your requirements are "
        b"unsatisfiable."
    )
    message = NoSolution(words).beside(TORCH).message
    assert message.startswith("the requirements cannot be resolved: Because you require torch")
    assert message.endswith(
        "are unsatisfiable. The runtime torch 2 needs torch==2.13.0, numpy; with -F python only "
        "your requirements count"
    )
    other = NoSolution(b"cause: you require torchvision==9").beside(TORCH).message
    assert "runtime" not in other


def test_the_cause_of_a_failed_download_is_told_once() -> None:
    words = "error: Failed to download `a`\n cause: Request failed after 3 retries in 6.8s\n cause: Failed to fetch: x\n"  # noqa: E501
    assert first_reason(words + " cause: error sending request\n cause: Connection refused") == (
        "Failed to fetch: x: Connection refused"
    )


def test_what_a_runtime_forbids_is_refused_by_name() -> None:
    check_forbidden("torch==2.13.0+cpu\nnumpy==2.0\n", TORCH)
    with pytest.raises(
        EnvironmentFailed,
        match=r"bring nvidia-cublas and 1 more, which the runtime torch 2 does not",
    ):
        check_forbidden("nvidia-cublas==13\ntorch==2.13.0\ntriton==3\n", TORCH)


@pytest.mark.parametrize(
    ("requirement", "taken"),
    [
        ("torch==2.4", True),
        ("torch<2", True),
        ("torch>=2", False),
        ("torch", False),
        ("numpy==1.26", False),
    ],
)
def test_a_trainers_own_pin_wins_over_the_runtimes(requirement: str, taken: bool) -> None:
    runtime, notices = make_room(TORCH, parse_all([requirement]))
    assert ("torch==2.13.0" not in runtime.requires, bool(notices)) == (taken, taken)
    assert {"numpy", "pip"} <= set(runtime.requires)
