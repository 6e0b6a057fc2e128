"""The entry point of ``cloudml``. It imports click and the table below, nothing else of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from cloud_ml import __version__
from cloud_ml.cli.display.standard_streams import prepare_standard_streams
from cloud_ml.cli.guard import run_guarded
from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.session import Session

COMMANDS = {
    "admin": Lazy(
        "cloud_ml.cli.admin:admin", "Organisations, users, keys, quotas and the audit log."
    ),
    "completion": Lazy(
        "cloud_ml.cli.completion.script:completion",
        "Print the script that makes a shell complete commands.",
    ),
    "config": Lazy("cloud_ml.cli.credentials.config:config", "Servers and keys: init, show, use."),
    "doctor": Lazy("cloud_ml.cli.server.doctor:doctor", "Check this machine and report problems."),
    "framework": Lazy("cloud_ml.cli.framework:framework", "Frameworks that jobs can use."),
    "hp": Lazy(
        "cloud_ml.cli.studies.group:studies",
        "Studies: searches for the arguments with which a job does best.",
    ),
    "jobs": Lazy(
        "cloud_ml.cli.jobs.group:jobs", "Train jobs: submit, list, follow, cancel, delete."
    ),
    "models": Lazy(
        "cloud_ml.cli.models.group:models", "Model services: create, call, follow, change, delete."
    ),
    "org_id": Lazy(
        "cloud_ml.cli.credentials.identity:org_id", "Print the number of your organisation."
    ),
    "quota": Lazy(
        "cloud_ml.cli.quota.group:quota", "Limits of your organisation, and what is used of them."
    ),
    "runs": Lazy(
        "cloud_ml.cli.tracking.runs:runs",
        "Jobs and other runs: list them by metrics and parameters.",
    ),
    "secret": Lazy(
        "cloud_ml.cli.credentials.secret:secret",
        "Passwords, tokens and keys for jobs: create, list, delete.",
    ),
    "server": Lazy(
        "cloud_ml.cli.server.group:server", "Run the platform on this machine.", extra="server"
    ),
    "storage": Lazy(
        "cloud_ml.cli.storage.group:storage", "Buckets and objects: ls, cp, cat, rm, mb."
    ),
    "tensorboard": Lazy(
        "cloud_ml.cli.tracking.tensorboards:tensorboards",
        "TensorBoards: create, open, list, delete.",
    ),
    "token": Lazy(
        "cloud_ml.cli.credentials.token:token",
        "Access tokens for curl and programs without the SDK.",
    ),
    "ls": Lazy(
        "cloud_ml.cli.shortcuts.commands:ls", "List jobs, or the objects below fds://bucket/path."
    ),
    "ps": Lazy("cloud_ml.cli.shortcuts.commands:ps", "List jobs.", hidden=True),
    "run": Lazy("cloud_ml.cli.shortcuts.commands:run", "Submit a train job and follow it."),
    "logs": Lazy(
        "cloud_ml.cli.shortcuts.commands:logs", "Print the output of a job or a model service."
    ),
    "status": Lazy("cloud_ml.cli.shortcuts.commands:status", "Describe a job or a model service."),
    "stop": Lazy("cloud_ml.cli.shortcuts.commands:stop", "Stop a job or a model service."),
    "kill": Lazy("cloud_ml.cli.shortcuts.commands:kill", "Stop a job or a model service at once."),
    "rm": Lazy("cloud_ml.cli.shortcuts.removing:rm", "Delete jobs, model services or objects."),
    "events": Lazy(
        "cloud_ml.cli.shortcuts.commands:events",
        "List what happened to a job or a service.",
        hidden=True,
    ),
    "wait": Lazy(
        "cloud_ml.cli.shortcuts.commands:wait", "Wait for a job or a model service.", hidden=True
    ),
    "metrics": Lazy(
        "cloud_ml.cli.shortcuts.commands:metrics", "Show what a job or a service uses.", hidden=True
    ),
    "start": Lazy(
        "cloud_ml.cli.shortcuts.commands:start", "Start a saved job or model service.", hidden=True
    ),
    "whoami": Lazy(
        "cloud_ml.cli.credentials.identity:whoami",
        "Show the current user, and the scopes of the token if one is used.",
    ),
}


class Program(LazyGroup):
    """The whole command: errors end here, as sentences and exit codes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(Program, self).main(
                args, prog_name or self.name, complete_var, standalone_mode=False, **extra
            )

        if not standalone_mode:
            return run()
        sys.exit(run_guarded(run))


def _contexts(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloud_ml.cli.completion.candidates import context_names

    return context_names(ctx, parameter, incomplete)


@click.group(
    "cloudml",
    cls=Program,
    lazy=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        # Options of the first generation have underscores, newer ones dashes; both spellings are
        # taken.
        "token_normalize_func": lambda text: text.replace("_", "-"),
    },
)
@click.option(
    "-k",
    "--context",
    metavar="NAME",
    shell_complete=_contexts,
    help="Use this context of the settings. [CLOUDML_CONTEXT]",
)
@click.option("--endpoint", metavar="URL", help="Talk to this server. [CLOUDML_ENDPOINT]")
@click.version_option(
    __version__, "-v", "--version", prog_name="cloudml", message="%(prog)s %(version)s"
)
@click.pass_context
def cli(ctx: click.Context, context: str | None, endpoint: str | None) -> None:
    """Cloud ML: submit a trainer, get a model.

    Start a platform on this machine with `cloudml server`, then submit: `cloudml jobs submit linear
    trainer.task ./linear`. Exit codes: 0 success, 1 an error, 2 wrong usage, 130 interrupted,
    141 nobody reads the output any more.
    """
    ctx.obj = session = Session(context, endpoint)
    ctx.call_on_close(session.close)


def main() -> None:
    """Run ``cloudml`` with the arguments of this process."""
    prepare_standard_streams()
    cli.main()
