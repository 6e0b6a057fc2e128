"""The plans of jobs of several tasks: what each of them is told about the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import Gang, GangKey, TrainerSource
from cloud_ml.errors import InvalidRequest
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.choosing import RECIPES
from support.jobs import spec_of


def planned_gang(ip: str = "", **fields: Any) -> Gang:
    workload = spec_of(**fields).workload
    ports = tuple(range(20_000, 20_000 + workload.port_count))
    context = PlanContext(
        key=GangKey("u1", 2),
        org="default",
        tenant=7,
        job_name="linear",
        places=JobPaths(
            "/storage",
            "/fds",
            {name: name for name in workload.tasks},
            addresses=dict.fromkeys(workload.tasks, ip) if ip else {},
        ),
        mounts=(),
        trainer=TrainerSource("0f" * 32, "t.tar.gz"),
        network="tenant",
        ports=ports,
    )
    return RECIPES[workload.recipe].plan(workload, context)


def gang_of(*, runtime: str = "tensorflow 2.21", **fields: Any) -> Gang | None:
    return planned_gang(**fields).for_runtime(runtime)


def made(**fields: Any) -> Gang:
    gang = gang_of(**fields)
    assert gang is not None
    return gang


def environments(gang: Gang) -> dict[str, dict[str, str]]:
    """The variables of each task."""
    return {plan.name: dict(plan.environment) for plan in gang.processes}


def tf_config(variables: dict[str, str]) -> tuple[dict[str, list[str]], tuple[str, int]]:
    config = json.loads(variables["TF_CONFIG"])
    return config["cluster"], (config["task"]["type"], config["task"]["index"])


def test_every_task_knows_itself_and_all_others() -> None:
    gang = made(worker_count=2, recipe="cluster")
    one = environments(gang)["worker-1"]
    assert (one["CLOUDML_ROLE"], one["CLOUDML_INDEX"]) == ("worker", "1")
    assert json.loads(one["CLOUDML_CLUSTER"]) == {"worker": ["worker-0:20000", "worker-1:20001"]}
    assert (one["CLOUDML_PORT"], one["CLOUDML_TASK_RESTART"]) == ("20001", "0")
    assert [plan.ports for plan in gang.processes] == [(20000,), (20001,)]
    assert gang.completes == ("worker-0", "worker-1")


def test_a_cluster_with_a_chief_is_complete_when_that_ends() -> None:
    roles: dict[str, Any] = {"worker": {"count": 2}, "chief": {}, "ps": {}, "evaluator": {}}
    gang = made(cluster_spec=roles, recipe="cluster")
    assert gang.completes == ("chief-0",)
    cluster = json.loads(environments(gang)["ps-0"]["CLOUDML_CLUSTER"])
    assert sorted(cluster) == ["chief", "ps", "worker"]  # an evaluator is in no cluster


def test_arguments_of_the_role_follow_those_of_the_job() -> None:
    roles = {"worker": {"task_args": "--shard auto"}}
    (worker,) = made(cluster_spec=roles, job_args="--epochs 3", recipe="cluster").processes
    assert worker.command[3:] == ("--epochs", "3", "--shard", "auto")


def test_torchrun_starts_several_processes_in_each_task() -> None:
    gang = made(worker_count=2, framework="pytorch", procs_per_task=4, job_args="--epochs 3",
                runtime="pytorch 2.13")  # fmt: skip
    assert [plan.command for plan in gang.processes] == [
        ("python", "-m", "torch.distributed.run", "-m", "trainer.task", "--epochs", "3")
    ] * 2
    one = environments(gang)["worker-1"]
    assert (one["PET_NNODES"], one["PET_NODE_RANK"], one["PET_NPROC_PER_NODE"]) == ("2", "1", "4")


@pytest.mark.parametrize("fields", [{}, {"worker_count": 2, "recipe": "jax"}, {"worker_count": 2}])
def test_other_recipes_have_one_process_for_each_task(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="procs_per_task is 2, but ") as refused:
        spec_of(**fields, procs_per_task=2)
    assert refused.value.field == "procs_per_task"


@pytest.mark.parametrize("count", [0, 65, "x", True])
def test_a_task_has_a_number_of_processes(count: Any) -> None:
    with pytest.raises(InvalidRequest, match="procs_per_task"):
        spec_of(worker_count=2, framework="pytorch", procs_per_task=count)


@pytest.mark.parametrize("recipe", [None, "tensorflow", "cluster"])
def test_the_cluster_is_in_the_arguments_of_those_who_ask_for_it(recipe: str | None) -> None:
    roles = {"ps": {"count": 1}, "worker": {"count": 2}, "evaluator": {"count": 1}}
    gang = made(cluster_spec=roles, job_args="--epochs 3", recipe=recipe, cluster_arguments=True)
    found = {plan.name: plan.command[3:] for plan in gang.processes}
    hosts = ("--worker_hosts=worker-0:20000,worker-1:20001", "--ps_hosts=ps-0:20002")
    own = {name: ("--job_name=" + name[:-2], "--task_index=" + name[-1]) for name in found}
    assert found == {name: (*hosts, *own[name], "--epochs", "3") for name in found}


@pytest.mark.parametrize(
    "fields",
    [{}, {"array": "0-3"}, {"recipe": "dask", "worker_count": 2}, {"recipe": "mpi", "worker_count": 2}],
)  # fmt: skip
def test_where_no_task_could_read_them_arguments_of_the_cluster_are_refused(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequest, match="cluster_arguments is true, but ") as refused:
        spec_of(**fields, cluster_arguments=True)
    assert refused.value.field == "cluster_arguments"


def test_tensorflow_1_reads_the_configuration_of_the_original_wire() -> None:
    gang = made(ps_count=2, worker_count=2, runtime="tensorflow 1")
    cluster, task = tf_config(environments(gang)["worker-1"])
    assert cluster == {
        "master": ["master-0:20000"],
        "worker": ["worker-0:20001", "worker-1:20002"],
        "ps": ["ps-0:20003", "ps-1:20004"],
    }
    assert task == ("worker", 1)
    assert tf_config(environments(gang)["master-0"])[1] == ("master", 0)
    assert gang.completes == ("master-0",)
    assert "GRPC_FAIL_FAST" not in environments(gang)["master-0"]


def test_tensorflow_2_has_a_chief_in_the_place_of_the_master() -> None:
    gang = made(ps_count=1, worker_count=1)
    cluster, task = tf_config(environments(gang)["master-0"])
    assert sorted(cluster) == ["chief", "ps", "worker"]
    assert task == ("chief", 0)
    assert environments(gang)["worker-0"]["GRPC_FAIL_FAST"] == "use_caller"
    assert gang.completes == ("master-0",)


@pytest.mark.parametrize(
    "runtime", ["pytorch 2.13", "xgboost 3.0", "lightgbm 4.6", "jax 0.7", "keras 3-torch"]
)
def test_only_tensorflow_is_taken_for_code_that_asks_for_parameter_servers(runtime: str) -> None:
    planned, name = planned_gang(ps_count=1, worker_count=1), runtime.partition(" ")[0]
    assert planned.for_runtime(runtime) is None
    assert f"parameter servers, and {name} knows none" in planned.recipe_refusal(runtime)


@pytest.mark.parametrize("runtime", ["tensorflow 2.21", "keras 3", "python 3.12", ""])
def test_code_of_no_other_framework_may_ask_for_parameter_servers(runtime: str) -> None:
    gang = planned_gang(ps_count=1, worker_count=1).for_runtime(runtime)
    assert gang is not None
    assert "TF_CONFIG" in environments(gang)["ps-0"]


def test_equal_workers_of_tensorflow_2_all_end() -> None:
    gang = made(worker_count=2, framework="tensorflow")
    assert gang.completes == ("master-0", "worker-0", "worker-1")
    lone = made(cluster_spec={"worker": {"count": 2}}, framework="tensorflow")
    assert tf_config(environments(lone)["worker-0"])[0] == {
        "worker": ["worker-0:20000", "worker-1:20001"]
    }


def test_tensorflow_1_without_a_master_waits_for_its_first_worker() -> None:
    roles = {"ps": {}, "worker": {"count": 2}}
    gang = made(cluster_spec=roles, framework="tensorflow", runtime="tensorflow 1")
    assert gang.completes == ("worker-0",)


def test_pytorch_has_ranks_over_all_tasks() -> None:
    gang = made(worker_count=2, framework="pytorch", runtime="pytorch 2.13")
    one = environments(gang)["worker-1"]
    assert (one["RANK"], one["WORLD_SIZE"], one["LOCAL_RANK"]) == ("1", "2", "0")
    assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == ("worker-0", "20000")
    assert (one["PET_NNODES"], one["PET_NODE_RANK"]) == ("2", "1")
    assert (one["GROUP_RANK"], one["LOCAL_WORLD_SIZE"]) == ("1", "1")
    assert (one["PET_MASTER_ADDR"], one["PET_MASTER_PORT"]) == ("worker-0", "20000")
    assert one["GLOO_SOCKET_IFNAME"] == "lo"
    assert one["TORCHELASTIC_RUN_ID"] == gang.key.job_uid
    assert one["TORCHELASTIC_RESTART_COUNT"] == str(gang.key.attempt - 1)
    assert "TORCHELASTIC_USE_AGENT_STORE" not in one
    assert gang.completes == ("worker-0", "worker-1")


def test_jax_has_a_coordinator() -> None:
    one = environments(made(worker_count=2, framework="jax", runtime="jax 0.10"))["worker-1"]
    assert one["JAX_COORDINATOR_ADDRESS"] == "worker-0:20000"
    assert (one["JAX_NUM_PROCESSES"], one["JAX_PROCESS_ID"]) == ("2", "1")
    assert one["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == "worker-0:20000"
    keras = ("KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID")
    assert tuple(one[name] for name in keras) == ("2", "1")


def test_xgboost_has_a_tracker_at_its_first_worker() -> None:
    gang = made(worker_count=2, framework="xgboost", runtime="xgboost 3.2")
    one = environments(gang)["worker-1"]
    assert (one["DMLC_TRACKER_URI"], one["DMLC_TRACKER_PORT"]) == ("worker-0", "20000")
    assert (one["DMLC_TASK_ID"], one["DMLC_NUM_WORKER"]) == ("1", "2")
    assert gang.completes == ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("ip", "machines"),
    [
        ("127.0.0.1", "127.0.0.1:20000,127.0.0.1:20001"),
        ("", "worker-0:20000,worker-1:20001"),
    ],
)
def test_lightgbm_has_addresses_where_they_are_known(ip: str, machines: str) -> None:
    roles: dict[str, Any] = {"worker": {"count": 2}, "evaluator": {}}
    gang = made(cluster_spec=roles, framework="lightgbm", runtime="lightgbm 4.7", ip=ip)
    assert environments(gang)["worker-0"]["CLOUDML_MACHINES"] == machines
    assert environments(gang)["worker-1"]["CLOUDML_MACHINES"] == machines
    assert "CLOUDML_MACHINES" not in environments(gang)["evaluator-0"]
    assert gang.completes == ("worker-0", "worker-1")


def test_dask_has_a_scheduler_and_workers_beside_the_module() -> None:
    gang = made(worker_count=2, recipe="dask", cpu_limit="1.5", memory_limit="300M", job_args="-x")
    client, scheduler, _, worker = gang.processes
    assert client.command == ("python", "-m", "trainer.task", "-x")
    assert " ".join(scheduler.command) == (
        "python -m distributed.cli.dask_scheduler --host scheduler-0 --port 20001 "
        "--dashboard-address scheduler-0:20002 --no-dashboard"
    )
    assert " ".join(worker.command) == (
        "python -m distributed.cli.dask_worker tcp://scheduler-0:20001 --host worker-1 "
        "--worker-port 20005 --name worker-1 --dashboard-address worker-1:20006 --no-dashboard "
        "--no-nanny --nthreads 2 --memory-limit 314572800"
    )
    assert [plan.ports for plan in gang.processes] == [
        (20_000,), (20_001, 20_002), (20_003, 20_004), (20_005, 20_006)
    ]  # fmt: skip
    addresses = {variables["DASK_SCHEDULER_ADDRESS"] for variables in environments(gang).values()}
    assert addresses == {"tcp://scheduler-0:20001"}
    levels = [one.environment.get("DASK_LOGGING__DISTRIBUTED") for one in gang.processes]
    assert levels == [None, "warning", "warning", "warning"]
    assert gang.completes == ("client-0",)
    assert gang.restarts == TaskRestarts(("worker-0", "worker-1"), 10)
    assert gang.environment.requires == ("distributed",)
    assert gang.stopped_last == ("scheduler-0",)
    assert gang.idle_cores == 0.03


def test_users_choose_what_dask_logs() -> None:
    level = {"DASK_LOGGING__DISTRIBUTED": "info"}
    gang = made(worker_count=1, recipe="dask", environment=level)
    assert {one.environment["DASK_LOGGING__DISTRIBUTED"] for one in gang.processes} == {"info"}


def test_dask_without_limits_decides_by_itself() -> None:
    roles: dict[str, Any] = {"worker": {"task_args": "--resources GPU=1"}}
    (_, _, worker) = made(cluster_spec=roles, recipe="dask").processes
    assert worker.command[-3:] == ("--no-nanny", "--resources", "GPU=1")


def test_mpi_has_a_launcher_that_starts_the_module_in_the_workers() -> None:
    gang = made(worker_count=2, recipe="mpi", job_args="-x")
    launcher, _, worker = gang.processes
    assert " ".join(launcher.command) == "python -m cloud_ml_mpi launch 2 -m trainer.task -x"
    assert " ".join(worker.command) == "python -m cloud_ml_mpi work"
    assert [len(plan.ports) for plan in gang.processes] == [3, 4, 4]
    variables = environments(gang)
    daemons = {one["PRTE_MCA_oob_tcp_dynamic_ipv4_ports"] for one in variables.values()}
    assert daemons == {"20001,20004,20008"}
    assert variables["worker-1"]["PMIX_MCA_ptl_base_ipv4_port"] == "20009"
    assert variables["worker-1"]["OMPI_MCA_btl_tcp_port_min_v4"] == "20010"
    assert variables["worker-1"]["OMPI_MCA_btl_tcp_if_include"] == "lo"
    # The launcher's would hold for the workers, too.
    assert "PMIX_MCA_ptl_base_ipv4_port" not in variables["launcher-0"]
    assert (gang.completes, gang.launcher) == (("launcher-0",), "launcher-0")
    assert gang.restarts == TaskRestarts()
    assert gang.environment.requires == ("openmpi>=5", "mpi4py")


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"task_retries": 2}, "task_retries", 2),
        (
            {"restart": {"rules": [{"exit_codes": [3], "action": "restart-task"}]}},
            "restart.rules",
            "restart-task",
        ),
    ],
)
def test_no_task_of_mpi_starts_again_alone(
    fields: dict[str, Any], field: str, value: object
) -> None:
    RECIPES["mpi"].check(spec_of(recipe="mpi", worker_count=2, task_retries=0).workload)
    with pytest.raises(InvalidRequest, match=f"{field} is {value}") as caught:
        RECIPES["mpi"].check(spec_of(recipe="mpi", worker_count=2, **fields).workload)
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize("recipe", ["dask", "mpi"])
@pytest.mark.parametrize(
    ("fields", "field", "value", "allowed"),
    [
        ({}, "worker_count", 0, "1 or more"),
        ({"cluster_spec": {"evaluator": {}}}, "worker_count", 0, "1 or more"),
        ({"worker_count": 2, "ps_count": 3}, "ps_count", 3, "leave it out"),
        ({"cluster_spec": {"worker": {}, "wrker": {}}}, "cluster_spec", "wrker", "worker; at most"),
        ({"worker_count": 1, "master_spec": {}}, "cluster_spec", "master", "worker; at most"),
    ],
)
def test_roles_of_recipes_with_roles_of_their_own(
    recipe: str, fields: dict[str, Any], field: str, value: object, allowed: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RECIPES[recipe].check(spec_of(recipe=recipe, **fields).workload)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert allowed in (caught.value.allowed or "")


@pytest.mark.parametrize(
    ("recipe", "single"), [("dask", "scheduler"), ("dask", "client"), ("mpi", "launcher")]
)
def test_single_tasks_are_not_several(recipe: str, single: str) -> None:
    roles: dict[str, Any] = {"worker": {}, single: {"count": 2}}
    with pytest.raises(InvalidRequest, match=f"has one {single}") as caught:
        RECIPES[recipe].check(spec_of(recipe=recipe, cluster_spec=roles).workload)
    assert (caught.value.field, caught.value.value) == (f"cluster_spec.{single}.count", 2)


@pytest.mark.parametrize(
    ("recipe", "size"),
    [("pytorch", "WORLD_SIZE"), ("jax", "JAX_NUM_PROCESSES"), ("xgboost", "DMLC_NUM_WORKER")],
)
def test_an_evaluator_is_not_counted(recipe: str, size: str) -> None:
    gang = made(cluster_spec={"evaluator": {}, "worker": {"count": 2}}, recipe=recipe)
    assert environments(gang)["worker-1"][size] == "2"
    assert size not in environments(gang)["evaluator-0"]


@pytest.mark.parametrize(
    ("runtime", "variable"),
    [
        ("tensorflow 2.21", "TF_CONFIG"),
        ("tensorflow 1", "TF_CONFIG"),
        ("keras 3", "TF_CONFIG"),
        ("pytorch 2.13", "MASTER_ADDR"),
        ("keras 3-torch", "MASTER_ADDR"),
        ("jax 0.10", "JAX_PROCESS_ID"),
        ("keras 3-jax", "JAX_PROCESS_ID"),
        ("xgboost 3.2", "DMLC_TASK_ID"),
        ("lightgbm 4.7", "CLOUDML_MACHINES"),
    ],
)
def test_what_the_code_uses_decides_where_nothing_is_named(runtime: str, variable: str) -> None:
    first = environments(made(worker_count=1, runtime=runtime))["master-0"]
    known = {"TF_CONFIG", "MASTER_ADDR", "JAX_PROCESS_ID", "DMLC_TASK_ID", "CLOUDML_MACHINES"}
    chosen = known & set(first)
    assert chosen == {variable}


@pytest.mark.parametrize("runtime", ["python 3.11", "scikit-learn 1.9", "tensorflowx 1", ""])
def test_code_of_another_framework_has_no_variant(runtime: str) -> None:
    assert gang_of(worker_count=1, runtime=runtime) is None


def test_a_named_recipe_fits_every_runtime() -> None:
    assert (
        "RANK"
        in environments(made(worker_count=1, recipe="pytorch", runtime="python 3.11"))["worker-0"]
    )


def test_the_variables_of_the_user_win() -> None:
    gang = made(worker_count=1, framework="pytorch", environment={"MASTER_PORT": "1"})
    assert environments(gang)["worker-0"]["MASTER_PORT"] == "1"


@pytest.mark.parametrize(
    ("fields", "runtime", "able"),
    [
        ({"ps_count": 1, "worker_count": 1}, "tensorflow 1", "master-0 worker-0 ps-0"),
        ({"ps_count": 1, "worker_count": 1}, "tensorflow 2.21", "worker-0"),
        ({"worker_count": 1}, "tensorflow 2.21", ""),
        ({"worker_count": 2, "framework": "pytorch"}, "pytorch 2.13", ""),
        ({"worker_count": 2, "recipe": "cluster"}, "python 3.11", ""),
    ],
)
def test_tasks_start_again_where_the_framework_goes_on(
    fields: dict[str, Any], runtime: str, able: str
) -> None:
    restarts = made(runtime=runtime, **fields).restarts
    assert " ".join(restarts.tasks) == able
    assert restarts.most == (10 if able else 0)


@pytest.mark.parametrize("recipe", ["cluster", "pytorch", "tensorflow"])
def test_what_the_user_says_about_restarts_holds_for_every_task(recipe: str) -> None:
    gang = made(cluster_spec={"worker": {"count": 2}}, recipe=recipe, task_retries=3)
    assert gang.restarts == TaskRestarts(("worker-0", "worker-1"), 3)
    none = made(cluster_spec={"worker": {"count": 2}, "ps": {}}, recipe=recipe, task_retries=0)
    assert none.restarts == TaskRestarts()


@pytest.mark.parametrize("recipe", ["pytorch", "jax", "xgboost", "lightgbm"])
def test_parameter_servers_are_refused_where_the_framework_knows_none(recipe: str) -> None:
    workload = spec_of(worker_count=1, ps_count=2, recipe=recipe).workload
    with pytest.raises(InvalidRequest, match=f"parameter servers, but recipe {recipe}") as caught:
        RECIPES[recipe].check(workload)
    assert caught.value.field == "ps_count"


@pytest.mark.parametrize("recipe", ["tensorflow", "cluster"])
def test_parameter_servers_are_taken_elsewhere(recipe: str) -> None:
    RECIPES[recipe].check(spec_of(worker_count=1, ps_count=2, recipe=recipe).workload)


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ({"wrker": {"count": 2}}, "'wrker' is no role of TensorFlow"),
        ({"master": {"count": 2}, "worker": {}}, "TensorFlow has one master"),
        ({"master": {}, "chief": {}}, "TensorFlow has one master or chief"),
        ({"ps": {"count": 2}}, "no task that trains, only ps"),
    ],
)
def test_roles_that_tensorflow_could_not_use_are_refused(roles: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        RECIPES["tensorflow"].check(spec_of(cluster_spec=roles, recipe="tensorflow").workload)
    assert caught.value.field == "cluster_spec"
    RECIPES["cluster"].check(spec_of(cluster_spec=roles, recipe="cluster").workload)


def test_roles_of_tensorflow_are_taken() -> None:
    roles: dict[str, Any] = {"chief": {}, "worker": {"count": 2}, "ps": {"count": 2}}
    for more in ({}, {"evaluator": {}}):
        spec = spec_of(cluster_spec=roles | more, recipe="tensorflow")
        RECIPES["tensorflow"].check(spec.workload)
    RECIPES["tensorflow"].check(spec_of(recipe="tensorflow").workload)
