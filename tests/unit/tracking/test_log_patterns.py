"""What frameworks print, and what users look for in their logs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from cloud_ml.models.jobs import metric_patterns
from cloud_ml.tracking import log_patterns
from cloud_ml.tracking.log_patterns import (
    LONGEST_LINE,
    MOST_SERIES,
    LinePoint,
    PatternRefused,
    compile_pattern,
    read_lines,
)


def read(log: str | bytes, *patterns: str) -> Sequence[LinePoint]:
    data = log.encode() if isinstance(log, str) else log
    return read_lines(data, [compile_pattern(one) for one in patterns], {}).points


@pytest.mark.parametrize(
    ("pattern", "log", "expected"),
    [
        ("epoch", "Epoch: 3, loss: 0.25\n", [("loss", 3, 0.25)]),
        ("epoch", "epoch 4 loss=.2 acc=9.\n", [("loss", 4, 0.2), ("acc", 4, 9.0)]),
        ("epoch", "no such thing: 5\n", []),
        ("metric:val_loss", "epoch 3 val_loss=0.25 acc=1\n", [("val_loss", 3, 0.25)]),
        ("metric:val_loss", "Val_Loss: 1e-3, step: 7\n", [("val_loss", 7, 1e-3)]),
        ("metric:val/loss", '{"epoch": 2, "val/loss": 0.5}\n', [("val/loss", 2, 0.5)]),
        ("metric:loss", "val_loss=0.25 loss was 3\nval/loss: 3\n", []),
        ("metric:a (b)", "a (b) = 2.\n", [("a (b)", None, 2.0)]),
        ("metric:loss", "final loss: 1,234.5\n", []),
        ("metric:loss", "loss: 0,25\nloss=1'234\nstep: 1, loss=1,\n", [("loss", 1, 1.0)]),
        ("metric:loss", "loss: 12,345 loss: 3\nstep 1,000 loss=2\n", [("loss", None, 3.0), ("loss", None, 2.0)]),
        ("metric:loss", "loss: 3 loss: 2\n", [("loss", None, 2.0)]),
        ("metric:loss", "loss: 3,loss: 2\n", [("loss", None, 2.0)]),
        ("metric:acc", "loss: 0.25, acc: 0.5\n{'acc': '1'}\n", [("acc", None, 0.5)]),
        ("metric:acc", "loss=1,acc=2\n", [("acc", None, 2.0)]),
        ("epoch", "Epoch 3 loss=1,acc=2\n", [("loss", 3, 1.0), ("acc", 3, 2.0)]),
        ("epoch", "Epoch 3 loss: 1,234.5, acc: 0.5\nEpoch 1,000 acc=1\n", [("acc", 3, 0.5)]),
        ("keras", "Epoch 2/3\n9/9 - 2s - loss: 1e-3 - acc: 0.5\n", [("loss", 2, 1e-3), ("acc", 2, 0.5)]),
        ("keras", "Epoch 1/1\n9/9 ━━━━ 2s 3ms/step - loss: 0.5\n", [("loss", 1, 0.5)]),
        ("keras", "Epoch 1/1\n1/9 [>..] - ETA: 0s - loss: 9\r9/9 [==] - 0s 4ms/step - loss: 1\n", [("loss", 1, 1.0)]),
        ("keras", "Epoch 1/1\n1/9 - loss: 9\b\b\b\b9/9 - 0s 4ms/step - loss: 1\r\n", [("loss", 1, 1.0)]),
        ("keras", "\x1b[1m9/9\x1b[0m \x1b[32m━━\x1b[0m 2s 3ms/step - loss: 0.5\n", [("loss", None, 0.5)]),
        ("lightning", "Epoch 3: 100%|██| 9/9 [00:05<00:00, 90.1it/s, v_num=0, loss=0.1]\n", [("loss", 3, 0.1)]),
        ("keras", "9/9 - 2s - loss: 1,234.5 - acc: 0,5 - auc: 0.5ms - mae: 2\n", [("mae", None, 2.0)]),
        ("lightning", "Epoch 3: 100%|██| 9/9 [00:05<00:00, loss=1,234.5, acc=0,5, mae=2]\n", [("mae", 3, 2.0)]),
        ("lightning", "Epoch 3: 100%|██| 9/9 [00:05<00:00, loss=1, acc=0.5\n", [("loss", 3, 1.0), ("acc", 3, 0.5)]),
        ("xgboost", "[1]\ttrain-rmse:1,234.5\teval-auc:0,5\ttest-mae:2\n", [("test-mae", 1, 2.0)]),
        ("lightgbm", "[1]\tvalid_0's l2: 1,234.5\tvalid_0's auc: 0,5\tcv_agg's l1: 2 + 0.1\n", [("cv_agg/l1", 1, 2.0)]),
        ("lightning", "Epoch 3:  50%|█ | 4/9 [00:05<00:00, 90.1it/s, loss=0.1]\n", []),
        ("xgboost", "[12]\ttrain-rmse:0.5\teval-auc:1\n", [("train-rmse", 12, 0.5), ("eval-auc", 12, 1.0)]),
        ("xgboost", "[14:02:11] [3]\ttrain-rmse:0.5+0.01\n", [("train-rmse", 3, 0.5)]),
        ("keras", "Epoch 1/1\n1/9 [>..] - ETA: 0s - loss: 9\r9/9 - 0s 4ms/step - loss: 1\n", [("loss", 1, 1.0)]),
        ("json", '{"step": 3, "loss": 0.5, "ok": true, "text": "1"}\n', [("loss", 3, 0.5)]),
        ("json", '{"epoch": 3, "loss": 1, "time": 5.0}\n', [("loss", 3, 1.0)]),
        ("json", "{'loss': 1}\n", []),
        (r"loss=(?P<loss>\S+)", "loss=0.5, acc\n", [("loss", None, 0.5)]),
        (r"step (?P<step>\d+) (?P<name>\w+) is (?P<value>\S+)", "step 7 acc is -inf\n", [("acc", 7, -math.inf)]),
        (r"(?P<value>\d+) ms", "5 ms 6 ms\n", [("value", None, 5.0)]),
        (r"loss=(?P<loss>\S+)", "loss=high\n", []),
        (r"(?P<step>\S+) (?P<loss>\S+)", "--5 1\n+5 3\n", [("loss", None, 1.0), ("loss", 5, 3.0)]),
    ],
)  # fmt: skip
def test_points_are_found(pattern: str, log: str, expected: list[LinePoint]) -> None:
    assert read(log, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?P<a>.)\1", "invalid escape sequence"),
        ("(?P<loss>", "missing )"),
        ("(?P<name>a)", "group name and no group value"),
        ("loss", "no group for a value"),
        ("", "0 characters"),
        ("metric:", "the name of a metric"),
        ("x" * 1001, "1001 characters"),
        ("((((a{100}){100}){100}){100})", "no RE2 pattern"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(PatternRefused) as refused:
        compile_pattern(pattern)
    assert why in str(refused.value)


def test_the_ready_patterns_are_those_that_a_job_may_name() -> None:
    assert log_patterns.READY == metric_patterns.READY_PATTERNS
    assert log_patterns.METRIC_PREFIX == metric_patterns.METRIC_PREFIX
    assert log_patterns.MOST_PATTERNS == metric_patterns.MOST_PATTERNS
    assert log_patterns.LONGEST_PATTERN == metric_patterns.LONGEST_PATTERN


def test_half_a_line_waits_unless_nothing_follows() -> None:
    patterns, data = [compile_pattern("epoch")], b"Epoch: 1, loss: 2\nEpoch: 2, loss: 1"
    first = read_lines(data, patterns, {})
    assert (len(first.points), first.taken) == (1, 18)
    whole = read_lines(data, patterns, {}, final=True)
    assert (len(whole.points), whole.taken) == (2, len(data))


def test_the_step_of_an_earlier_line_is_kept() -> None:
    patterns = [compile_pattern("keras")]
    first = read_lines(b"Epoch 4/9\n", patterns, {})
    then = read_lines(b"9/9 - 2s - loss: 1\n", patterns, first.steps)
    assert then.points == [("loss", 4, 1.0)]


def test_lines_that_are_too_long_are_passed_over() -> None:
    long = b"Epoch: 1, loss: 2 " + b"x" * LONGEST_LINE
    assert read(long + b"\nEpoch: 2, loss: 1\n", "epoch") == [("loss", 2, 1.0)]
    assert read_lines(long, [], {}, more=True).taken == len(long)


def test_a_pattern_that_others_would_run_for_ever_on_takes_no_time() -> None:
    assert read("loss=" + "a" * 8000 + "\n", r"loss=((a+)+)+(?P<value>\d)") == []


def test_a_call_gives_points_of_a_bounded_number_of_series() -> None:
    lines = [json.dumps({f"name{at}-{one}": 1 for one in range(100)}) for at in range(50)]
    data = "\n".join(lines).encode() + b"\n"
    first = read_lines(data, [compile_pattern("json")], {})
    assert len(first.points) <= MOST_SERIES
    assert first.taken < len(data)


def test_a_call_looks_at_a_bounded_number_of_lines() -> None:
    first = read_lines(b"x\n" * 100_000, [compile_pattern("epoch")], {})
    assert first.taken == 2 * log_patterns.MOST_LINES
