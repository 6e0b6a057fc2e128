"""``cloudml server``: everything in one foreground process, and what an operator does to its
database.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.display.output import note
from cloud_ml.cli.display.standard_streams import OutputFailed, drop_output
from cloud_ml.cli.guard import FAILED
from cloud_ml.cli.lazy import Lazy, LazyGroup
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.errors import CloudMlError, InvalidRequest, Unavailable

if TYPE_CHECKING:
    from logging import Logger

    from cloud_ml.settings import Settings

COMMANDS = {
    "backup": Lazy(
        "cloud_ml.cli.server.maintenance:backup", "Copy the database to a file; the server may run."
    ),
    "check": Lazy(
        "cloud_ml.cli.server.maintenance:check", "Check the whole database; the server may run."
    ),
    "migrate": Lazy(
        "cloud_ml.cli.server.maintenance:migrate", "Bring the database to this version's schema."
    ),
    "restore": Lazy("cloud_ml.cli.server.maintenance:restore", "Replace the database by a backup."),
    "stop": Lazy(
        "cloud_ml.cli.server.stop:stop", "Stop the server, and optionally all that outlives it."
    ),
    "unit": Lazy("cloud_ml.cli.server.unit:unit", "Print a unit of systemd that runs this server."),
}


DATA_DIR_HELP = "Folder of all data.  [default: ~/.local/share/cloudml]"


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    help="Start the platform in the foreground: API, controller and local engine in one process. "
    "The commands below act on its database, or stop it.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=WholeNumber(), help="Port; 0 takes a free one.  [default: 8471]")
@click.option("--data-dir", type=click.Path(file_okay=False, readable=False), help=DATA_DIR_HELP)
@click.option(
    "--shared-data",
    is_flag=True,
    default=None,
    help="Share the data folder with other servers of this machine; needs PostgreSQL.",
)
@click.option("--database-url", help="Database; SQLite in the data folder by default.")
@click.option(
    "--config", "file", type=click.Path(exists=True, dir_okay=False), help="Settings, as TOML."
)
@click.option("--sandbox", type=click.Choice(["auto", "require", "none"]), help="Sandbox of jobs.")
@click.option(
    "--network", type=click.Choice(["auto", "tenant", "host", "none"]), help="Network of jobs."
)
@click.option("--max-running-jobs", type=WholeNumber(), help="Jobs that run at once.")
@click.option(
    "--environments-dir",
    type=click.Path(file_okay=False, readable=False),
    help="Layers and caches of environments.",
)
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate chain, PEM."
)
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Private key, PEM.")
@click.option("--behind-proxy", is_flag=True, default=None, help="A proxy in front speaks TLS.")
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    help="The server's own log; with json, every line.",
)
@click.pass_context
def server(ctx: click.Context, /, **options: Any) -> None:
    if ctx.invoked_subcommand is not None:  # which reads these options from its parent
        return
    try:
        from cloud_ml.observability import logging as logs
        from cloud_ml.server import run
    except ImportError as error:
        raise parts_missing(error) from error
    json_only = "json" in (options["log_format"], os.environ.get("CLOUDML_SERVER_LOG_FORMAT"))
    if json_only:  # before anything can go wrong
        logs.configure("json")
    try:
        settings = load_settings(options)
        logs.configure(settings.server.log_format)
        json_only = settings.server.log_format == "json"
        run(
            settings,
            access_key=os.environ.get("CLOUDML_BOOTSTRAP_ACCESS_KEY"),
            secret=os.environ.get("CLOUDML_BOOTSTRAP_SECRET_KEY"),
            started=_log_start if json_only else _announce,
        )
    except Exception as error:
        if not json_only:
            raise
        _log_end(error)
        ctx.exit(FAILED)


def load_settings(options: dict[str, Any]) -> Settings:
    """All settings, with the options of ``cloudml server`` over those of the environment and of the
    file.

    Raises:
        InvalidRequest: A value is wrong, or there is a password among the options.
    """
    from cloud_ml.settings import load

    _check_no_password(options["database_url"])
    file = options["file"]
    return load(Path(file) if file else None, os.environ, _by_theme(options))


def parts_missing(error: ImportError) -> Unavailable:
    """The refusal where only the client is installed."""
    return Unavailable(
        f"the server's parts are not installed ({error.name} is missing)",
        hint="pip install 'cloud-ml[server]'",
    )


def _check_no_password(url: str | None) -> None:
    """Everybody on this machine may read the arguments of a process."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(url or "")
    if parts.password or "password" in parse_qs(parts.query):
        raise InvalidRequest(
            "--database-url holds a password, which everybody on this machine could read in "
            "the list of processes",
            field="server.database_url",
            allowed="a URL without a password",
            hint="Keep it in ~/.pgpass, or the whole URL in CLOUDML_SERVER_DATABASE_URL or the "
            "file of --config.",
        )


def _by_theme(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    server = (
        "host",
        "port",
        "data_dir",
        "shared_data",
        "database_url",
        "tls_cert",
        "tls_key",
        "behind_proxy",
        "log_format",
    )
    return {
        "server": {name: options[name] for name in server},
        "engine": {"sandbox": options["sandbox"], "network": options["network"]},
        "controller": {"max_running_jobs": options["max_running_jobs"]},
        "environments": {"home": options["environments_dir"]},
    }


def _logger() -> Logger:
    from logging import getLogger  # only this command logs

    return getLogger(__name__)


def _log_end(error: Exception) -> None:
    """Why the server ends, as a line of the log."""
    if not isinstance(error, CloudMlError):
        _logger().critical("the server ends by an error that should not happen", exc_info=error)
        return
    facts = {"code": error.code, "field": error.field, "allowed": error.allowed, "hint": error.hint}
    _logger().error(error.message, extra={name: text for name, text in facts.items() if text})


def _log_start(endpoint: str, credentials: Path, running: Any) -> None:
    """What ``_announce`` prints, as a line of the log."""
    facts = {
        "endpoint": endpoint,
        "data": str(running.settings.data_dir),
        "credentials": str(credentials),
    }
    _logger().info("server listens", extra={**facts, "notes": list(running.engine.missing())})


def _announce(endpoint: str, credentials: Path, running: Any) -> None:
    """Print where the server is. The server serves on where nobody can read that."""
    try:
        _print_facts(endpoint, credentials, running)
    except OutputFailed as error:
        drop_output()
        note(f"cloudml: {error}; the server listens on {endpoint}")


def _print_facts(endpoint: str, credentials: Path, running: Any) -> None:
    click.echo(f"Cloud ML listens on {endpoint}")
    click.echo(f"  data          {running.settings.data_dir}")
    click.echo(f"  credentials   {credentials}")
    for sentence in running.engine.missing():
        click.echo(f"  note          {sentence}")
    if not _is_known_to_user(endpoint, running):
        click.echo(
            "  note          your command line uses another key: cloudml config init --from "
            f"{credentials}"
        )
    click.echo("Stop with Ctrl-C; jobs keep running and are found again.")


def _is_known_to_user(endpoint: str, running: Any) -> bool:
    """Whether the current context of whoever starts the server is one for it, as after its first
    start.
    """
    from cloud_ml.sdk.config import config_path, read_configuration

    try:
        settings = read_configuration(config_path())
    except InvalidRequest:
        return False
    context = settings.contexts.get(settings.current)
    if context is None or context.endpoint != endpoint:
        return False
    return bool(context.token) or running.platform.identities.find(context.access_key) is not None
