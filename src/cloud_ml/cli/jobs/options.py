"""The options of ``jobs submit`` that become fields of the job, by the names of both generations.

Every option stands for the field whose name is its first long name, unless a parameter name says
otherwise. A parameter that is ``None`` (or an unset flag) leaves the field to the job file or the
default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from cloud_ml.cli.completion.candidates import files, framework_names
from cloud_ml.cli.jobs.elastic_options import with_every, with_workers
from cloud_ml.cli.options.base import FieldOptions, Option
from cloud_ml.cli.options.numbers import WholeNumber

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
    _text("-p", "--ps_count", metavar="N", help="Number of parameter servers."),
    _text(
        "-w",
        "--worker_count",
        metavar="N|MIN:MAX",
        help="Number of workers; with TensorFlow, one master is added. 2:8 starts as many as there "
        "is room for, and grows.",
    ),
    _text(
        "--elastic-every",
        "elastic_every",
        metavar="TIME",
        help="How often an elastic job may grow, such as 5m; every 10 minutes by default.",
    ),
    _text(
        "--recipe",
        metavar="NAME",
        help="What tasks are told about each other: tensorflow, pytorch, jax, "
        "xgboost, lightgbm, dask, mpi, or cluster for names and ports only. Found out from the framework by "
        "default; dask and mpi are not.",
    ),
    _text(
        "--array",
        metavar="INDEXES",
        help="Run a task for each index, such as 0-15, 0-15:4 or 1,3,7; 0-99%8 runs eight of a "
        "hundred at a time.",
    ),
    _text(
        "--max-failed",
        "max_failed",
        metavar="N",
        type=WholeNumber(0),
        help="How many tasks of an array may fail without failing the job; 0 by default.",
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
        "-tl",
        "--tensorboard_logdir",
        metavar="URI",
        help="Create a TensorBoard on this folder, with the job's name.",
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
    _text(
        "--procs-per-task",
        "procs_per_task",
        metavar="N",
        type=WholeNumber(1, 64),
        help="With PyTorch: so many processes of torchrun in each task.",
    ),
    _flag(
        "--cluster-arguments",
        help="Pass the cluster to each task as arguments too: --ps_hosts --worker_hosts "
        "--master_hosts --job_name --task_index.",
    ),
    _flag("-R", "--enable_rank", help="High priority."),
    _flag("-sv", "--save_mode", help="Keep the job without starting it; see `jobs start`."),
    _flag(
        "--no-check-uris", help="Accept fds:// arguments and variables whose bucket does not exist."
    ),
    _flag(
        "--no-git",
        help="Keep nothing of git with the job. `cloudml config set git off` does so for all of "
        "yours.",
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
        type=WholeNumber(0, 100),
        help="Repeats of a failed attempt; 3 by default for a job of several tasks.",
    ),
    Option(
        ["--restart", "restart_policy"],
        aliases=("--restart-policy",),
        metavar="POLICY",
        help="Never, OnFailure, ExitCode (not after codes 1 to 128 and crashes) or Always (also "
        "after a good end).",
    ),
    Option(
        ["--on-exit"],
        metavar="CODES=ACTION",
        multiple=True,
        help="What an exit code means: retry (or restart-gang), restart-task, fail, or free (again, "
        "at no retry), as in 3,4=fail. Repeat for several.",
    ),
    Option(
        ["--on-log"],
        metavar="TEXT=ACTION",
        multiple=True,
        help="What a text at the end of the output of a task that fails means, as in "
        "'CUDA error=restart-gang'. Repeat for several.",
    ),
    Option(
        ["--on-log-pattern"],
        metavar="REGEX=ACTION",
        multiple=True,
        help="The same for a match of an RE2 pattern, as in 'CUDA error: (out of memory|launch "
        "failed)=restart-gang'. Repeat for several.",
    ),
    Option(
        ["--memory-factor", "memory_factor"],
        metavar="N",
        help="After OOMKilled, start again with N times the memory, such as 1.5. The tasks of the "
        "role that ran out of memory get it.",
    ),
    Option(
        ["--memory-most", "memory_most"],
        metavar="SIZE",
        help="The most memory that --memory-factor may give to a task, such as 4G.",
    ),
    _text(
        "--task-retries",
        "task_retries",
        metavar="N",
        type=WholeNumber(0, 100),
        help="How often single tasks of several start again alone, all of them together.",
    ),
    _text(
        "--restore-from",
        "restore_from",
        metavar="JOB|URI",
        help="Go on from the newest checkpoint of another job, or from this one.",
    ),
    _text(
        "--checkpoint-path",
        "checkpoint_path",
        metavar="URI",
        help="Keep checkpoints in this folder, such as fds://bucket/folder, and go on from what is "
        "there; otherwise each job has a folder of its own.",
    ),
    _text(
        "--keep-checkpoints",
        "keep_checkpoints",
        metavar="N",
        type=WholeNumber(1, 100),
        help="Remove older checkpoints than the newest N that the code has reported; all are kept "
        "by default.",
    ),
    Option(
        ["--metric-pattern", "metric_patterns"],
        metavar="NAME|REGEX",
        multiple=True,
        help="Find metrics in the log: by a ready pattern (epoch, json, keras, lightgbm, lightning, "
        "xgboost, metric:loss) or an RE2 pattern with a named group for each, such as 'loss=(?P<loss>\\S+)'. "
        "Repeatable.",
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
        "--hang-timeout",
        "hang_timeout",
        metavar="TIME",
        help="How long it may give no sign of life (output, progress, processor time), such as 10m.",
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
_SWITCHED_OFF = {"no_git": "git", "no_check_uris": "check_uris"}
"""Options, and the field of a job that each sets to false."""


def field_options(command: F) -> F:
    """Add ``FIELD_OPTIONS`` to a command, in their order, before its own options."""
    for option in reversed(FIELD_OPTIONS):
        command.__dict__.setdefault("__click_params__", []).append(option)
    return command


def given_fields(parameters: dict[str, Any]) -> dict[str, Any]:
    """The fields among a command's parameters that the user has set."""
    given = {name: value for name, value in parameters.items() if name in _BY_NAME}
    patterns, none = given.pop("outputs", ()), given.pop("no_outputs", False)
    lists = {name: list(given.pop(name, ())) for name in ("secrets", "metric_patterns")}
    restart = _take_restart(given)
    fields = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    if restart:
        fields["restart"] = restart
    if checkpoint := _take_checkpoint(fields):
        fields["checkpoint"] = checkpoint
    fields |= {name: values for name, values in lists.items() if values}
    if patterns and none:
        raise click.UsageError("--outputs and --no-outputs exclude each other")
    if patterns or none:
        fields["outputs"] = list(patterns)
    for option, name in _SWITCHED_OFF.items():
        if fields.pop(option, False):
            fields[name] = False
    if fields.get("enable_rank"):
        fields["enable_rank"] = 1
    return fields


def _take_restart(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options about restarts from ``given``: the field that they make."""
    policy, on_exit = given.pop("restart_policy", None), given.pop("on_exit", ())
    on_log = [*map(_rule_of_text, given.pop("on_log", ()))]
    on_log += map(_rule_of_pattern, given.pop("on_log_pattern", ()))
    growth = {name: given.pop(name, None) for name in ("memory_factor", "memory_most")}
    restart = _restart(policy, on_exit, on_log)
    return restart | {name: value for name, value in growth.items() if value is not None}


def _take_checkpoint(fields: dict[str, Any]) -> dict[str, Any]:
    """Take the options about checkpoints from ``fields``: the field that they make."""
    options = {"keep": "keep_checkpoints", "path": "checkpoint_path"}
    return {name: fields.pop(option) for name, option in options.items() if option in fields}


def with_given(fields: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """``fields`` of a file or an earlier job with those that the user has set.

    Rules of ``--on-exit``, ``--on-log`` and ``--on-log-pattern`` go before the rules that were there. A
    number of workers takes the place of an elastic one.
    """
    merged = {**fields, **given}
    every = merged.pop("elastic_every", None)
    if "worker_count" in given:
        merged = with_workers(merged, fields.get("elastic"), given["worker_count"])
    if every is not None:
        merged = with_every(merged, every)
    before, restart = fields.get("restart"), given.get("restart")
    if isinstance(before, dict) and restart:
        merged["restart"] = {**before, **restart}
        if (rules := before.get("rules")) and "rules" in restart:
            merged["restart"]["rules"] = [*restart["rules"], *rules]
    return merged


def _restart(
    policy: str | None, exits: Sequence[str], rules_of_log: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    restart: dict[str, Any] = {} if policy is None else {"policy": policy}
    if exits or rules_of_log:
        restart["rules"] = [*map(_rule, exits), *rules_of_log]
    return restart


def _rule_of_text(text: str) -> dict[str, Any]:
    found, equals, action = text.rpartition("=")
    if not equals or not found:
        message = f"--on-log {text}: write a text and an action, such as 'CUDA error=fail'"
        raise click.UsageError(message)
    return {"log": found, "action": action.strip()}


def _rule_of_pattern(text: str) -> dict[str, Any]:
    pattern, equals, action = text.rpartition("=")
    if not equals or not pattern:
        message = (
            f"--on-log-pattern {text}: write a pattern and an action, such as 'CUDA error.*=fail'"
        )
        raise click.UsageError(message)
    return {"log_pattern": pattern, "action": action.strip()}


_RULE = re.compile(r"(\d{1,3}(?:,\d{1,3})*)=(.+)", re.ASCII)


def _rule(text: str) -> dict[str, Any]:
    found = _RULE.fullmatch(text.replace(" ", ""))
    if not found:
        raise click.UsageError(f"--on-exit {text}: write exit codes and an action, such as 3=fail")
    return {"exit_codes": [int(code) for code in found[1].split(",")], "action": found[2]}
