from __future__ import annotations

import sys

import pytest

from cloud_ml.environments.process import OutputTail, run


def test_words_and_exit_code_come_back() -> None:
    words = OutputTail()
    code = run(
        [
            sys.executable,
            "-c",
            "import os; print(os.environ); os.write(2, b'wrong'); raise SystemExit(3)",
        ],
        environment={"ONLY": "this"},
        timeout_s=30,
        output=words,
    )
    assert code == 3
    assert b"wrong" in words.kept
    assert b"'ONLY': 'this'" in words.kept
    assert b"HOME" not in words.kept


def test_a_tool_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.2 s"):
        run(
            ["/bin/sh", "-c", "sleep 900 & sleep 900"],
            environment={},
            timeout_s=0.2,
            output=OutputTail(),
        )


def test_a_tool_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/nonexistent/tool"], environment={}, timeout_s=1, output=OutputTail())


def test_only_the_last_words_are_kept() -> None:
    words = OutputTail(limit=10)
    for number in range(100):
        words(b"%d\n" % number)
    assert words.kept.endswith(b"98\n99\n")
    assert len(words.kept) <= 10
    assert OutputTail().kept == b""
