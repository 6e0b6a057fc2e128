"""The options of ``models create`` that become fields of a service, by the names of both
generations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from cloud_ml.cli.completion.candidates import files, framework_names
from cloud_ml.cli.options.base import FieldOptions, Option

F = TypeVar("F", bound=Callable[..., Any])


_ALIASES: Mapping[str, Sequence[str]] = {
    "replicas": ("--num-replicas",),
    "cpu_limit": ("--cpus", "--cpu"),
    "memory_limit": ("--memory", "--mem"),
    "gpu_limit": ("--gpus", "--gpu"),
}
NOT_OFFERED = frozenset(
    {
        "docker_image",
        "docker_command",
        "node_selector_key",
        "node_selector_value",
        "use_seldon",
        "engine_cpu",
        "engine_mem",
        "run_class_name",
        "service_schema",
        "initial_delay_sec",
        "pod_replicas",
        "debug",
    }
)
"""Options that this server refuses or that change nothing. ``--help`` leaves them out,
``--help-all`` shows them.
"""


_options = FieldOptions(_ALIASES, NOT_OFFERED)
_text, _flag = _options.text, _options.flag


CHANGED_LATER: tuple[Option, ...] = (
    _text(
        "-u",
        "--model_uri",
        metavar="URI",
        shell_complete=files,
        help="The model: fds://bucket/folder with numbered versions, or a local file or "
        "folder to upload.",
    ),
    _text(
        "-a", "--model_args", metavar="ARGS", help="Further flags of the model server, as one text."
    ),
    _text("-r", "--replicas", metavar="N", help="Number of replicas."),
    _text("--max_replicas", metavar="N", help="Add replicas under load, up to this number."),
    _text(
        "--idle_scale_down",
        metavar="TIME",
        help="Keep one replica after this time without a request, such as 30m.",
    ),
    _text(
        "--call_timeout",
        metavar="TIME",
        help="How long a call may take, such as 2m. Default: 30s over HTTP.",
    ),
    _text("-c", "--cpu_limit", metavar="CORES", help="CPU limit of each replica, such as 0.5."),
    _text(
        "-M", "--memory_limit", metavar="SIZE", help="Memory limit of each replica, such as 500M."
    ),
    _text("-g", "--gpu_limit", metavar="N", help="GPUs of each replica."),
    _text(
        "-F",
        "--framework",
        metavar="NAME",
        shell_complete=framework_names,
        help="Such as tensorflow; detected from the files by default.",
    ),
    _text(
        "-V",
        "--framework_version",
        metavar="VERSION",
        help="A release or its beginning, such as 2.16.",
    ),
    Option(
        ["--secret", "secrets"],
        metavar="NAME[=VARIABLE]",
        multiple=True,
        help="Give each replica a secret, as the file /run/secrets/NAME or as a variable. "
        "Repeat for several.",
    ),
    _text(
        "--access",
        metavar="WHO",
        type=click.Choice(["key", "open"]),
        help="key: callers need a key of the organisation; open: anybody who reaches the port "
        "may call.",
    ),
)
"""What ``models update`` changes."""

MADE_WITH: tuple[Option, ...] = (
    _text("-d", "--docker_image", metavar="IMAGE", help="Run in this image."),
    _text("-dc", "--docker_command", metavar="COMMAND", help="Run this command in the image."),
    _text(
        "-pc",
        "--prepare_command",
        metavar="COMMAND",
        help="Shell command to run before the model server.",
    ),
    _text("-fc", "--finish_command", metavar="COMMAND", help="Shell command to run after it."),
    _text("-fe", "--fds_endpoint", metavar="URL", help="Object store of the model."),
    _text("-fb", "--fds_bucket", metavar="BUCKET", help="Bucket that replicas see at /fds."),
    _text("-nsk", "--node_selector_key", metavar="KEY", help="Run on machines with this label…"),
    _text("-nsv", "--node_selector_value", metavar="VALUE", help="…of this value."),
    _flag("--use_seldon", help="Serve with Seldon."),
    _text("--engine_cpu", metavar="CORES", help="Cores of Seldon's engine."),
    _text("--engine_memory", "engine_mem", metavar="SIZE", help="Memory of Seldon's engine."),
    _text("--run_class_name", metavar="NAME", help="Class that Seldon runs."),
    _text("--service_schema", metavar="KIND", help="REST or GRPC; every service answers both."),
    _text(
        "--initial_delay_sec", metavar="SECONDS", help="Wait of a health check; it is not needed."
    ),
    _text("--pod_replicas", metavar="N", help="Replicas of Seldon's pods."),
    _flag("--debug", help="Kept for old scripts; changes nothing."),
    _flag("--use_http", "tensorflow_service_http", help="Answer HTTP, too; every service does."),
    _flag("-R", "--enable_rank", help="High priority."),
    _flag("-sv", "--save_mode", help="Keep the service without starting it; see `models start`."),
)
"""What only ``models create`` and ``models deploy`` take."""

_FIELDS = {option.name for option in (*CHANGED_LATER, *MADE_WITH)}


def change_options(command: F) -> F:
    """Add what may be changed of a service to a command."""
    return _add(command, CHANGED_LATER)


def service_options(command: F) -> F:
    """Add every field of a service to a command, but for its name and version."""
    return _add(command, (*CHANGED_LATER, *MADE_WITH))


def given_fields(parameters: dict[str, Any]) -> dict[str, Any]:
    """The fields among a command's parameters that the user has set."""
    fields = {
        name: value
        for name, value in parameters.items()
        if name in _FIELDS and value not in (None, False, ())
    }
    if "secrets" in fields:
        fields["secrets"] = list(fields["secrets"])
    for flag in ("enable_rank", "debug"):
        if fields.get(flag):
            fields[flag] = 1
    return fields


def _add(command: F, options: tuple[Option, ...]) -> F:
    for option in reversed(options):
        command.__dict__.setdefault("__click_params__", []).append(option)
    return command
