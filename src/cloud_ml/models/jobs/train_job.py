"""A train job as it travels over HTTP: flat, friendly, and compatible with the first generation
of clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec, common
from cloud_ml.models.fields import LIMIT_ALIASES, names_near
from cloud_ml.models.jobs import restart as restarts
from cloud_ml.models.jobs.checkpoints import CheckpointPolicy, checkpoint_policy
from cloud_ml.models.jobs.elastic import check_elastic, check_tasks
from cloud_ml.models.jobs.git import check_git
from cloud_ml.models.jobs.metric_patterns import check_metric_patterns
from cloud_ml.models.jobs.recipes import check_recipe
from cloud_ml.models.jobs.restart import Restart
from cloud_ml.models.jobs.task_arrays import MOST_TASKS, task_array
from cloud_ml.models.paths.ignoring import check_patterns
from cloud_ml.models.secrets.secret import check_secrets


@dataclass(kw_only=True)
class RoleSpec:
    """How many tasks a role of a job of several tasks has, and what each of them may use."""

    count: int | str | None = None
    replica_count: int | None = None
    cpu_limit: str | float | None = None
    memory_limit: str | None = None
    gpu_limit: int | str | None = None
    gpu_type: str | None = None
    task_args: str | None = None

    @property
    def replicas(self) -> int:
        """The number of tasks, under either of the two names that it has on the wire."""
        return int(self.count if self.count is not None else self.replica_count or 1)

    def validate(self, path: str) -> None:
        """Check every field; errors are prefixed with ``path``."""
        common.convert_fields(self, _ROLE_COUNTS, f"{path}.")
        common.convert_fields(self, common.RESOURCE_LIMITS, f"{path}.")
        common.check_arguments(f"{path}.task_args", self.task_args)


FIELD_ALIASES = {
    **LIMIT_ALIASES,
    "name": "job_name",
    "module": "module_name",
    "script": "trainer_uri",
    "trainer": "trainer_uri",
    "args": "job_args",
    "disk": "disk_limit",
    "environment_variables": "environment",
    "image": "framework",
    "timeout": "wall_time_limit",
    "retries": "max_retries",
    "pip": "requirements",
    "packages": "requirements",
    "workers": "worker_count",
    "num_workers": "worker_count",
    "num_nodes": "worker_count",
    "nproc_per_node": "worker_count",
    "replicas": "worker_count",
    "restart_policy": "restart",
    "memory_factor": "restart",
    "memory_most": "restart",
    "keep_checkpoints": "checkpoint",
    "restartPolicy": "restart",
    "backoffLimit": "max_retries",
    "workdir": "trainer_uri",
    "working_dir": "trainer_uri",
    "entrypoint": "module_name",
    "setup": "prepare_command",
    "accelerators": "gpu_limit",
}
"""Fields under the names that other tools have for them."""


@names_near(FIELD_ALIASES)
@dataclass
class TrainJob:
    """What a user wants trained.

    The three positional arguments name the job, the module to run and the package that holds it.
    Everything else may be given by keyword or assigned later; ``validate`` runs at construction and
    again before the job is sent.

    Args:
        job_name: Unique in the organisation: lower-case letters, digits and ``-``, at most 63.
        module_name: Run as ``python -m module_name``.
        trainer_uri: ``fds://bucket/path`` of a package (sdist, wheel, zip); the SDK and the CLI
            also take a local path, which they pack and upload.
        job_args: Arguments of the module, as a list of texts and numbers or as one text in shell
            quoting: ``["--lr", 0.1]``, ``"--lr 0.1"``.
        cpu_limit: Cores, such as ``"0.5"``.
        memory_limit: Such as ``"100M"``; what the runtime itself needs is added by the platform.
        gpu_limit: Number of GPUs.
        framework: ``tensorflow``, ``python`` and others; found out from the code when left out.
        framework_version: A release or its beginning, such as ``1`` for TensorFlow 1 code.
        requirements: Packages to install beside those that the code requires, such as
            ``["numpy>=2"]``.
        max_retries: How often a failed attempt is repeated (0 to 100). By default 3 for a job of
            several tasks, else 0.
        task_retries: How often single tasks of a job of several start again while the others run
            on (0 to 100, all of them and all attempts together). By default 10 where the framework can go on from
            that, else 0.
        restore_from: What to go on from at first: another job, or the ``fds://`` URI of a
            checkpoint. It is in ``CLOUDML_RESTORE_FROM``.
        checkpoint: Which of the checkpoints that the code reports are kept, such as
            ``{"keep": 3}``. By default, all are. One that another job or a service refers to is
            never removed. Or the folder for them, such as ``{"path": "fds://bucket/folder"}``.
        restart: After which failures the job starts again, such as
            ``Restart(policy="ExitCode", rules=[RestartRule(exit_codes=[3], action="fail")])``.
        wall_time_limit: The longest one attempt may run, such as ``"2h"``.
        hang_timeout: End the job, or start it again, if it gives no sign of life for so long, such
            as ``"10m"``: no output, no reported progress, and no processor time.
        grace_time: How long a stop waits between SIGTERM and SIGKILL, such as ``"2m"``; ``"0s"``
            kills at once. The server's setting applies when it is left out.
        disk_limit: What one attempt may keep in its own folders, such as ``"10G"``; buckets do not
            count.
        output_path: Where the code writes results, such as ``fds://bucket/folder``. It is in
            ``CLOUDML_OUTPUT_PATH``, and passed as ``--output_path`` to a module that defines this
            flag.
        outputs: Patterns of files to keep when the job ends, such as ``["*.pt", "plots/"]``; ``[]``
            keeps none. Without it, every new or changed file is kept.
        metric_patterns: How metrics are found in the log: names of ready patterns (``epoch``,
            ``json``, ``keras``, ``lightgbm``, ``lightning``, ``xgboost``, ``metric:NAME``) or RE2
            patterns with a group for each metric, such as ``["loss=(?P<loss>.*)"]``.
        secrets: Names of secrets that the job gets, such as
            ``["hf-token", "db-password=DB_PASSWORD"]``: each is the file ``/run/secrets/NAME``, or
            with ``=VARIABLE`` an environment variable.
        procs_per_task: With PyTorch, so many processes of ``torchrun`` in each task; 1 by default.
        cluster_arguments: Pass the cluster to each task of several as arguments too, as scripts of
            TensorFlow 1 read it: ``--ps_hosts --worker_hosts --master_hosts --job_name
            --task_index``.
        rewrite_uris: Hand ``fds://`` arguments and environment values to the code as paths.
        check_uris: Refuse ``fds://`` arguments and environment values whose bucket does not exist.
        ps_count: Parameter servers of a job of several tasks.
        worker_count: Its workers. TensorFlow has one ``master`` beside them; for every other recipe
            this is the number of tasks. Without ``framework`` and ``recipe``, local code that
            imports PyTorch, JAX, XGBoost or LightGBM, and not TensorFlow, tells the recipe.
            ``"2:8"`` starts as many of them as there is room for.
        cluster_spec: All roles instead, such as ``{"worker": RoleSpec(count=4)}``, each with its
            own limits and arguments.
        elastic: Roles that have as many tasks as there is room for, such as
            ``{"worker": {"min": 2, "max": 8}, "every_s": 600}``. The job becomes larger after a
            new checkpoint, at most every ``every_s`` seconds; 600 by default.
        recipe: What the tasks are told about each other: ``tensorflow``, ``pytorch``, ``jax``,
            ``xgboost``, ``lightgbm``, ``dask``, ``mpi``, or ``cluster`` for names and ports only.
            Found out from the framework when left out; ``dask`` and ``mpi`` are not.
        array: Indexes of tasks that know no other, such as ``"0-99%8"``: a hundred, of which eight
            run at a time. Each finds its own in ``CLOUDML_ARRAY_INDEX``.
        max_failed: How many tasks of an array may fail without failing the job; 0 by default.
        git: The commit, branch, remote and changes of the code's folder. The SDK and the CLI find
            them out when they send the code; ``False`` leaves them out.

    Raises:
        InvalidRequest: At construction and by ``validate``; names the field, its value and what is
            allowed.
    """

    job_name: str
    module_name: str
    trainer_uri: str
    job_args: str | list[str] | None = field(
        default=None, kw_only=True, metadata={codec.PREPARE: common.arguments_as_texts}
    )
    cpu_limit: str | float | None = field(default=None, kw_only=True)
    memory_limit: str | None = field(default=None, kw_only=True)
    gpu_limit: int | str | None = field(default=None, kw_only=True)
    gpu_type: str | None = field(default=None, kw_only=True)
    framework: str | None = field(default=None, kw_only=True)
    framework_version: str | None = field(default=None, kw_only=True)
    docker_image: str | None = field(default=None, kw_only=True)
    docker_command: str | None = field(default=None, kw_only=True)
    requirements: list[str] | None = field(default=None, kw_only=True)
    prepare_command: str | None = field(default=None, kw_only=True)
    finish_command: str | None = field(default=None, kw_only=True)
    environment: dict[str, str] | None = field(default=None, kw_only=True)
    labels: dict[str, str] | None = field(default=None, kw_only=True)
    output_path: str | None = field(default=None, kw_only=True)
    ps_count: int | str | None = field(default=None, kw_only=True)
    worker_count: int | str | None = field(default=None, kw_only=True)
    cluster_spec: dict[str, RoleSpec] | None = field(default=None, kw_only=True)
    master_spec: RoleSpec | None = field(default=None, kw_only=True)
    worker_spec: RoleSpec | None = field(default=None, kw_only=True)
    ps_spec: RoleSpec | None = field(default=None, kw_only=True)
    elastic: dict[str, Any] | None = field(default=None, kw_only=True)
    recipe: str | None = field(default=None, kw_only=True)
    array: str | None = field(default=None, kw_only=True)
    max_failed: int | None = field(default=None, kw_only=True)
    fds_endpoint: str | None = field(default=None, kw_only=True)
    fds_bucket: str | None = field(default=None, kw_only=True)
    hdfs_krb_account: str | None = field(default=None, kw_only=True)
    hdfs_krb_password: str | None = field(default=None, kw_only=True)
    hdfs_krb_keytab: str | None = field(default=None, kw_only=True)
    hdfs_endpoint: str | None = field(default=None, kw_only=True)
    volume_type: str | None = field(default=None, kw_only=True)
    volume_path: str | None = field(default=None, kw_only=True)
    mount_path: str | None = field(default=None, kw_only=True)
    mount_read_only: bool | None = field(default=None, kw_only=True)
    node_selector_key: str | None = field(default=None, kw_only=True)
    node_selector_value: str | None = field(default=None, kw_only=True)
    model_input_path: str | None = field(default=None, kw_only=True)
    model_export_path: str | None = field(default=None, kw_only=True)
    data_input_path: str | None = field(default=None, kw_only=True)
    data_output_path: str | None = field(default=None, kw_only=True)
    log_path: str | None = field(default=None, kw_only=True)
    tensorboard_logdir: str | None = field(default=None, kw_only=True)
    model_name: str | None = field(default=None, kw_only=True)
    model_version: str | None = field(default=None, kw_only=True)
    pipeline_id: Any = field(default=None, kw_only=True)
    hyperparameters: dict[str, Any] | None = field(default=None, kw_only=True)
    enable_rank: int = field(default=0, kw_only=True)
    save_mode: bool = field(default=False, kw_only=True)
    max_retries: int | None = field(default=None, kw_only=True)
    task_retries: int | None = field(default=None, kw_only=True)
    restart: Restart | None = field(default=None, kw_only=True)
    restore_from: str | None = field(default=None, kw_only=True)
    checkpoint: CheckpointPolicy | None = field(default=None, kw_only=True)
    wall_time_limit: str | int | None = field(default=None, kw_only=True)
    hang_timeout: str | int | None = field(default=None, kw_only=True)
    grace_time: str | int | None = field(default=None, kw_only=True)
    disk_limit: str | None = field(default=None, kw_only=True)
    outputs: list[str] | None = field(default=None, kw_only=True)
    metric_patterns: list[str] | None = field(default=None, kw_only=True)
    secrets: list[str] | None = field(default=None, kw_only=True)
    procs_per_task: int | str | None = field(default=None, kw_only=True)
    cluster_arguments: bool = field(default=False, kw_only=True)
    rewrite_uris: bool = field(default=True, kw_only=True)
    check_uris: bool = field(default=True, kw_only=True)
    git: dict[str, Any] | bool | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check every field and bring values into their canonical form.

        Raises:
            InvalidRequest: The first field that is wrong.
        """
        common.check_name("job_name", self.job_name)
        common.check_module("module_name", self.module_name)
        self.trainer_uri = common.as_text(self.trainer_uri)
        self.job_args = common.arguments_as_texts("job_args", self.job_args)
        self.environment = common.as_texts(self.environment)
        common.check_text("trainer_uri", self.trainer_uri)
        common.check_arguments("job_args", self.job_args)
        common.convert_fields(self, common.RESOURCE_LIMITS)
        common.check_fields(self, _TEXT_CHECKS)
        if self.recipe:
            check_recipe("recipe", self.recipe)
        common.check_fields(self, _COLLECTION_CHECKS)
        self._validate_roles()
        if self.fds_bucket:
            common.check_bucket("fds_bucket", self.fds_bucket)
        if self.enable_rank not in (0, 1):
            raise common.refuse("enable_rank", self.enable_rank, "0 or 1")
        common.convert_fields(self, _POLICIES_AND_LIMITS)
        common.check_fields(self, _PATTERN_CHECKS)
        if self.secrets is not None:
            check_secrets("secrets", self.secrets, self.environment)
        if self.git is not None:
            self.git = check_git("git", self.git) if isinstance(self.git, dict) else False

    def arguments(self) -> list[str]:
        """``job_args`` as a list, split as a POSIX shell splits words (nothing is expanded)."""
        return common.arguments(self.job_args)

    def _validate_roles(self) -> None:
        common.convert_fields(self, _TASK_COUNTS)
        if self.array is not None:
            task_array("array", self.array)
        common.convert_fields(self, _ROLES)
        if self.cluster_spec:
            self.cluster_spec = {
                common.check_name("cluster_spec", role): _role(f"cluster_spec.{role}", spec)
                for role, spec in self.cluster_spec.items()
            }


_MOST_PROCESSES = 64
"""Of one task."""
_WORDS = frozenset({"framework", "framework_version", "recipe"})
"""Texts under which records are found."""
_TEXT_FIELDS = (
    "recipe",
    "framework",
    "framework_version",
    "docker_image",
    "docker_command",
    "prepare_command",
    "finish_command",
    "output_path",
    "restore_from",
    "fds_endpoint",
    "hdfs_krb_account",
    "hdfs_krb_password",
    "hdfs_krb_keytab",
    "hdfs_endpoint",
    "volume_type",
    "volume_path",
    "mount_path",
    "node_selector_key",
    "node_selector_value",
    "model_input_path",
    "model_export_path",
    "data_input_path",
    "data_output_path",
    "log_path",
    "tensorboard_logdir",
    "model_name",
    "model_version",
)


def _role(path: str, spec: Any) -> RoleSpec:
    """A role as it was given: ready, or as a plain dictionary, also one that was assigned later."""
    if isinstance(spec, dict):
        known = RoleSpec.__dataclass_fields__
        if unknown := next((name for name in spec if name not in known), None):
            raise InvalidRequest(
                f"{path}.{unknown} is not a known field",
                field=f"{path}.{unknown}",
                value=spec[unknown],
                allowed="one of " + ", ".join(known),
            )
        spec = RoleSpec(**spec)
    if not isinstance(spec, RoleSpec):
        raise common.refuse(path, spec, 'an object such as {"count": 1}')
    spec.validate(path)
    return spec


_check_tasks_of_role = partial(common.check_count, most=1000)
_check_retries = partial(common.check_count, least=0, most=100)

_ROLE_COUNTS = {"count": _check_tasks_of_role, "replica_count": _check_tasks_of_role}
_TASK_COUNTS: common.Converters = {
    "worker_count": check_tasks,
    "ps_count": _check_tasks_of_role,
    "procs_per_task": partial(common.check_count, most=_MOST_PROCESSES),
    "elastic": check_elastic,
    "max_failed": partial(common.check_count, least=0, most=MOST_TASKS),
}
_ROLES = {"master_spec": _role, "worker_spec": _role, "ps_spec": _role}
_TEXT_CHECKS = common.text_checks(_TEXT_FIELDS, words=_WORDS)
_COLLECTION_CHECKS = {
    "environment": common.check_environment,
    "labels": common.check_labels,
    "requirements": common.check_requirements,
}
_POLICIES_AND_LIMITS: common.Converters = {
    "max_retries": _check_retries,
    "task_retries": _check_retries,
    "restart": restarts.restart,
    "checkpoint": checkpoint_policy,
    "wall_time_limit": common.check_duration,
    "hang_timeout": common.check_duration,
    "grace_time": common.check_grace,
    "disk_limit": common.check_memory,
}
_PATTERN_CHECKS = {"outputs": check_patterns, "metric_patterns": check_metric_patterns}
