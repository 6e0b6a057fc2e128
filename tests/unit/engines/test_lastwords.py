"""The end of an output, as one line."""

from __future__ import annotations

import pytest

from cloud_ml.engines.local import lastwords

TRACEBACK = b"""epoch 3
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/home/tenants/1/trainers/ab/site/trainer/task.py", line 7, in <module>
    main()
%s
"""


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (TRACEBACK % b"ValueError: not a number: 'x'", "ValueError: not a number: 'x'"),
        (TRACEBACK % b"KeyboardInterrupt", "KeyboardInterrupt"),
        (TRACEBACK % b"torch.cuda.OutOfMemoryError: no device", "torch.cuda.OutOfMemoryError: no device"),
        (
            TRACEBACK % b"ModuleNotFoundError: No module named 'polars'",
            "ModuleNotFoundError: No module named 'polars'; if a package brings it, name that in the trainer's "
            "requirements",
        ),
        (
            TRACEBACK % b"    def main(:\n             ^\nSyntaxError: invalid syntax",
            "SyntaxError: invalid syntax (trainer/task.py, line 7)",
        ),
        (b"/env/bin/python: No module named trainer.tsk\n", "No module named trainer.tsk"),
        (b"RuntimeError: boom\nclosing\n", "RuntimeError: boom"),
        (b"loss 0.5\n  ValueError: indented words are nobody's\n", ""),
        (b"I met an Error: no\n\xff\xfe", ""),
        (b"", ""),
    ],
)
def test_what_was_told_last(tail: bytes, told: str) -> None:
    assert lastwords.of(tail) == told


def test_it_fits_a_line_and_a_terminal() -> None:
    told = lastwords.of(b"ValueError: \x1b[31m" + b"x" * 1000)
    assert (len(told), told[-1], "\x1b" in told) == (300, "…", False)
