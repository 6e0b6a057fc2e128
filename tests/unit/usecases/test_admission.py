from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.train_job import TrainJob
from cloud_ml.usecases.jobs.admission import check_offered, fit
from support.platform import TRAINER, FewFrameworks

SMALL = Capacity(cpu_millis=2000, memory_bytes=2**30)


def job(**fields: Any) -> TrainJob:
    return TrainJob("linear", "trainer.task", fields.pop("trainer_uri", TRAINER), **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"ps_count": 2},
        {"worker_count": "2"},
        {"cluster_spec": {"worker": {"count": 2}}},
        {"worker_spec": {"replica_count": 1}},
        {"ps_spec": {"count": 1}},
        {"docker_image": "python:3.11"},
        {"docker_command": "python"},
        {"hdfs_krb_account": "me"},
        {"hdfs_endpoint": "hdfs://there"},
        {"hdfs_krb_password": "s3cret"},
        {"volume_type": "ceph"},
        {"mount_read_only": True},
        {"node_selector_key": "disk"},
        {"gpu_type": "v100"},
        {"hyperparameters": {"goal": "MINIMIZE"}},
        {"tensorboard_logdir": "/log"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_the_server_cannot_do_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_offered(job(**fields), FewFrameworks())
    assert caught.value.field == next(iter(fields))
    assert "s3cret" not in str(caught.value.document())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"docker_image": "", "mount_read_only": False, "cluster_spec": {}},
        {"master_spec": {"replica_count": 1}},
        {"framework": "tensorflow"},
        {"framework": "tensorflow", "framework_version": "1"},
        {"model_input_path": "/data", "log_path": "/log", "fds_endpoint": "http://fds"},
    ],
)
def test_what_it_can_do_passes(fields: dict[str, Any]) -> None:
    check_offered(job(**fields), FewFrameworks())


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"framework": "caffe"}, "framework", "python, tensorflow"),
        ({"framework": "tensorflow", "framework_version": "3"}, "framework_version", "2.21, 1"),
        ({"master_spec": {"replica_count": 2}}, "master_spec.replica_count", "1"),
        (
            {"master_spec": {"count": 1, "cpu_limit": "1"}},
            "master_spec.cpu_limit",
            "of the job itself",
        ),
        ({"trainer_uri": "/home/me/trainer"}, "trainer_uri", "fds://"),
        (
            {"trainer_uri": "s3://bucket/t.tar.gz"},
            "trainer_uri",
            "fds://bucket/path or https://host/path",
        ),
        (
            {"trainer_uri": "file:///etc/passwd"},
            "trainer_uri",
            "fds://bucket/path or https://host/path",
        ),
        ({"trainer_uri": "http://me:secret@example.com/t"}, "trainer_uri", "without them"),
        ({"trainer_uri": "http:///t"}, "trainer_uri", "a URL"),
        ({"trainer_uri": "http://host:port/t"}, "trainer_uri", "a URL"),
        ({"trainer_uri": "https://host/a b"}, "trainer_uri", "a URL"),
        ({"trainer_uri": "https://host/t#sha256=1"}, "trainer_uri", "#sha256="),
        ({"trainer_uri": "git+https://me:secret@example.com/r"}, "trainer_uri", "without them"),
        (
            {"trainer_uri": "git+https://host/r@--upload-pack=x"},
            "trainer_uri",
            "a branch, tag or commit",
        ),
        ({"trainer_uri": "git+https://host/r@a..b"}, "trainer_uri", "a branch, tag or commit"),
        ({"trainer_uri": "git+https://host/r#subdirectory=../x"}, "trainer_uri", "and a folder"),
        ({"trainer_uri": "git+https://host/r#egg=x"}, "trainer_uri", "and a folder"),
        ({"trainer_uri": "git+https://host"}, "trainer_uri", "git+https://host/path"),
        ({"trainer_uri": "git+ssh://git@host/r"}, "trainer_uri", "git+https://host/path@REF"),
        ({"trainer_uri": "fds://cloudml"}, "trainer_uri", "with a path"),
        ({"trainer_uri": "fds://cloudml/../etc/passwd"}, "trainer_uri", "'..'"),
    ],
)
def test_a_refusal_names_what_is_allowed(fields: dict[str, Any], field: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_offered(job(**fields), FewFrameworks())
    assert caught.value.field == field
    assert allowed in (caught.value.allowed or "")


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"cpu_limit": "2.5"}, "at most 2 cores"),
        ({"memory_limit": "1.01G"}, "at most 1G"),
        ({"gpu_limit": 1}, "0, or leave it out"),
    ],
)
def test_what_could_never_start_is_refused(fields: dict[str, Any], allowed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        fit(from_wire(job(**fields)), SMALL, gpu_missing="refuse")
    assert caught.value.field == next(iter(fields))
    assert caught.value.value == next(iter(fields.values()))
    assert allowed in (caught.value.allowed or "")


def test_what_fits_exactly_is_taken() -> None:
    spec = from_wire(job(cpu_limit="2", memory_limit="1G"))
    assert fit(spec, SMALL, gpu_missing="refuse").spec == spec


def test_too_many_gpus_are_refused_even_when_missing_ones_are_ignored() -> None:
    with pytest.raises(InvalidRequest, match="at most 1 GPUs"):
        fit(from_wire(job(gpu_limit=2)), Capacity(2000, 2**30, gpus=1), gpu_missing="ignore")


def test_the_operator_may_have_missing_gpus_ignored() -> None:
    admitted = fit(from_wire(job(gpu_limit=1)), SMALL, gpu_missing="ignore")
    assert [role.resources.gpus for role in admitted.spec.workload.roles] == [0]
    assert admitted.spec.submitted.gpu_limit == 1
    assert "gpu_limit 1 was ignored" in admitted.notes[0]


@pytest.mark.parametrize("name", ["cloudml-service", "cloudml-template", "cloudml-"])
def test_labels_of_the_platform_are_refused(name: str) -> None:
    """A train job with the label of a replica was treated as a server: it ended only when it was
    stopped.
    """
    with pytest.raises(InvalidRequest, match="reserved") as caught:
        check_offered(job(labels={"team": "a", name: "x"}), FewFrameworks())
    assert (caught.value.field, caught.value.value) == ("labels", name)
    check_offered(job(labels={"cloudml": "x", "my-cloudml-service": "x"}), FewFrameworks())


@pytest.mark.parametrize(
    "uri", ["https://me:pass/word@h/r", "git+https://me:pass/word@h/r", "git+https://me:pass#w@h/r"]
)
def test_a_password_that_makes_a_url_unreadable_is_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_offered(job(trainer_uri=uri), FewFrameworks())
    assert "pass" not in str(caught.value)
    assert "pass" not in str(caught.value.value)
