"""Numbers and paths are taken where a program gets text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.model_service import ModelService
from cloud_ml.models.train_job import TrainJob


def train_job(trainer: Any = "slow.py", **fields: Any) -> TrainJob:
    return TrainJob("a", "slow", trainer, **fields)


def test_numbers_and_paths_become_text() -> None:
    job = train_job(
        Path("dir/slow.py"),
        job_args=["--a", 1, 0.5, Path("x")],
        environment={"N": 3, "P": Path("y")},
    )
    assert job.trainer_uri == "dir/slow.py"
    assert job.job_args == ["--a", "1", "0.5", "x"]
    assert job.environment == {"N": "3", "P": "y"}
    service = ModelService("m", "v1", "fds://bucket/m", model_args=["--a", 1], environment={"N": 3})  # type: ignore[list-item,dict-item]
    assert (service.model_args, service.environment) == (["--a", "1"], {"N": "3"})


@pytest.mark.parametrize("value", [True, None, ["x"], b"x", 2**70])
def test_other_values_are_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"job_args\[1\]"):
        train_job(job_args=["--a", value])
    with pytest.raises(InvalidRequest, match=r"environment\.A"):
        train_job(environment={"A": value})
