"""A model service as it travels over HTTP: flat, friendly, and compatible with the first
generation of clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from cloud_ml.models import common
from cloud_ml.models.fields import LIMIT_ALIASES, names_near
from cloud_ml.models.secrets.secret import check_secrets

VERSION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MOST_REPLICAS = 1000


_ALIASES = {
    **LIMIT_ALIASES,
    "name": "model_name",
    "version": "model_version",
    "uri": "model_uri",
    "model": "model_uri",
    "args": "model_args",
    "timeout": "call_timeout",
    "min_replicas": "replicas",
}
"""Fields under the names that other tools have for them."""


@names_near(_ALIASES)
@dataclass
class ModelService:
    """A trained model that is to answer requests.

    Args:
        model_name: Unique with the version: lower-case letters, digits and ``-``, at most 63.
        model_version: Any short word, such as ``v1``. What it serves are the numbered versions
            below ``model_uri``.
        model_uri: ``fds://bucket/folder`` with one folder for each number (``1``, ``2``…), which
            holds the model; the SDK and the CLI also take a local path, which they upload.
        model_args: Further flags of the model server, as a list or as one string in shell quoting.
        replicas: Number of replicas.
        max_replicas: With a number above ``replicas``, more are started while requests pile up, up
            to this many.
        idle_scale_down: With a duration, such as ``"30m"``, all but one replica end after so long
            without a request.
        cpu_limit: Cores of each replica, such as ``"0.5"``.
        memory_limit: Of each replica, such as ``"500M"``; what the runtime itself needs is added by
            the platform.
        framework: ``tensorflow``, ``pytorch`` and others; found out from the files when left out.
        call_timeout: How long a call may take that names no deadline, such as ``"2m"``; 30 s over
            HTTP when left out.
        secrets: Names of secrets that each replica gets, as in ``TrainJob``.
        access: ``key``: who calls needs a key of the organisation; ``open``: whoever reaches the
            port may call.
        save_mode: Keep it without running it.

    Raises:
        InvalidRequest: At construction and by ``validate``; names the field, its value and what is
            allowed.
    """

    model_name: str
    model_version: str
    model_uri: str
    model_args: str | list[str] | None = field(default=None, kw_only=True)
    replicas: int | str = field(default=1, kw_only=True)
    max_replicas: int | str | None = field(default=None, kw_only=True)
    idle_scale_down: str | int | None = field(default=None, kw_only=True)
    cpu_limit: str | float | None = field(default=None, kw_only=True)
    memory_limit: str | None = field(default=None, kw_only=True)
    gpu_limit: int | str | None = field(default=None, kw_only=True)
    framework: str | None = field(default=None, kw_only=True)
    framework_version: str | None = field(default=None, kw_only=True)
    docker_image: str | None = field(default=None, kw_only=True)
    docker_command: str | None = field(default=None, kw_only=True)
    prepare_command: str | None = field(default=None, kw_only=True)
    finish_command: str | None = field(default=None, kw_only=True)
    environment: dict[str, str] | None = field(default=None, kw_only=True)
    labels: dict[str, str] | None = field(default=None, kw_only=True)
    fds_endpoint: str | None = field(default=None, kw_only=True)
    fds_bucket: str | None = field(default=None, kw_only=True)
    node_selector_key: str | None = field(default=None, kw_only=True)
    node_selector_value: str | None = field(default=None, kw_only=True)
    debug: int | None = field(default=None, kw_only=True)
    tensorflow_service_http: bool | None = field(default=None, kw_only=True)
    service_schema: str | None = field(default=None, kw_only=True)
    use_seldon: Any = field(default=None, kw_only=True)
    engine_cpu: str | None = field(default=None, kw_only=True)
    engine_mem: str | None = field(default=None, kw_only=True)
    run_class_name: str | None = field(default=None, kw_only=True)
    initial_delay_sec: str | None = field(default=None, kw_only=True)
    pod_replicas: str | None = field(default=None, kw_only=True)
    call_timeout: str | int | None = field(default=None, kw_only=True)
    secrets: list[str] | None = field(default=None, kw_only=True)
    access: str = field(default="key", kw_only=True)
    enable_rank: int = field(default=0, kw_only=True)
    save_mode: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Check every field and bring values into their canonical form.

        Raises:
            InvalidRequest: The first field that is wrong.
        """
        common.check_name("model_name", self.model_name)
        if not isinstance(self.model_version, str) or not VERSION.fullmatch(self.model_version):
            raise common.refuse(
                "model_version", self.model_version, "letters, digits, '.', '_' and '-', at most 63"
            )
        self.model_uri = common.as_text(self.model_uri)
        if "://" in common.check_text("model_uri", self.model_uri):
            common.parse_object_uri("model_uri", self.model_uri)
        self.model_args = common.as_texts(self.model_args)
        self.environment = common.as_texts(self.environment)
        common.check_arguments("model_args", self.model_args)
        self._validate_replicas()
        common.convert_fields(self, _DURATIONS)
        common.convert_fields(self, common.RESOURCE_LIMITS)
        common.check_fields(self, _TEXT_CHECKS)
        if self.environment is not None:
            common.check_environment("environment", self.environment)
        if self.secrets is not None:
            check_secrets("secrets", self.secrets, self.environment)
        if self.labels is not None:
            common.check_labels("labels", self.labels)
        if self.fds_bucket:
            common.check_bucket("fds_bucket", self.fds_bucket)
        if self.access not in ("key", "open"):
            raise common.refuse("access", self.access, "key or open")
        if self.enable_rank not in (0, 1):
            raise common.refuse("enable_rank", self.enable_rank, "0 or 1")

    def _validate_replicas(self) -> None:
        self.replicas = common.check_count("replicas", self.replicas, most=_MOST_REPLICAS)
        if self.max_replicas is None:
            return
        self.max_replicas = common.check_count(
            "max_replicas", self.max_replicas, most=_MOST_REPLICAS
        )
        if self.max_replicas < self.replicas:
            raise common.refuse(
                "max_replicas", self.max_replicas, f"replicas ({self.replicas}) or more"
            )

    def arguments(self) -> list[str]:
        """``model_args`` as a list, split as a POSIX shell splits words (nothing is expanded)."""
        return common.arguments(self.model_args)


_WORDS = frozenset({"framework", "framework_version"})
"""Texts under which records are found."""
_TEXT_FIELDS = (
    "framework",
    "framework_version",
    "docker_image",
    "docker_command",
    "prepare_command",
    "finish_command",
    "fds_endpoint",
    "node_selector_key",
    "node_selector_value",
    "service_schema",
    "engine_cpu",
    "engine_mem",
    "run_class_name",
    "initial_delay_sec",
    "pod_replicas",
)
_TEXT_CHECKS = common.text_checks(_TEXT_FIELDS, words=_WORDS)
_DURATIONS = {"idle_scale_down": common.check_duration, "call_timeout": common.check_duration}
