"""Series of event files are named by the folder and the tag, whatever tells one start from another."""

from __future__ import annotations

import pytest

from cloud_ml.domain.metrics.runs import name_order, run_of


@pytest.mark.parametrize(
    ("folder", "run"),
    [
        ("", ""),
        ("code", ""),
        ("code/logs/train", "train"),
        ("logs/fit/20261125-101010/validation", "validation"),
        ("code/lightning_logs/version_3", ""),
        ("code/runs/Nov25_10-10-10_a-host", ""),
        ("runs/Nov25_10-10-10_a-hostLR_0.1/Loss_train", "Loss_train"),
        ("2026-11-25T10:10:10/eval", "eval"),
        ("2026-11-25_10-10/eval", "eval"),
        ("1764065410.25/eval", "eval"),
        ("tasks/worker-1/logs", "worker-1"),
        ("exp1/lr0.1", "exp1/lr0.1"),
        ("Tensorboard/eval_12345678x", "eval_12345678x"),
    ],
)
def test_runs(folder: str, run: str) -> None:
    assert run_of(f"{folder}/events.out.tfevents.1.host".lstrip("/")) == run


def test_files_are_in_the_order_of_their_times() -> None:
    paths = ["work/a/events.out.tfevents.2.h", "work/b/events.out.tfevents.1.h"]
    assert sorted(paths, key=name_order) == paths[::-1]
