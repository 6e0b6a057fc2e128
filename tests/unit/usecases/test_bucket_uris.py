"""URIs of a job whose bucket does not exist are refused before the job runs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService
from support.platform import TRAINER, Served

BIG = Capacity(64_000, 2**40)
_numbers = itertools.count()


@pytest.fixture
def buckets(served: Served) -> Served:
    """``mnist-data`` is a bucket of the caller, ``mnist-date`` one of somebody else."""
    served.platform.storage.create_bucket(served.member.identity.organisation, "mnist-data")
    served.platform.storage.create_bucket(served.stranger.identity.organisation, "mnist-date")
    return served


def submit(served: Served, **fields: Any) -> list[str]:
    """Submit a job; returns the reasons of its events."""
    options = {"refuse_uris": fields.pop("refuse_uris", True)}
    trainer_uri = fields.pop("trainer_uri", TRAINER)
    job = TrainJob(f"linear-{next(_numbers)}", "trainer.task", trainer_uri, **fields)
    record = served.platform.jobs.submit(served.member.identity, job, BIG, **options)
    return [event.reason for event in served.platform.jobs.events(record)]


@pytest.mark.parametrize(
    ("fields", "field", "begins"),
    [
        (
            {"job_args": ["--out=fds://mnist-dat/x"]},
            "job_args",
            "--out is fds://mnist-dat/x, but there is no bucket",
        ),
        ({"job_args": ["--out", "fds://mnist-dat/x"]}, "job_args", "--out is fds://mnist-dat/x"),
        ({"job_args": "a fds://mnist-dat"}, "job_args", "job_args is fds://mnist-dat"),
        ({"job_args": ["fds://Not_A_Bucket/x"]}, "job_args", "job_args is fds://Not_A_Bucket/x"),
        (
            {"environment": {"OUT": "fds://mnist-dat/"}},
            "environment.OUT",
            "OUT is fds://mnist-dat/",
        ),
        ({"output_path": "fds://mnist-dat/o"}, "output_path", "output_path is fds://mnist-dat/o"),
        ({"model_export_path": "fds://mnist-dat/o"}, "model_export_path", "model_export_path is"),
    ],
)
def test_an_unknown_bucket_is_refused_by_name(
    buckets: Served, fields: dict[str, Any], field: str, begins: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        submit(buckets, **fields)
    assert refused.value.field == field
    assert refused.value.message.startswith(begins)
    assert "--no-check-uris" in (refused.value.hint or "")


def test_what_is_no_whole_uri_is_the_business_of_the_code(buckets: Served) -> None:
    reasons = submit(
        buckets,
        job_args=[
            "--prefix=fds://",
            "see fds://nowhere/x",
            "x=fds://nowhere/x",
            "--in=fds://mnist-data/x",
        ],
        environment={"A": "path=fds://nowhere/x", "B": "fds://mnist-data"},
    )
    assert reasons == ["Submitted"]


def test_foreign_and_missing_buckets_get_the_same_answer(buckets: Served) -> None:
    answers = []
    for bucket in ("mnist-date", "mnist-datf"):
        with pytest.raises(InvalidRequest) as refused:
            submit(buckets, job_args=[f"--out=fds://{bucket}/x"])
        error = refused.value
        answers.append(
            (
                error.message.replace(bucket, "B"),
                error.allowed,
                (error.hint or "").replace(bucket, "B"),
            )
        )
    assert answers[0] == answers[1]
    assert "Did you mean mnist-data?" in answers[0][2]
    assert "mnist-date" not in answers[1][2]


def test_the_check_can_be_left_out(buckets: Served) -> None:
    assert submit(buckets, job_args=["--out=fds://nowhere/x"], check_uris=False) == ["Submitted"]


def test_a_request_of_the_original_wire_gets_an_event(buckets: Served) -> None:
    reasons = submit(buckets, job_args=["--out=fds://nowhere/x"], refuse_uris=False)
    assert reasons == ["Submitted", "UnknownBucket"]


def test_code_that_opens_another_object_store_itself_is_not_checked(buckets: Served) -> None:
    reasons = submit(
        buckets,
        job_args=["fds://nowhere/x"],
        rewrite_uris=False,
        fds_endpoint="https://fds.example.com",
    )
    assert reasons == ["Submitted"]


def test_the_trainer_is_checked_like_the_rest(buckets: Served) -> None:
    for bucket in ("mnist-date", "nowhere"):  # a foreign bucket and none
        with pytest.raises(InvalidRequest) as refused:
            submit(
                buckets,
                trainer_uri=f"fds://{bucket}/t.tar.gz",
                rewrite_uris=False,
                fds_endpoint="https://x.example",
            )
        assert refused.value.field == "trainer_uri"
        assert (
            refused.value.message
            == f"trainer_uri is fds://{bucket}/t.tar.gz, but there is no bucket {bucket}"
        )
    assert submit(buckets, trainer_uri="fds://nowhere/t.tar.gz", check_uris=False) == ["Submitted"]
    assert submit(buckets, trainer_uri="fds://nowhere/t.tar.gz", refuse_uris=False) == [
        "Submitted",
        "UnknownBucket",
    ]
    assert submit(buckets, trainer_uri="https://nowhere.example/t.tar.gz") == ["Submitted"]


def test_the_bucket_of_a_job_or_a_service_gets_similar_names_too(buckets: Served) -> None:
    with pytest.raises(InvalidRequest) as refused:
        submit(buckets, fds_bucket="mnist-dat")
    assert refused.value.hint == (
        "Did you mean mnist-data? If the name is free, make it: cloudml storage mb mnist-dat."
    )
    service = ModelService("mnist", "v1", "fds://mnist-dat/model")
    with pytest.raises(InvalidRequest) as refused:
        buckets.platform.services.create(buckets.member.identity, service)
    assert "Did you mean mnist-data?" in (refused.value.hint or "")
