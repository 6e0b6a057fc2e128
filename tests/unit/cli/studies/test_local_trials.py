"""Values in what trials print and report."""

from __future__ import annotations

import math

import pytest

from cloud_ml.cli.studies.local_trials import values_of_line, values_of_report
from cloud_ml.models.jobs.metric_patterns import pattern_of_metric
from cloud_ml.tracking.log_patterns import compile_pattern, read_lines


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("loss: 0.25", [("loss", None, 0.25)]),
        ("Epoch 3/10, loss=1e-3, accuracy: 0.5", [("loss", 3, 1e-3), ("accuracy", 3, 0.5)]),
        ("step: 7 LOSS = .5", [("loss", 7, 0.5)]),
        ("loss: 3 loss: 2", [("loss", None, 2.0)]),
        ("val_loss: 0.25", []),
        ("loss: 0.25s", []),
        ("loss", []),
        ('{"step": 2, "loss": 1, "other": 2}', [("loss", 2, 1.0)]),
        ('{"loss": true, "accuracy": [1]}', []),
        ("{loss", []),
        ("[" * 100_000, []),
        ('{"global_step": 3, "metrics": {"loss": 0.5}}', [("loss", None, 0.5)]),
        ('{"epoch": 3, "metrics": {"loss": 0.5}}', [("loss", 3, 0.5)]),
        ('{"loss": "0.5"}', []),
        ("{'loss': 0.5, 'epoch': 2}", [("loss", 2, 0.5)]),
        ("loss: 1,234.5", []),
        ("loss: 0,25", []),
        ("loss: 1'234", []),
        ("step 1,000 loss: 3", [("loss", None, 3.0)]),
        ("loss: 0.25, accuracy: 0.5", [("loss", None, 0.25), ("accuracy", None, 0.5)]),
        ("loss=1,accuracy=2", [("loss", None, 1.0), ("accuracy", None, 2.0)]),
        ("loss: 9\r\x1b[1mloss\x1b[0m: 1\r", [("loss", None, 1.0)]),
        ("loss: 1." + " " * 8192, []),
    ],
)
def test_a_line_of_output_gives_what_the_server_finds_in_a_log(line: str, found: object) -> None:
    metrics = ["loss", "accuracy"]
    assert values_of_line(line.encode(), metrics) == found
    patterns = [compile_pattern(pattern_of_metric(name)) for name in metrics]
    assert read_lines(line.encode(), patterns, {}, final=True).points == found


def test_a_value_that_is_no_number_is_one_of_output() -> None:
    ((name, _, value),) = values_of_line(b"loss: nan", ["loss"])
    assert (name, math.isnan(value)) == ("loss", True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"step": 3, "metrics": {"loss": 0.5, "x": "y"}}', [("loss", 3, 0.5)]),
        (b'{"metrics": {"loss": Infinity}}', [("loss", None, math.inf)]),
        (b'{"step": "3", "metrics": {"loss": 1}}', [("loss", None, 1.0)]),
        (b'{"metrics": 3}', []),
        (b'{"metr', []),
        (b"", []),
        (b"\xff", []),
    ],
)
def test_a_line_that_was_reported(line: bytes, found: object) -> None:
    assert values_of_report(line) == found
