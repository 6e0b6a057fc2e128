"""``cloudml models create``, ``deploy`` and ``wait``, as both generations of the command write
them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloud_ml.cli.completion.candidates import files, model_names, model_versions
from cloud_ml.cli.display.advice import service_step
from cloud_ml.cli.display.output import echo, echo_as, note, output_option
from cloud_ml.cli.display.progress import bar, spinner
from cloud_ml.cli.display.terminal import is_live
from cloud_ml.cli.guard import INTERRUPTED
from cloud_ml.cli.jobs.submit_arguments import environment_options, given_pairs
from cloud_ml.cli.models.figures import candidate_line, service_line
from cloud_ml.cli.models.names import find_name
from cloud_ml.cli.models.options import given_fields, service_options
from cloud_ml.cli.options.base import Command, Option
from cloud_ml.cli.options.wait_limit import WaitLimit
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import AlreadyExists, InvalidRequest

if TYPE_CHECKING:
    from cloud_ml.sdk.models.handles import ServiceHandle
    from cloud_ml.sdk.progress import Progress

FAILED, STILL_GOES_ON = 3, 124
_LIVE_S = 2.0
_WORDS = ("model_name", "model_version", "model_uri")
_HELP = (
    "Exit codes of --watch and of `models wait`: 0 it answers; 3 it has failed; 124 the time limit "
    "has passed; 130 you stopped waiting. The service continues in both cases."
)


def _make_command(name: str) -> Callable[[Callable[..., int]], click.Command]:
    """Both commands have the same options; the words of the second generation may be given to
    either.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        for add in reversed((
            click.argument("words", nargs=-1, metavar="[NAME VERSION URI]", shell_complete=files),
            click.option(
                "-n", "--model_name", cls=Option, aliases=("--name",), metavar="NAME", help="Name of the model."
            ),
            click.option("-v", "--model_version", metavar="VERSION", help="Version of the service, "
                                                                          "such as v1."),
            service_options,
            environment_options,
            click.option("-W", "--watch", is_flag=True, help="Wait until it answers."),
            output_option(),
            pass_session,
        )):  # fmt: skip
            function = add(function)
        return click.command(name, cls=Command, epilog=_HELP)(function)

    return decorate


@_make_command("create")
def create(session: Session, /, **given: Any) -> int:
    """Serve a model.

    \b
    cloudml models create -n linear -v v1 -u fds://cloudml/linear
    cloudml models create -n linear -v v1 -u ./export -r 2 -c 1 -M 500M --watch

    URI is a folder with numbered versions (1, 2…), of which the newest answers. A local folder or
    file is uploaded first; one that holds a model becomes version 1.
    """
    return _create(session, **given)


@_make_command("deploy")
def deploy(session: Session, /, **given: Any) -> int:
    """Serve a model.

    \b
    cloudml models deploy linear v1 fds://cloudml/linear
    cloudml models deploy linear v1 ./export --watch

    The same as `models create`, with name, version and URI as words.
    """
    return _create(session, **given)


@click.command(epilog=_HELP)
@click.argument("name", shell_complete=model_names)
@click.argument("version", required=False, shell_complete=model_versions)
@click.option(
    "--timeout", metavar="TIME", help="Wait no longer than this, such as 90s; otherwise for ever."
)
@output_option()
@pass_session
def wait(
    session: Session, name: str, version: str | None, *, timeout: str | None, output: str | None
) -> int:
    """Wait until a service answers or has failed."""
    limit = WaitLimit(timeout)
    handle = session.client.get_model_service(*find_name(session, name, version))
    code = await_answers(handle, limit.seconds)
    echo_as(output, handle.service, f"{handle.name} {handle.version}")
    return code


def _create(
    session: Session,
    *,
    words: tuple[str, ...],
    model_name: str | None,
    model_version: str | None,
    environment: tuple[str, ...],
    environment_files: tuple[Path, ...],
    labels: tuple[str, ...],
    watch: bool,
    output: str | None,
    **options: Any,
) -> int:
    from cloud_ml.models import codec
    from cloud_ml.models.services.model_service import ModelService

    fields = given_fields(options) | {
        name: value
        for name, value in (("model_name", model_name), ("model_version", model_version))
        if value
    }
    missing = [name for name in _WORDS if name not in fields]
    if len(words) > len(missing):
        raise click.UsageError(
            f"{words[len(missing)]!r} is one word too many; usual is: NAME VERSION URI"
        )
    fields |= dict(zip(missing, words, strict=False))
    if still := [name for name in _WORDS if name not in fields]:
        raise click.UsageError(
            f"missing: {', '.join(still)}. Usual is: cloudml models deploy NAME VERSION URI"
        )
    fields |= given_pairs(fields, environment, labels, environment_files)
    service = codec.decode(ModelService, fields)
    try:
        with sending(service.model_uri) as progress:
            handle = session.client.create_model_service(service, progress=progress)
    except AlreadyExists as error:
        what = f"{service.model_name} {service.model_version}"
        error.hint = (
            error.hint
            or f"Change it: cloudml models update {what} … · remove it: cloudml models delete "
            f"{what}"
        )
        raise
    if (name := _new_name(service.model_uri)) is not None:
        note(f"Note: {Path(service.model_uri).name} is stored as {name}; messages name it so")
    return report_service(handle, "is created", watch=watch, output=output)


def _new_name(source: str) -> str | None:
    """The name under which a single file is stored, if it is another one. Files of the server
    keep theirs.
    """
    from cloud_ml.sdk.models.folders import name_of_model_file

    path = Path(source)
    if "://" in source or path.is_dir():
        return None
    try:
        name = name_of_model_file(path, source)
    except InvalidRequest:  # a folder with a dot in its name
        return None
    return None if name == path.name else name


def report_service(handle: ServiceHandle, what: str, *, watch: bool, output: str | None) -> int:
    """Say what became of a service, and wait for it if that is asked for; returns the exit code."""
    name, service = f"{handle.name} {handle.version}", handle.service
    saved = service.phase == "Saved" and not service.wanted
    if not echo_as(output, service, name):
        begins = service.wanted and service.phase in ("Saved", "Stopped")
        echo(f"{name} {what} ({'Starting' if begins else service.phase})")
        for notice in service.notices:
            note(f"Note: {notice}")
        if saved:
            note(f"Start it: cloudml models start {name}")
        elif not watch:
            note(
                f"Show its state: cloudml models describe {name} · wait for it: cloudml "
                f"models wait {name}"
            )
    return await_answers(handle) if watch and not saved else 0


def await_answers(handle: ServiceHandle, timeout_s: float | None = None) -> int:
    """Wait with a line that says where the service stands; returns the exit code."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    name, live = f"{handle.name} {handle.version}", is_live(sys.stderr)
    line = service_line(handle.service)
    try:
        with spinner(line) as say:
            handle.refresh()
            while not handle.service.settled:
                now = service_line(handle.service)
                if now != line and not live:
                    note(now)
                say(now)
                line = now
                left = _LIVE_S if deadline is None else min(_LIVE_S, deadline - time.monotonic())
                if left <= 0:
                    break
                _look(handle, left)
    except KeyboardInterrupt:
        note(f"\nStopped waiting; {name} continues. Describe it: cloudml models describe {name}")
        return INTERRUPTED
    if not handle.service.settled:
        note(f"Timed out; {line}")
        return STILL_GOES_ON
    return _report_end(handle)


def _look(handle: ServiceHandle, wait_s: float) -> None:
    from cloud_ml.errors import TransportError, TryAgain

    try:
        handle.await_change(wait_s)
    except (TransportError, TryAgain):  # a server that restarts: the handle is more patient
        handle.wait_for_news(wait_s)


def _report_end(handle: ServiceHandle) -> int:
    service, name = handle.service, f"{handle.name} {handle.version}"
    if service.phase == "Running" and (failed := service.failed) is not None:
        why = ": ".join(part for part in (failed.reason, failed.message) if part)
        note(f"{name}: release {failed.release} failed: {why}", state="Failed")
        note("  The release before it still answers.")
        note(
            f"  Fix this: cloudml models update {name} -u URI · or go back: cloudml models "
            f"rollback {name}"
        )
        return FAILED
    if service.phase == "Running" and (tried := service.candidate) is not None:
        note(f"{name} answers; candidate: {candidate_line(tried)}", state=tried.phase)
        if tried.phase == "Failed":
            note(f"  Update it again, or: cloudml models rollback {name}")
            return FAILED
        note(
            f"  Judge it: cloudml models metrics {name} · then: cloudml models promote "
            f"{name}, or rollback {name}"
        )
        return 0
    if service.phase == "Running":
        where = f" at {service.address}" if service.address else ""
        note(
            f"{name} answers{where} ({service.ready} of {service.wanted} replicas)", state="Running"
        )
        note(
            f"  Call it: cloudml models predict {name} -d data.json · example calls: cloudml "
            f"models describe {name}"
        )
        return 0
    why = ": ".join(part for part in (service.reason, service.message) if part)
    note(f"{name} is {service.phase}" + (f": {why}" if why else ""), state=service.phase)
    if service.phase in ("Failed", "Degraded"):
        note(f"  {service_step(service)}")
        return FAILED
    return 0


@contextmanager
def sending(uri: str) -> Iterator[Progress]:
    """Show how far the upload of a local model is; nothing for one that is on the server."""
    if "://" in uri:
        yield lambda _done, _total: None
        return
    with bar("Uploading the model", None) as progress:
        yield progress
