"""What a client sends says only what its caller said: an earlier server knows no later fields."""

from __future__ import annotations

from cloud_ml.models import codec
from cloud_ml.models.jobs.checkpoints import CheckpointPolicy
from cloud_ml.models.jobs.restart import Restart, RestartRule
from cloud_ml.models.jobs.train_job import RoleSpec, TrainJob
from cloud_ml.models.studies.study import NewStudy


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


def test_fields_within_that_say_nothing_are_left_out() -> None:
    rules = [RestartRule(exit_codes=[3], action="fail")]
    job = TrainJob(
        "j", "m", "u",
        checkpoint=CheckpointPolicy(keep=3), restart=Restart(rules=rules),
        cluster_spec={"ps": RoleSpec(count=2)}, environment={"EMPTY": ""},
    )  # fmt: skip
    sent = codec.encode_given(job)
    assert sent["checkpoint"] == {"keep": 3}
    assert sent["restart"] == {"rules": [{"exit_codes": [3], "action": "fail"}]}
    assert sent["cluster_spec"] == {"ps": {"count": 2}}
    assert sent["environment"] == {"EMPTY": ""}
    assert codec.decode(TrainJob, sent) == job
