from __future__ import annotations

import re
import tracemalloc
from typing import Any

import click
import pytest

from cloud_ml.cli.admin.quota import set_quota
from cloud_ml.cli.quota.group import update
from cloud_ml.domain import quotas
from cloud_ml.domain.jobs.spec import JobSpec, from_wire
from cloud_ml.domain.quotas import Limits, QuotaSpec
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import InvalidRequest, QuotaExceeded
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.jobs.admission import (
    TaskLimits,
    check_offered,
    check_quota,
    check_tasks,
    fit,
    with_parallel,
)
from support.platform import TRAINER, FewFrameworks

SMALL = Capacity(cpu_millis=2000, memory_bytes=2**30)


def job(**fields: Any) -> TrainJob:
    return TrainJob("linear", "trainer.task", fields.pop("trainer_uri", TRAINER), **fields)


@pytest.mark.parametrize(
    "fields",
    [
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
        {"ps_count": 2, "worker_count": "2"},
        {"cluster_spec": {"worker": {"count": 2}}},
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
        (
            {"cluster_spec": {"worker": {"gpu_type": "v100"}}},
            "cluster_spec.worker.gpu_type",
            "leave it out",
        ),
        ({"worker_spec": {"gpu_type": "v100"}}, "worker_spec.gpu_type", "leave it out"),
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


def test_all_that_the_server_lacks_is_named() -> None:
    spec = from_wire(job(cpu_limit="3", memory_limit="2G", gpu_limit=1))
    with pytest.raises(InvalidRequest) as caught:
        fit(spec, SMALL, gpu_missing="refuse")
    assert caught.value.message == (
        "cpu_limit is 3, more than this server has: at most 2 cores; memory_limit is 2G, more than "
        "this server has: at most 1G; gpu_limit is 1, but no GPU was found on this server"
    )
    assert (caught.value.field, caught.value.value) == ("cpu_limit", "3")
    assert caught.value.allowed == (
        "cpu_limit: at most 2 cores; memory_limit: at most 1G; gpu_limit: 0, or leave it out"
    )


def test_all_that_the_quota_lacks_is_named_with_the_tightest_limits() -> None:
    quota = QuotaSpec(
        train=Limits(cpu_millis=2000, memory_bytes=2**30), total=Limits(cpu_millis=1000)
    )
    with pytest.raises(QuotaExceeded) as caught:
        check_quota(from_wire(job(cpu_limit="3", memory_limit="2G")), quota)
    assert caught.value.message.count("; ") == 2
    assert caught.value.allowed == "cpu_limit: at most 1 core; memory_limit: at most 1G"
    with pytest.raises(QuotaExceeded) as caught:
        check_quota(from_wire(job(cpu_limit="3", memory_limit="1G")), quota)
    assert caught.value.allowed == "at most 1 core"


@pytest.mark.parametrize(
    ("quota", "hint"),
    [
        (
            QuotaSpec(train=Limits(cpu_millis=2000, memory_bytes=2**30)),
            "an owner may apply for more with "
            "'cloudml quota update -t jobs --cpu CORES --memory SIZE'",
        ),
        (
            QuotaSpec(total=Limits(cpu_millis=2000)),
            "an administrator may raise it with 'cloudml admin quota set ORG -t total --cpu CORES'",
        ),
        (
            QuotaSpec(train=Limits(count=0)),
            "an administrator may raise it with 'cloudml admin quota set ORG -t jobs --count COUNT'",
        ),
        (
            QuotaSpec(train=Limits(cpu_millis=2000), total=Limits(memory_bytes=2**30)),
            "an administrator may raise it with 'cloudml admin quota set ORG -t jobs --cpu CORES' "
            "and 'cloudml admin quota set ORG -t total --memory SIZE'",
        ),
    ],
)
def test_the_hint_names_a_command_that_raises_this_limit(quota: QuotaSpec, hint: str) -> None:
    with pytest.raises(QuotaExceeded) as caught:
        check_quota(from_wire(job(cpu_limit="3", memory_limit="2G")), quota)
    assert caught.value.hint == f"see 'cloudml quota list'; {hint}"
    group, usage = _commands(hint)
    known = {name for option in group.params for name in option.opts}
    assert set(re.findall(r"(?<= )--?[a-z]+", usage)) <= known


def _commands(hint: str) -> tuple[click.Command, str]:
    """The command that a hint names, and what is to be typed."""
    usage = hint.split("'")[1]
    return set_quota if "admin quota set" in usage else update, usage


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


@pytest.mark.parametrize(
    ("fields", "refusal", "field", "message"),
    [
        ({"worker_count": 64}, "", "worker_count", "worker_count makes 65 tasks"),
        ({"ps_count": 40, "worker_count": 40}, "", "worker_count", "81 tasks"),
        ({"cluster_spec": {"a": {"count": 65}}}, "", "cluster_spec", "cluster_spec makes 65"),
        ({"worker_count": 1}, "jobs have no network", "worker_count", "but jobs have no network"),
    ],
)
def test_tasks_that_are_too_many_or_alone_are_refused(
    fields: dict[str, Any], refusal: str, field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        check_tasks(from_wire(job(**fields)), TaskLimits(), refusal)
    assert caught.value.field == field


def test_tasks_that_need_more_ports_than_there_are_are_refused() -> None:
    spec = from_wire(job(worker_count=2, recipe="dask"))  # two for each, but one for the client
    check_tasks(spec, TaskLimits(ports=7), "")
    with pytest.raises(InvalidRequest, match="makes 4 tasks that need 7 ports, and there are 6"):
        check_tasks(spec, TaskLimits(ports=6), "")


def test_tasks_that_are_too_many_are_never_listed() -> None:
    """A request of 260 KB had the server make ten million names, for 700 MB."""
    spec = from_wire(job(cluster_spec={f"r{number}": {"count": 1000} for number in range(1000)}))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="makes 1000000 tasks"):
            check_tasks(spec, TaskLimits(), "")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_job_of_one_task_needs_no_network() -> None:
    check_tasks(from_wire(job()), TaskLimits(1), "jobs have no network")


def array_of(array: str, **fields: Any) -> WorkloadSpec:
    return with_parallel(from_wire(job(array=array, **fields)).workload, SMALL, 64)


@pytest.mark.parametrize(
    ("array", "fields", "parallel"),
    [
        ("0-99%8", {}, 8),
        ("0-99%100", {"cpu_limit": "1"}, 100),
        ("0-99", {}, 2),
        ("0-99", {"cpu_limit": "0.5"}, 4),
        ("0-99", {"cpu_limit": "0.01"}, 64),
        ("0-99", {"cpu_limit": "0.5", "memory_limit": "400M"}, 2),
        ("0-99", {"memory_limit": "9G"}, 1),
    ],
)
def test_an_array_runs_as_many_tasks_at_a_time_as_there_is_room_for(
    array: str, fields: dict[str, Any], parallel: int
) -> None:
    assert array_of(array, **fields).parallel == parallel


def test_an_array_needs_room_for_what_lives_at_a_time() -> None:
    """A hundred tasks of 100M on a machine of 1G."""
    spec = from_wire(job(array="0-99%8", memory_limit="100M", cpu_limit="1"))
    check_tasks(spec, TaskLimits(), "jobs have no network")
    fit(spec, SMALL, gpu_missing="refuse")
    amounts = quotas.requested_amounts(spec.workload)
    assert (amounts.cpu_millis, amounts.memory_bytes, amounts.count) == (8000, 800 * 2**20, 1)
    many = from_wire(job(array="0-99%11", memory_limit="100M"))
    with pytest.raises(InvalidRequest, match=r"11 × 100M = 1\.07G"):
        fit(many, SMALL, gpu_missing="refuse")


@pytest.mark.parametrize(
    ("array", "message"),
    [("0-1000", "array has 1001 tasks"), ("0-99%65", "array runs 65 tasks at a time")],
)
def test_an_array_that_is_too_large_is_refused(array: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        check_tasks(from_wire(job(array=array)), TaskLimits(), "")
    assert (caught.value.field, caught.value.value) == ("array", array)


def test_a_gang_is_refused_with_the_sum_of_its_memory() -> None:
    roles = {"ps": {"count": 2, "memory_limit": "300M"}, "worker": {"memory_limit": "600M"}}
    with pytest.raises(InvalidRequest) as caught:
        fit(from_wire(job(cluster_spec=roles)), SMALL, gpu_missing="refuse")
    assert "600M + 2 × 300M = 1.17G" in str(caught.value)


def test_a_gang_that_the_quota_can_never_hold_is_refused_with_the_sum_of_its_memory() -> None:
    gang = from_wire(job(worker_count=5, recipe="cluster", memory_limit="600M"))
    quota = QuotaSpec(train=Limits(memory_bytes=2 * 2**30))
    with pytest.raises(QuotaExceeded) as caught:
        check_quota(gang, quota)
    assert str(caught.value) == (
        "the job can never start: the quota of memory for train jobs: 0B of 2G are used, "
        "the job asks for 2.93G (memory_limit: 5 × 600M = 2.93G)"
    )
    assert caught.value.allowed == "at most 2G"


def elastic(most: int, **fields: Any) -> JobSpec:
    return from_wire(job(worker_count=f"2:{most}", recipe="pytorch", **fields))


def test_of_an_elastic_job_the_least_has_to_fit() -> None:
    spec = elastic(8, memory_limit="500M")
    assert fit(spec, SMALL, gpu_missing="refuse").spec == spec
    with pytest.raises(InvalidRequest, match=r"2 × 600M = 1\.17G"):
        fit(elastic(8, memory_limit="600M"), SMALL, gpu_missing="refuse")
    quota = QuotaSpec(train=Limits(memory_bytes=1000 * 2**20))
    check_quota(spec, quota)
    with pytest.raises(QuotaExceeded, match="the job asks for 1002M"):
        check_quota(elastic(8, memory_limit="501M"), quota)


def test_an_elastic_job_may_not_become_too_large() -> None:
    check_tasks(elastic(64), TaskLimits(), "")
    with pytest.raises(InvalidRequest, match="worker_count makes 65 tasks") as caught:
        check_tasks(elastic(65), TaskLimits(), "")
    assert caught.value.field == "worker_count"
    parsed_job = from_wire(job(elastic={"worker": "2:65"}, recipe="pytorch"))
    with pytest.raises(InvalidRequest, match="elastic makes 65 tasks"):
        check_tasks(parsed_job, TaskLimits(), "")


def test_an_elastic_job_without_the_gpus_that_are_missing_stays_elastic() -> None:
    spec = fit(elastic(8, gpu_limit=1), SMALL, gpu_missing="ignore").spec
    assert [(one.least, one.replicas, one.resources.gpus) for one in spec.workload.roles] == [
        (2, 8, 0)
    ]


def test_tasks_may_share_the_processors() -> None:
    fit(from_wire(job(worker_count=3, cpu_limit="2")), SMALL, gpu_missing="refuse")
    once = Capacity(cpu_millis=2000, memory_bytes=2**30, cpu_overcommit=1.0)
    with pytest.raises(InvalidRequest, match="cpu_limit is 8 for all tasks"):
        fit(from_wire(job(worker_count=3, cpu_limit="2")), once, gpu_missing="refuse")
    with pytest.raises(InvalidRequest, match="cpu_limit is 3"):
        fit(from_wire(job(worker_count=3, cpu_limit="3")), SMALL, gpu_missing="refuse")
