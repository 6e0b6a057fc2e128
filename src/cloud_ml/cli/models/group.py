"""``cloudml models``: the list, events, what replicas use, and what ends a service; the rest has
files of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import click

from cloud_ml.cli.completion.candidates import model_names, model_versions
from cloud_ml.cli.display.output import echo, echo_as, echo_table, local_time, note, output_option
from cloud_ml.cli.display.progress import spinner
from cloud_ml.cli.guard import each
from cloud_ml.cli.lazy import Lazy
from cloud_ml.cli.models.names import ModelsGroup, find_name
from cloud_ml.cli.models.options import change_options, given_fields
from cloud_ml.cli.options.base import EXPIRES_ALIASES, Option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.session import Session, pass_session

_CREATE = "Serve a model: cloudml models create -n NAME -v VERSION -u URI."
_ELSEWHERE = {
    "create": Lazy("cloud_ml.cli.models.deploying:create", _CREATE),
    "deploy": Lazy(
        "cloud_ml.cli.models.deploying:deploy",
        "Serve a model: cloudml models deploy NAME VERSION URI.",
    ),
    "describe": Lazy(
        "cloud_ml.cli.models.describing:describe",
        "Describe a service: replicas, inputs, example calls.",
    ),
    "logs": Lazy("cloud_ml.cli.models.logs:logs", "Print the output of replicas."),
    "promote": Lazy(
        "cloud_ml.cli.models.releasing:promote", "Send all calls to the candidate of a service."
    ),
    "rollback": Lazy(
        "cloud_ml.cli.models.releasing:rollback",
        "Remove the candidate, or restore the previous release.",
    ),
    "predict": Lazy(
        "cloud_ml.cli.models.predicting:predict",
        "Call a model: cloudml models predict NAME VERSION -d data.json.",
    ),
    "rm": Lazy("cloud_ml.cli.shortcuts.removing:rm_service", "Delete model services.", hidden=True),
    "signature": Lazy(
        "cloud_ml.cli.models.signature:signature",
        "Write the signature of a model whose file stores none.",
    ),
    "wait": Lazy(
        "cloud_ml.cli.models.deploying:wait", "Wait until a service answers or has failed."
    ),
}
NAME = click.argument("name", shell_complete=model_names)
VERSION = click.argument("version", required=False, shell_complete=model_versions)
VERSIONS = click.argument(
    "versions", nargs=-1, metavar="[VERSION]...", shell_complete=model_versions
)
YES = click.option("-y", "--yes", is_flag=True, hidden=True)


@click.group(cls=ModelsGroup, lazy=_ELSEWHERE)
def models() -> None:
    """Model services.

    A service has a name and a version, such as linear v1. If a model has one version only, you may
    leave VERSION out.
    """


@models.command("list")
@output_option("wide")
@click.option(
    "-n", "--name", metavar="NAME", shell_complete=model_names, help="Only versions of this model."
)
@click.option(
    "--limit",
    type=WholeNumber(0),
    default=200,
    show_default=True,
    help="Maximum number; 0 means all.",
)
@pass_session
def list_models(session: Session, *, output: str | None, name: str | None, limit: int) -> None:
    """List services, newest first. REASON says why one does not answer as it should; -o wide
    adds the message.
    """
    found = session.client.list_model_services(name=name, limit=limit + 1 if limit else None)
    shown = list(islice(found, limit or None))
    if not echo_as(output, shown, (f"{one.name} {one.version}" for one in shown)):
        wide = output == "wide"
        rows = [
            (
                one.name,
                one.version,
                "Deleting" if one.deleting else one.phase,
                one.reason,
                one.address or "-",
                local_time(one.created_at),
                local_time(one.updated_at),
                *((one.owner, one.org, one.uid, one.message) if wide else ()),
            )
            for one in shown
        ]
        more = ("OWNER", "ORG", "UID", "MESSAGE") if wide else ()
        echo_table(
            ("NAME", "VERSION", "STATE", "REASON", "ADDRESS", "CREATED", "UPDATED", *more),
            rows,
            painted=2,
        )
    if next(found, None) is not None:
        note(f"There are more than {limit}; --limit 0 shows them all.")


@models.command()
@NAME
@VERSION
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Follow until the service is deleted. Ctrl-C stops the output.",
)
@output_option()
@pass_session
def events(
    session: Session, name: str, version: str | None, *, follow: bool, output: str | None
) -> int:
    """List what happened to a service, and why."""
    from cloud_ml.cli.display.events import tell, tell_as_it_happens

    where = find_name(session, name, version)
    if follow:
        return tell_as_it_happens(session.client.get_model_service(*where).watch_events(), output)
    return tell(session.client.model_service_events(*where), output)


@models.command()
@NAME
@VERSION
@output_option()
@pass_session
def metrics(session: Session, name: str, version: str | None, output: str | None) -> None:
    """Show usage and requests of replicas, and errors of calls.

    What a replica was asked is counted since it started; what callers got, by release.
    """
    from cloud_ml.cli.models.figures import calls_line, metrics_rows, release_rows

    found = session.client.model_service_metrics(*find_name(session, name, version))
    if not echo_as(output, found, (str(one.number) for one in found.items)):
        header = (
            "REPLICA",
            "STATE",
            "RELEASE",
            "CPU",
            "MEMORY",
            "LIMIT",
            "REQUESTS",
            "ERRORS",
            "MEAN TIME",
        )
        echo_table(header, metrics_rows(found), painted=1)
        if found.releases:
            echo("")
            echo_table(
                ("RELEASE", "", "SHARE", "ANSWER", "CALLS", "ERRORS", "MEAN TIME"),
                release_rows(found),
            )
        if found.calls is not None:
            note(calls_line(found.calls))


def _check_words(name: str, version: str | None, more: Sequence[str]) -> None:
    """Refuse a model that is given as a word, where `models deploy` takes it."""
    if version and (":" in version or "/" in version):
        place, source = name, version
    elif more:
        place, source = f"{name} {version}", more[0]
    else:
        return
    raise click.UsageError(
        f"{source!r} is one word too many; to serve another model: cloudml models update {place} "
        f"-u {source}"
    )


@models.command(context_settings={"allow_extra_args": True})
@NAME
@VERSION
@click.option("-v", "--model_version", metavar="VERSION", help="The same as VERSION.")
@click.option("-p", "--port", metavar="PORT", hidden=True)
@click.option("--engine_cpu", hidden=True)
@click.option("--engine_memory", hidden=True)
@change_options
@click.option(
    "--canary",
    metavar="PERCENT",
    help="Send this percentage of calls to the change first; then promote or rollback.",
)
@click.option("-W", "--watch", is_flag=True, help="Wait until the change is rolled out.")
@output_option()
@pass_session
def update(
    session: Session,
    /,
    name: str,
    version: str | None,
    *,
    model_version: str | None,
    port: str | None,
    engine_cpu: str | None,
    engine_memory: str | None,
    canary: str | None,
    watch: bool,
    output: str | None,
    **options: object,
) -> int:
    """Change a service without interrupting calls.

    Replicas are replaced one at a time. If the quota has no room for one more, an old replica stops
    before the new one answers; a note says so.

    \b
    cloudml models update linear v1 -r 3
    cloudml models update linear v1 -u fds://cloudml/linear-better --canary 10

    With --canary, a part of the calls goes to the change. --canary alone changes this part.
    """
    from cloud_ml.cli.models.deploying import report_service, sending

    for option, value in (
        ("--port", port),
        ("--engine_cpu", engine_cpu),
        ("--engine_memory", engine_memory),
    ):
        if value is not None:
            raise click.UsageError(
                f"{option} is not offered: a service has the port that it is given"
            )
    changes = given_fields(dict(options)) | ({} if canary is None else {"canary": canary})
    _check_words(name, version, click.get_current_context().args)
    if not changes:
        raise click.UsageError(
            "nothing is to be changed; such as: cloudml models update NAME VERSION -r 2"
        )
    where = find_name(session, name, version or model_version)
    with sending(str(changes.get("model_uri", "://"))):
        session.client.update_model_service(*where, **changes)
    return report_service(
        session.client.get_model_service(*where), "is changed", watch=watch, output=output
    )


@models.command()
@NAME
@VERSION
@click.option("-W", "--watch", is_flag=True, help="Wait until it answers.")
@output_option()
@pass_session
def start(
    session: Session, name: str, version: str | None, *, watch: bool, output: str | None
) -> int:
    """Start a saved or stopped service."""
    from cloud_ml.cli.models.deploying import report_service

    handle = session.client.get_model_service(*find_name(session, name, version))
    handle.start()
    return report_service(handle, "is started", watch=watch, output=output)


@models.command()
@NAME
@VERSION
@click.option(
    "--grace",
    metavar="TIME",
    help="Time between SIGTERM and SIGKILL, such as 30s; 0 kills at once.",
)
@output_option()
@pass_session
def stop(
    session: Session, name: str, version: str | None, *, grace: str | None, output: str | None
) -> None:
    """End every replica; the service stays and can be started again."""
    service = session.client.stop_model_service(*find_name(session, name, version), grace=grace)
    if not echo_as(output, service, f"{service.name} {service.version}"):
        echo(f"{service.name} {service.version} is being stopped")
        note(f"Start it again: cloudml models start {service.name} {service.version}")


def _remove_all(session: Session, name: str, versions: tuple[str, ...], *, wait: bool) -> int:
    """Delete versions of a service, or the one that there is."""
    if not versions:
        _remove(session, name, None, wait=wait)
        return 0
    return each(versions, lambda version: _remove(session, name, version, wait=wait))


def _remove(session: Session, name: str, version: str | None, *, wait: bool) -> None:
    handle = session.client.get_model_service(*find_name(session, name, version))
    handle.delete()
    what = f"{handle.name} {handle.version}"
    if not wait:
        echo(f"{what} is being deleted")
        return
    with spinner(f"{what} is being deleted"):
        handle.wait_until_gone()
    echo(f"{what} is deleted")


@models.command()
@NAME
@VERSIONS
@click.option(
    "--wait", is_flag=True, help="Come back when it is gone and name and version are free."
)
@YES
@pass_session
def delete(session: Session, name: str, versions: tuple[str, ...], *, wait: bool, yes: bool) -> int:
    """Delete a service and end its replicas. The model stays where it is."""
    del yes  # jobs delete --all asks; nothing is asked here
    return _remove_all(session, name, versions, wait=wait)


@models.command()
@NAME
@VERSIONS
@click.option(
    "--wait", is_flag=True, help="Come back when it is gone and name and version are free."
)
@YES
@pass_session
def destroy(
    session: Session, name: str, versions: tuple[str, ...], *, wait: bool, yes: bool
) -> int:
    """Delete a service: the same as `models delete`."""
    del yes  # jobs delete --all asks; nothing is asked here
    return _remove_all(session, name, versions, wait=wait)


@models.command()
@click.argument("name", required=False, shell_complete=model_names)
@VERSION
@click.option(
    "--expires",
    "lasting",
    cls=Option,
    aliases=EXPIRES_ALIASES,
    metavar="TIME",
    default="1h",
    show_default=True,
    help="How long it is good: 30m, 1h, 7d; a number alone means seconds.",
)
@pass_session
def token(session: Session, name: str | None, version: str | None, lasting: str) -> None:
    """Print a token for calls of all your services, or of one.

    It is for your own shell: derived from your key, without the server, and it ends with the key.
    For programs, `cloudml token create --scope models:predict` makes tokens that can be listed and
    revoked. They open the address of a service. `cloudml models predict NAME VERSION` and
    `CloudMlClient().predict` look it up first, with --scope models:read,models:predict.
    """
    from cloud_ml.models import common

    service = "/".join(find_name(session, name, version)) if name else ""
    seconds = common.duration_seconds(common.check_duration("expires", lasting))
    echo(session.client.model_token(seconds, service=service))
