"""The options of ``jobs submit`` that become fields of the job, by the names of both generations.

Every option stands for the field whose name is its first long name, unless a parameter name says
otherwise. A parameter that is ``None`` (or an unset flag) leaves the field to the job file or the
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from cloud_ml.cli.completing import files, framework_names
from cloud_ml.cli.options import FieldOptions, Option

F = TypeVar("F", bound=Callable[..., Any])

ALIASES: Mapping[str, Sequence[str]] = {
    "job_name": ("--name", "--run-name"),
    "cpu_limit": ("--cpus", "--cpu", "--cpus-per-task", "--num-cpus"),
    "memory_limit": ("--memory", "--mem"),
    "gpu_limit": ("--gpus", "--gpu", "--num-gpus"),
    "grace_time": ("--grace-period", "--stop-timeout"),
    "max_retries": ("--max-retries",),
}
"""Names that other tools give to the option of a field."""
NOT_OFFERED = frozenset(
    {
        "gpu_type",
        "docker_image",
        "docker_command",
        "ps_count",
        "worker_count",
        "cluster_spec",
        "distributed",
        "hdfs_krb_account",
        "hdfs_krb_password",
        "hdfs_krb_keytab",
        "hdfs_endpoint",
        "volume_type",
        "volume_path",
        "mount_path",
        "mount_read_only",
        "node_selector_key",
        "node_selector_value",
        "tensorboard_logdir",
    }
)
"""Options of fields that this server refuses. ``--help`` leaves them out, ``--help-all`` shows
them.
"""


_options = FieldOptions(ALIASES, NOT_OFFERED)
_text, _flag = _options.text, _options.flag


FIELD_OPTIONS: tuple[Option, ...] = (
    _text("-n", "--job_name", metavar="NAME", help="Name of the job; unique in your organisation."),
    _text(
        "-m", "--module_name", metavar="MODULE", help="Python module to run, such as trainer.task."
    ),
    _text(
        "-u",
        "--trainer_uri",
        metavar="URI",
        shell_complete=files,
        help="The code: fds://…, or a local folder or file to upload.",
    ),
    _text(
        "-a",
        "--job_args",
        metavar="ARGS",
        help='Arguments of the module as one text: -a "--epochs 3".',
    ),
    _text("-c", "--cpu_limit", metavar="CORES", help="CPU limit, such as 0.5."),
    _text("-M", "--memory_limit", metavar="SIZE", help="Memory limit, such as 100M or 1.5G."),
    _text("-g", "--gpu_limit", metavar="N", help="Number of GPUs."),
    _text("-gt", "--gpu_type", metavar="TYPE", help="Kind of GPU."),
    _text(
        "-F",
        "--framework",
        metavar="NAME",
        shell_complete=framework_names,
        help="Such as tensorflow; detected from the code by default.",
    ),
    _text(
        "-V",
        "--framework_version",
        metavar="VERSION",
        help="A release or its beginning, such as 1 or 2.16.",
    ),
    _text("-d", "--docker_image", metavar="IMAGE", help="Run in this image."),
    _text("-dc", "--docker_command", metavar="COMMAND", help="Run this command in the image."),
    _text(
        "-pc",
        "--prepare_command",
        metavar="COMMAND",
        help="Shell command to run before the trainer.",
    ),
    _text(
        "-fc", "--finish_command", metavar="COMMAND", help="Shell command to run after the trainer."
    ),
    _text("-p", "--ps_count", metavar="N", help="Distributed: number of parameter servers."),
    _text(
        "-w",
        "--worker_count",
        metavar="N",
        help="Distributed: number of workers; one master is added.",
    ),
    _text("-fe", "--fds_endpoint", metavar="URL", help="Object store of the job."),
    _text("-fb", "--fds_bucket", metavar="BUCKET", help="Bucket that the job sees at /fds."),
    _text("-hka", "--hdfs_krb_account", metavar="ACCOUNT", help="Kerberos account for HDFS."),
    _text(
        "-hkp",
        "--hdfs_krb_password",
        metavar="SECRET",
        envvar="CLOUDML_HDFS_KRB_PASSWORD",
        help="Its password; rather given as CLOUDML_HDFS_KRB_PASSWORD, which others cannot see.",
    ),
    _text("-hkt", "--hdfs_krb_keytab", metavar="KEYTAB", help="Its keytab, instead of a password."),
    _text(
        "-he", "--hdfs_endpoint", metavar="URL", help="HDFS that the job sees at /hdfs: hdfs://…"
    ),
    _text("-vt", "--volume_type", metavar="TYPE", help="Kind of a further volume."),
    _text("-vp", "--volume_path", metavar="PATH", help="Where the volume comes from."),
    _text("-mp", "--mount_path", metavar="PATH", help="Where the job sees the volume."),
    _flag("-mro", "--mount_read_only", help="The job cannot write to the volume."),
    _text("-nsk", "--node_selector_key", metavar="KEY", help="Run on machines with this label…"),
    _text("-nsv", "--node_selector_value", metavar="VALUE", help="…of this value."),
    _text(
        "-tl", "--tensorboard_logdir", metavar="PATH", help="TensorBoard to start after the job."
    ),
    _text(
        "-mn",
        "--model_name",
        metavar="NAME",
        help="Serve what the job exports when it has succeeded, as NAME…",
    ),
    _text("-mv", "--model_version", metavar="VERSION", help="…in this version."),
    _text(
        "--model_export_path",
        metavar="URI",
        help="Where the job leaves its model, if no argument says so.",
    ),
    _flag("-R", "--enable_rank", help="High priority."),
    _flag("-sv", "--save_mode", help="Keep the job without starting it; see `jobs start`."),
    _flag(
        "--no-check-uris", help="Accept fds:// arguments and variables whose bucket does not exist."
    ),
    Option(
        ["--outputs"],
        metavar="PATTERN",
        multiple=True,
        help="Save only these files when the job ends, such as '*.pt' or 'plots/'. "
        "Repeat for several.",
    ),
    _flag("--no-outputs", "no_outputs", help="Save no files when the job ends."),
    Option(
        ["--secret", "secrets"],
        metavar="NAME[=VARIABLE]",
        multiple=True,
        help="Give the job a secret, as the file /run/secrets/NAME or as a variable. "
        "Repeat for several.",
    ),
    _text(
        "--output_path",
        metavar="URI",
        help="Where your code writes results: sets CLOUDML_OUTPUT_PATH, and --output_path if "
        "your code has it.",
    ),
    _text(
        "--retries",
        "max_retries",
        metavar="N",
        type=click.IntRange(0, 100),
        help="Repeats of a failed attempt.",
    ),
    _text(
        "--disk-limit",
        "disk_limit",
        metavar="SIZE",
        help="What an attempt may keep on disk, such as 10G.",
    ),
    _text(
        "--grace",
        "grace_time",
        metavar="TIME",
        help="Time between SIGTERM and SIGKILL when the job is stopped, such as 2m; 0 kills "
        "at once.",
    ),
    _text(
        "--time-limit",
        "wall_time_limit",
        metavar="TIME",
        help="The longest an attempt may run, such as 2h.",
    ),
)

RESOURCES = ("cpu_limit", "memory_limit", "gpu_limit", "gpu_type")
_BY_NAME = {option.name: option for option in FIELD_OPTIONS}


def field_options(command: F) -> F:
    """Add ``FIELD_OPTIONS`` to a command, in their order, before its own options."""
    for option in reversed(FIELD_OPTIONS):
        command.__dict__.setdefault("__click_params__", []).append(option)
    return command


def given_fields(parameters: dict[str, Any]) -> dict[str, Any]:
    """The fields among a command's parameters that the user has set."""
    given = {name: value for name, value in parameters.items() if name in _BY_NAME}
    patterns, none = given.pop("outputs", ()), given.pop("no_outputs", False)
    secrets = given.pop("secrets", ())
    fields = {name: value for name, value in given.items() if value not in (None, False)}
    if secrets:
        fields["secrets"] = list(secrets)
    if patterns and none:
        raise click.UsageError("--outputs and --no-outputs exclude each other")
    if patterns or none:
        fields["outputs"] = list(patterns)
    if fields.pop("no_check_uris", False):
        fields["check_uris"] = False
    if fields.get("enable_rank"):
        fields["enable_rank"] = 1
    return fields
