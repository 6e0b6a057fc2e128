from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.clones import clone_job, with_arguments
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.clone import JobClone
from cloud_ml.models.jobs.train_job import TrainJob


@pytest.mark.parametrize(
    ("words", "changes", "expected"),
    [
        ("--lr=0.3 --epochs 2", {"lr": 0.1}, "--lr=0.1 --epochs 2"),
        ("--lr 0.3 --epochs 2", {"lr": 0.1}, "--lr 0.1 --epochs 2"),
        ("-lr 0.3", {"lr": "0.1"}, "-lr 0.1"),
        ("--lr -0.3 x", {"lr": -0.1}, "--lr=-0.1 x"),
        ("--epochs 2", {"lr": 0.1}, "--epochs 2 --lr=0.1"),
        ("", {"--lr": 0.1}, "--lr=0.1"),
        ("--lr=1 --lr=2", {"lr": 3}, "--lr=1 --lr=3"),
        ("--lr=1 --lr 2 x", {"lr": None}, "x"),
        ("a -- --lr=1", {"lr": 2}, "a --lr=2 -- --lr=1"),
        ("--fast --lr 1", {"fast": True}, "--fast --lr 1"),
        ("--fast --lr 1", {"fast": False}, "--lr 1"),
        ("--fast", {"fast": "slow"}, "--fast=slow"),
        ("--name= x", {"name": "b"}, "--name=b x"),
        ("--lrate 1", {"lr": 2}, "--lrate 1 --lr=2"),
        ("--fast -- x", {"fast": "slow"}, "--fast=slow -- x"),
    ],
)
def test_flags_keep_their_form(words: str, changes: dict[str, Any], expected: str) -> None:
    assert " ".join(with_arguments(words.split(), changes)) == expected


def job(**fields: Any) -> TrainJob:
    return TrainJob("first", "trainer.task", "fds://b/t.tar.gz", **fields)


def test_a_flag_that_stands_there_very_often_is_removed_at_once() -> None:
    words = ["--x", "1", "--y"] * 5000
    assert with_arguments(words, {"x": None}) == ["--y"] * 5000
    assert with_arguments(["--x", "--x", "1", "a"], {"x": None}) == ["a"]
    assert with_arguments(["--x=1", "--", "--x"], {"x": None}) == ["--", "--x"]


def test_a_copy_differs_only_in_what_is_named() -> None:
    first = job(job_args="--lr 1 --token=abc", environment={"A": "1", "B": "2"}, save_mode=True)
    copy = clone_job(
        first,
        JobClone(
            job_name="second",
            arguments={"lr": 2},
            environment={"B": None, "C": 3},
            fields={"memory_limit": "2G"},
        ),
    )
    assert copy.arguments() == ["--lr", "2", "--token=abc"]
    assert copy.environment == {"A": "1", "C": "3"}
    assert (copy.job_name, copy.memory_limit, copy.trainer_uri) == (
        "second",
        "2G",
        first.trainer_uri,
    )
    assert not copy.save_mode
    assert clone_job(first, JobClone(job_name="third")).job_args == first.job_args


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"job_name": "Bad Name"}, "job_name"),
        ({"arguments": {"a b": 1}}, "arguments.a b"),
        ({"arguments": {"--": 1}}, "arguments.--"),
        ({"arguments": {"lr": [1]}}, "arguments.lr"),
        ({"environment": {"A": {}}}, "environment.A"),
        ({"fields": {"memory": "2G"}}, "fields.memory"),
        ({"fields": {"job_name": "x"}}, "fields.job_name"),
        ({"fields": {"memory_limit": "lots"}}, "memory_limit"),
        ({"arguments": {"lr": None}}, "arguments.lr"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        clone = JobClone(**({"job_name": "second"} | fields))
        clone.validate()
        clone_job(job(), clone)
    assert refused.value.field == field


def test_a_copy_changes_parameters_in_the_file_of_a_job() -> None:
    text = '{"lr": 0.3, "name": "a", "cache": true, "layers": 2}'
    job = TrainJob(
        "a", "m", "fds://b/t.whl", job_args="--x 1", environment={"CLOUDML_PARAMETERS": text}
    )
    changes = {"lr": "0.1", "--name": "7", "cache": False, "layers": None, "x": 2, "new": 3}
    copy = clone_job(job, JobClone(job_name="b", arguments=changes))
    assert copy.environment == {"CLOUDML_PARAMETERS": '{"lr": 0.1, "name": "7", "cache": false}'}
    assert copy.job_args == ["--x", "2", "--new=3"]


def test_a_flag_that_is_not_there_is_not_left_out_silently() -> None:
    first = job(job_args="--rate 1 --epochs=2 -- --late")
    with pytest.raises(InvalidRequest, match="there is no argument --rates to leave out") as no:
        clone_job(first, JobClone(job_name="second", arguments={"--rates": None, "epochs": None}))
    assert (no.value.allowed, no.value.hint) == ("--rate, --epochs", "Did you mean --rate?")
    with pytest.raises(InvalidRequest, match="no argument --late"):
        clone_job(first, JobClone(job_name="second", arguments={"late": None}))
