"""What ``cloudml storage rb --force`` says of services and jobs that need the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Forbidden

if TYPE_CHECKING:
    from unit.cli.conftest import Run

URIS = {"digits": "fds://data/m", "other": "fds://data2/m", "local": "/models/m"}


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three services, one of them from the bucket, and seven queued jobs with code in it."""

    def services(_: CloudMlClient, *, limit: int) -> Iterator[object]:
        del limit
        return (SimpleNamespace(name=name, version="v1") for name in URIS)

    def service(_: CloudMlClient, name: str, version: str) -> object:
        del version
        return SimpleNamespace(spec={"model_uri": URIS[name]})

    def jobs(_: CloudMlClient, *, state: str, limit: int) -> Iterator[object]:
        assert (state, limit) == ("Queued", 50)
        return (SimpleNamespace(name=f"q{number}") for number in range(7))

    def job(_: CloudMlClient, name: str) -> object:
        del name
        return SimpleNamespace(spec={"trainer_uri": "fds://data/t.tar.gz"})

    monkeypatch.setattr(CloudMlClient, "list_model_services", services)
    monkeypatch.setattr(CloudMlClient, "describe_model_service", service)
    monkeypatch.setattr(CloudMlClient, "list_train_jobs", jobs)
    monkeypatch.setattr(CloudMlClient, "describe_train_job", job)


def test_who_needs_the_bucket_is_named_before_it_goes(run: Run) -> None:
    run("storage", "mb", "data")
    result = run("storage", "rb", "--force", "--yes", "data")
    assert result.stdout == "removed fds://data\n"
    assert result.stderr == (
        "Model services load their model from this bucket: digits v1.\n"
        "Queued jobs have their code in this bucket: q0, q1, q2, q3, q4 and 2 more.\n"
    )


def test_who_needs_the_objects_is_named_before_a_bucket_is_emptied(run: Run) -> None:
    run("storage", "mb", "data")
    assert "digits v1" in run("storage", "rm", "-r", "--yes", "fds://data/").stderr
    assert "digits v1" not in run("storage", "rm", "-r", "fds://data/folder/").stderr


def test_nothing_is_said_without_force_and_of_other_buckets(run: Run) -> None:
    for words in (["mine"], ["--force", "--yes", "mine"]):
        run("storage", "mb", "mine")
        assert run("storage", "rb", *words).stderr == ""


def test_a_caller_who_may_not_see_jobs_still_removes_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: CloudMlClient, **__: object) -> None:
        raise Forbidden("the token has no scope jobs:read")

    monkeypatch.setattr(CloudMlClient, "list_train_jobs", refuse)
    run("storage", "mb", "data")
    result = run("storage", "rb", "--force", "--yes", "fds://data/")
    assert (result.exit_code, result.stdout) == (0, "removed fds://data\n")
    assert "digits v1" in result.stderr
