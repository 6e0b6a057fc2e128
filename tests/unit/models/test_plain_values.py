"""Numbers and paths are taken where a program gets text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService


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
    service = ModelService("m", "v1", Path("out/m"), model_args=["--a", 1], environment={"N": 3})  # type: ignore[arg-type,list-item,dict-item]
    assert (service.model_args, service.environment) == (["--a", "1"], {"N": "3"})
    assert service.model_uri == "out/m"


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        ["x"],
        b"x",
        2**70,
        pytest.param(10**5000, id="more digits than Python writes"),
        pytest.param([10**5000], id="such a number in a list"),
    ],
)
def test_other_values_are_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"job_args\[1\]"):
        train_job(job_args=["--a", value])
    with pytest.raises(InvalidRequest, match=r"environment\.A"):
        train_job(environment={"A": value})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: train_job(memory="1G"),
            "TrainJob has no field 'memory'; did you mean memory_limit",
        ),
        (lambda: train_job(max_retry=1), "did you mean max_retries"),
        (lambda: train_job(zzz=1), "TrainJob has no field 'zzz'$"),
        (lambda: ModelService("m", "v1", "fds://b/m", cpus=1), "did you mean cpu_limit"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_field_is_answered_with_the_one_that_is_meant(make: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


def test_a_name_where_a_job_or_a_service_is_meant() -> None:
    client = CloudMlClient("key", "secret", endpoint="http://127.0.0.1:9")
    with pytest.raises(
        TypeError,
        match=r"^a TrainJob is expected, such as TrainJob\(job_name=…, module_name=…, "
        r"trainer_uri=…\); this is of type str$",
    ):
        client.submit_train_job("mnist")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^a ModelService is expected, .* this is of type dict$"):
        client.create_model_service({"model_name": "mnist"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"worker_count": 2.5}, "worker_count is 2.5; allowed is a whole number"),
        ({"cpu_limit": True}, "cpu_limit is True; allowed is a number"),
        ({"framework": 2}, "allowed is a string, in quotes"),
        ({"cluster_spec": {"worker": {"count": 2.5}}}, "worker.count is 2.5; allowed is a whole"),
    ],
)
def test_a_number_of_the_wrong_kind_is_asked_for_as_a_number(
    fields: dict[str, Any], says: str
) -> None:
    document = {"job_name": "a", "module_name": "m", "trainer_uri": "fds://b/t.tar.gz"}
    with pytest.raises(InvalidRequest, match=says):
        codec.decode(TrainJob, document | fields)


def test_arguments_are_texts_and_numbers_in_files_and_in_python() -> None:
    document = {"job_name": "a", "module_name": "m", "trainer_uri": "fds://b/t.tar.gz"}
    given = ["--lr", 0.1, "-n", 2]
    expected = ["--lr", "0.1", "-n", "2"]
    assert codec.decode(TrainJob, {**document, "job_args": given}).job_args == expected
    assert TrainJob(**document, job_args=given).job_args == expected  # type: ignore[arg-type]
    for wrong in ({"lr": 0.1}, 3):
        for make in (codec.decode, lambda kind, fields: kind(**fields)):
            with pytest.raises(InvalidRequest) as refused:
                make(TrainJob, {**document, "job_args": wrong})
            assert refused.value.message == (
                f"job_args is {wrong}; allowed is a list such as "
                '["--lr", 0.1], or one text such as "--lr 0.1"'
            )
    with pytest.raises(
        InvalidRequest, match=r"job_args\[0\] is True; allowed is a text or a number"
    ):
        TrainJob(**document, job_args=[True])  # type: ignore[arg-type]
