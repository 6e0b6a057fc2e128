"""Texts of wire types that no file and no database can hold."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("labels", {"a\ud800": "a"}), ("labels", {"a": "\ud800"}), ("prepare_command", "echo \ud800"),
        ("environment", {"A": "\ud800"}), ("job_args", ["\ud800"]), ("job_args", "\ud800"),
    ],
)  # fmt: skip
def test_halves_of_surrogate_pairs_are_refused(field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(InvalidRequest, match=field) as refused:
        TrainJob("linear", "trainer.task", "fds://cloudml/a.tar.gz", **fields)
    assert refused.value.allowed is not None
    assert "Unicode" in refused.value.allowed
