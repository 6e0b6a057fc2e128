"""The end of an output, as one line."""

from __future__ import annotations

import pytest

from cloud_ml.engines.local.failures import excerpt

SITE = "/home/tenants/1/trainers/ab/site/"
TRACEBACK = (
    b"epoch 3\nTraceback (most recent call last):\n"
    b'  File "<frozen runpy>", line 198, in _run_module_as_main\n'
    b'  File "' + SITE.encode() + b'trainer/task.py", line 7, in <module>\n    main()\n'
    b'  File "/usr/lib/python3/pandas/io.py", line 99, in read\n    raise error\n%s\n'
)
HERE = " (trainer/task.py, line 7)"
USAGE = b"usage: task.py [-h] [--epochs N]\n               [--rate R] --data FILE\n"
GROUP = b"""  + Exception Group Traceback (most recent call last):
  |   File "%strainer/task.py", line 3, in <module>
  |     raise ExceptionGroup("two", errors)
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: one
    +------------------------------------
"""


def user_file(path: str) -> str:
    return path.removeprefix(SITE) if path.startswith(SITE) else ""


def sentence(tail: bytes) -> str:
    return excerpt.read(tail, user_file).sentence()


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (TRACEBACK % b"ValueError: not a number: 'x'", "ValueError: not a number: 'x'" + HERE),
        (TRACEBACK % b"KeyboardInterrupt", "KeyboardInterrupt (trainer/task.py, line 7: main())"),
        (
            TRACEBACK % b"torch.cuda.OutOfMemoryError: no device",
            "torch.cuda.OutOfMemoryError: no device" + HERE,
        ),
        (TRACEBACK % b"queue.Empty: nothing", "queue.Empty: nothing" + HERE),
        (TRACEBACK % b"ValueError: x\nclosing files\n", "ValueError: x" + HERE),
        (
            TRACEBACK
            % b'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s): "a".\n\tMore',
            'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): "a".' + HERE,
        ),
        (
            TRACEBACK % b"    def main(:\n             ^\nSyntaxError: invalid syntax",
            "SyntaxError: invalid syntax (io.py, line 99)",
        ),
        (
            b'  File "/somewhere/else.py", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax',
            "SyntaxError: invalid syntax (else.py, line 2)",
        ),
        (
            TRACEBACK % b"ValueError: the cause"
            + b"Exception ignored in atexit callback: <f>\nTraceback (most recent call last):\n"
            + b'  File "/x.py", line 1, in f\nOSError: handle is closed\n',
            "ValueError: the cause" + HERE,
        ),
        (
            GROUP % SITE.encode(),
            "ExceptionGroup: two (1 sub-exception) (trainer/task.py, line 3); from: "
            "ValueError: one",
        ),
        (
            b"Traceback (most recent call last):\n  File \"/x.py\", line 1\nKeyError: 'lr'\n"
            + TRACEBACK
            % b"subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.",
            "subprocess.CalledProcessError: Command 'x' returned non-zero exit status "
            f"1.{HERE}; from: KeyError: 'lr'",
        ),
        pytest.param(
            TRACEBACK % (b"ValueError: " + b"x" * 50_000),
            "ValueError: " + "x" * 261 + "…" + HERE,
            id="pages",
        ),
        (b"cut off\nsome.lib.FooError: boom\nclosing\n", "some.lib.FooError: boom"),
        (b"/env/bin/python: No module named trainer.tsk\n", "No module named trainer.tsk"),
    ],
)
def test_the_error_of_python_with_the_place_in_the_users_code(tail: bytes, expected: str) -> None:
    assert sentence(tail) == expected


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (
            USAGE + b"task.py: error: unrecognized arguments: --epoch 3\n",
            "unrecognized arguments: --epoch 3 (did you mean --epochs?)",
        ),
        (
            USAGE + b"task.py: error: the following arguments are required: --data\n",
            "the following arguments are required: --data",
        ),
        (
            b"Usage: t [OPTIONS]\nTry 't --help'.\n\nError: No such option: --foo Did you mean --food?\n",
            "No such option: --foo Did you mean --food?",
        ),
        (
            "Usage: t [OPTIONS]\n╭─ Error ──╮\n│ No such option: --foo    "
            "│\n╰──────────╯\n".encode(),
            "No such option: --foo",
        ),
        (
            b"FATAL Flags parsing error:\n  Unknown command line flag 'epoch'\nPass --helpshort to see help\n",
            "Unknown command line flag 'epoch'",
        ),
        (
            b"FATAL Flags parsing error: Unknown command line flag 'epoch'\nPass --helpshort to see help\n",
            "Unknown command line flag 'epoch'",
        ),
        (
            b"x\nFatal Python error: Segmentation fault\n\nCurrent thread:\n",
            "Fatal Python error: Segmentation fault",
        ),
        (
            b"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
            "terminate called after throwing an instance of 'std::bad_alloc' what():  "
            "std::bad_alloc",
        ),
        (
            b"ERROR: No matching distribution found for nope\n[notice] A new release of pip\n",
            "ERROR: No matching distribution found for nope",
        ),
        (b"/bin/sh: 1: nope: not found\n", "last output: /bin/sh: 1: nope: not found"),
        (b"loss 0.5\n  indented\n\n", "last output: indented"),
        (b"\x1b[31mno data\x1b[0m \x1b]0;title\x07here\n\xff\n", "last output: \ufffd"),
        (b"\n \n", ""),
        (b"", ""),
    ],
)
def test_the_words_of_other_programs(tail: bytes, expected: str) -> None:
    assert sentence(tail) == expected


def test_an_error_that_much_output_follows_is_not_the_cause() -> None:
    assert (
        sentence(TRACEBACK % b"ValueError: caught" + b"step\n" * 100 + b"no more data\n")
        == "last output: no more data"
    )


def test_it_fits_a_line_and_a_terminal() -> None:
    message = sentence(b"ValueError: \x1b[31m" + b"x" * 1000)
    assert (len(message), message[-1], "\x1b" in message, "[31m" in message) == (
        300,
        "…",
        False,
        False,
    )


RANKS = b"""[rank1]: Traceback (most recent call last):
[rank1]:   File "%strainer/task.py", line 4, in <module>
[rank1]:     raise KeyError("no such shard")
[rank1]: KeyError: 'no such shard'
[rank0]: Traceback (most recent call last):
[rank0]:   File "%strainer/task.py", line 5, in <module>
[rank0]: RuntimeError: Connection closed by peer
"""
TORCHRUN = b"""E1128 10:17:12.769000 2 api.py:1002] failed (exitcode: %d) local_rank: 1 of binary: python
Traceback (most recent call last):
  File "/usr/lib/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
raises FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 5)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : %d (pid: 6)
============================================================
"""


def test_the_rank_that_failed_first_says_why_and_not_torchrun() -> None:
    log = RANKS % (SITE.encode(), SITE.encode())
    expected = "KeyError: 'no such shard' (trainer/task.py, line 4)"
    assert sentence(log + TORCHRUN % (1, 1)) == expected
    bare = TRACEBACK % b"ValueError: x"
    assert sentence(bare + TORCHRUN % (1, 1)) == "ValueError: x" + HERE
    assert sentence(TORCHRUN % (3, 3)) == "rank 1 exited with code 3"
    assert sentence(TORCHRUN % (-9, -9)) == "rank 1 was killed by signal 9"
    assert sentence(TORCHRUN[: TORCHRUN.index(b"raises")] % 1) == "a process of torchrun failed"


def test_pytorchs_rank_before_a_traceback_hides_nothing() -> None:
    log = (RANKS % (SITE.encode(), SITE.encode())).partition(b"[rank0]")[0]
    assert sentence(log) == "KeyError: 'no such shard' (trainer/task.py, line 4)"
