"""A train job as it travels over HTTP: flat, friendly, and compatible with the first generation
of clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.fields import LIMITS_MEANT, names_near
from cloud_ml.models.ignoring import check_patterns
from cloud_ml.models.secret import check_secrets


@dataclass(kw_only=True)
class RoleSpec:
    """How many tasks a role of a distributed job has, and what each of them may use."""

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
        for name in ("count", "replica_count"):
            if getattr(self, name) is not None:
                setattr(
                    self, name, common.check_count(f"{path}.{name}", getattr(self, name), most=1000)
                )
        _validate_resources(self, f"{path}.")


_MEANT = {
    **LIMITS_MEANT,
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
}
"""Fields under the names that other tools have for them."""


@names_near(_MEANT)
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
        job_args: Arguments of the module, as a list or as one string in shell quoting.
        cpu_limit: Cores, such as ``"0.5"``.
        memory_limit: Such as ``"100M"``; what the runtime itself needs is added by the platform.
        gpu_limit: Number of GPUs.
        framework: ``tensorflow``, ``python`` and others; found out from the code when left out.
        framework_version: A release or its beginning, such as ``1`` for TensorFlow 1 code.
        requirements: Packages to install beside those that the code requires, such as
            ``["numpy>=2"]``.
        max_retries: How often a failed attempt is repeated (0 to 100).
        wall_time_limit: The longest one attempt may run, such as ``"2h"``.
        grace_time: How long a stop waits between SIGTERM and SIGKILL, such as ``"2m"``; ``"0s"``
            kills at once. The server's setting applies when it is left out.
        disk_limit: What one attempt may keep in its own folders, such as ``"10G"``; buckets do not
            count.
        output_path: Where the code writes results, such as ``fds://bucket/folder``. It is in
            ``CLOUDML_OUTPUT_PATH``, and passed as ``--output_path`` to a module that defines this
            flag.
        outputs: Patterns of files to keep when the job ends, such as ``["*.pt", "plots/"]``; ``[]``
            keeps none. Without it, every new or changed file is kept.
        secrets: Names of secrets that the job gets, such as
            ``["hf-token", "db-password=DB_PASSWORD"]``: each is the file ``/run/secrets/NAME``, or
            with ``=VARIABLE`` an environment variable.
        rewrite_uris: Hand ``fds://`` arguments and environment values to the code as paths.
        check_uris: Refuse ``fds://`` arguments and environment values whose bucket does not exist.

    Raises:
        InvalidRequest: At construction and by ``validate``; names the field, its value and what is
            allowed.
    """

    job_name: str
    module_name: str
    trainer_uri: str
    job_args: str | list[str] | None = field(default=None, kw_only=True)
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
    max_retries: int = field(default=0, kw_only=True)
    wall_time_limit: str | int | None = field(default=None, kw_only=True)
    grace_time: str | int | None = field(default=None, kw_only=True)
    disk_limit: str | None = field(default=None, kw_only=True)
    outputs: list[str] | None = field(default=None, kw_only=True)
    secrets: list[str] | None = field(default=None, kw_only=True)
    rewrite_uris: bool = field(default=True, kw_only=True)
    check_uris: bool = field(default=True, kw_only=True)

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
        self.job_args = common.as_texts(self.job_args)
        self.environment = common.as_texts(self.environment)
        common.check_text("trainer_uri", self.trainer_uri)
        common.check_arguments("job_args", self.job_args)
        _validate_resources(self, "")
        for name in _TEXT_FIELDS:
            if (value := getattr(self, name)) is not None:
                limit = common.LONGEST_WORD if name in _WORDS else _LONGEST_TEXT
                common.check_text(name, value, limit=limit, allow_empty=True)
        if self.environment is not None:
            common.check_environment("environment", self.environment)
        if self.labels is not None:
            common.check_labels("labels", self.labels)
        if self.requirements is not None:
            common.check_requirements("requirements", self.requirements)
        self._validate_roles()
        if self.fds_bucket:
            common.check_bucket("fds_bucket", self.fds_bucket)
        if self.enable_rank not in (0, 1):
            raise common.refuse("enable_rank", self.enable_rank, "0 or 1")
        self.max_retries = common.check_count("max_retries", self.max_retries, least=0, most=100)
        if self.wall_time_limit is not None:
            self.wall_time_limit = common.check_duration("wall_time_limit", self.wall_time_limit)
        if self.grace_time is not None:
            self.grace_time = common.check_grace("grace_time", self.grace_time)
        if self.disk_limit is not None:
            self.disk_limit = common.check_memory("disk_limit", self.disk_limit)
        if self.outputs is not None:
            check_patterns("outputs", self.outputs)
        if self.secrets is not None:
            check_secrets("secrets", self.secrets, self.environment)

    def arguments(self) -> list[str]:
        """``job_args`` as a list, split as a POSIX shell splits words (nothing is expanded)."""
        return common.arguments(self.job_args)

    def _validate_roles(self) -> None:
        for name in ("ps_count", "worker_count"):
            if getattr(self, name) is not None:
                setattr(self, name, common.check_count(name, getattr(self, name), most=1000))
        for name in ("master_spec", "worker_spec", "ps_spec"):
            if (spec := getattr(self, name)) is not None:
                setattr(self, name, _role(name, spec))
        if self.cluster_spec:
            self.cluster_spec = {
                common.check_name("cluster_spec", role): _role(f"cluster_spec.{role}", spec)
                for role, spec in self.cluster_spec.items()
            }


_LONGEST_TEXT = 4096
_WORDS = frozenset({"framework", "framework_version"})
"""Texts under which records are found."""
_TEXT_FIELDS = (
    "framework",
    "framework_version",
    "docker_image",
    "docker_command",
    "prepare_command",
    "finish_command",
    "output_path",
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


def _validate_resources(owner: TrainJob | RoleSpec, prefix: str) -> None:
    if owner.cpu_limit is not None:
        owner.cpu_limit = common.check_cpu(f"{prefix}cpu_limit", owner.cpu_limit)
    if owner.memory_limit is not None:
        owner.memory_limit = common.check_memory(f"{prefix}memory_limit", owner.memory_limit)
    if owner.gpu_limit is not None:
        owner.gpu_limit = common.check_count(
            f"{prefix}gpu_limit", owner.gpu_limit, least=0, most=1024
        )
