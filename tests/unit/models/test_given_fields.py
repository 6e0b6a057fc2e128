"""What a client sends says only what its caller said: an earlier server knows no later fields."""

from __future__ import annotations

from cloud_ml.models import codec
from cloud_ml.models.study import NewStudy
from cloud_ml.models.train_job import TrainJob


def test_fields_at_their_default_are_left_out() -> None:
    new = NewStudy(name="n", job={"module_name": "m"}, space={"lr": [1, 2]}, max_trials=3)
    assert codec.encode_given(new) == {
        "name": "n", "job": {"module_name": "m"}, "space": {"lr": [1, 2]}, "max_trials": 3
    }  # fmt: skip
    assert codec.decode(NewStudy, codec.encode_given(new)) == new


def test_a_value_that_is_empty_or_false_and_no_default_is_sent() -> None:
    job = TrainJob("j", "m", "u", job_args=[])
    sent = codec.encode_given(job)
    assert sent["job_args"] == []
    assert "memory_limit" not in sent
