"""The commands about a kind of resource, made from its description: create, list, describe, events,
wait, delete.

::

    notes = resource_group(NOTES)      # in a module of its own, named by a line of ``cli.main.COMMANDS``
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cloud_ml.cli.completion.candidates import files, names_of
from cloud_ml.cli.display.output import (
    echo,
    echo_as,
    echo_facts,
    echo_table,
    local_time,
    note,
    output_option,
)
from cloud_ml.cli.exit_codes import JOB_FAILED, STILL_GOES_ON
from cloud_ml.cli.guard import INTERRUPTED, each
from cloud_ml.cli.lazy import LazyGroup
from cloud_ml.cli.options.base import Option
from cloud_ml.cli.options.deleting import confirm_deletion, yes_option
from cloud_ml.cli.options.numbers import WholeNumber
from cloud_ml.cli.options.wait_limit import WaitLimit
from cloud_ml.cli.session import Session, pass_session
from cloud_ml.errors import InvalidRequest, WaitTimedOut
from cloud_ml.models import codec
from cloud_ml.models.resource import NewResource, ResourceType, ResourceView
from cloud_ml.text_encoding import decode_text

NewT = TypeVar("NewT", bound=NewResource)
ViewT = TypeVar("ViewT", bound=ResourceView)
_SHOWN_FIELDS = 2
"""So many fit into the line of help; what has more is mostly in a file."""
_COMMON = {one.name for one in dataclasses.fields(ResourceView)}


def resource_group(described: ResourceType[NewT, ViewT]) -> click.Group:
    """All commands of a kind. What is special to it is added to the group."""
    group = LazyGroup(described.plural, help=described.help)
    for make in (_create, _list, _describe, _events, _wait, _delete):
        group.add_command(make(described))
    for action, text in described.actions.items():
        if action in described.bodies:
            continue  # its options are the kind's own affair
        group.add_command(_act(described, action, text))
    return group


def _create(described: ResourceType[NewT, ViewT]) -> click.Command:
    fields = [one.name for one in dataclasses.fields(described.new) if one.name != "name"]  # type: ignore[arg-type]
    form = " ".join(f"{name}=VALUE" for name in fields[:_SHOWN_FIELDS])
    if fields[_SHOWN_FIELDS:]:
        form = "FIELD=VALUE..."

    @click.command("create", help=f"Create a {described.name}: NAME {form}, or -f FILE.")
    @click.argument("name", required=False)
    @click.argument("values", nargs=-1, metavar="[FIELD=VALUE]...")
    @click.option(
        "-f",
        "--file",
        metavar="FILE",
        shell_complete=files,
        help="YAML or JSON with the fields; - reads standard input.",
    )
    @output_option()
    @pass_session
    def create(
        session: Session,
        *,
        name: str | None,
        values: tuple[str, ...],
        file: str | None,
        output: str | None,
    ) -> None:
        document = _document(described.new, name, values, file)
        made = session.client.resources(described).create(codec.decode(described.new, document))
        if not echo_as(output, made, made.name):
            echo(f"the {described.name} {made.name} is created")

    return create


def _list(described: ResourceType[NewT, ViewT]) -> click.Command:
    @click.command("list", help=f"List {described.plural}, newest first.")
    @click.option(
        "-s", "--state", cls=Option, aliases=("--phase",), multiple=True, help="Only in this state."
    )
    @click.option("-n", "--limit", type=WholeNumber(1), help="At most so many.")
    @output_option()
    @pass_session
    def list_all(
        session: Session, *, state: tuple[str, ...], limit: int | None, output: str | None
    ) -> None:
        phases = [one.capitalize() if one.islower() else one for one in state]
        found = list(session.client.resources(described).list(phases=phases, limit=limit))
        if echo_as(output, found, (one.name for one in found)):
            return
        header = ("NAME", "STATE", *described.columns, "OWNER", "CREATED")
        rows = [
            (one.name, _state(one), *(show(one) for show in described.columns.values()), one.owner,
             local_time(one.created_at))
            for one in found
        ]  # fmt: skip
        echo_table(header, rows, painted=1)

    return list_all


def _describe(described: ResourceType[NewT, ViewT]) -> click.Command:
    @click.command("describe", help=f"Show a {described.name}.")
    @click.argument("name", shell_complete=names_of(described))
    @output_option()
    @pass_session
    def describe(session: Session, name: str, output: str | None) -> None:
        found = session.client.resources(described).describe(name)
        if not echo_as(output, found, found.name):
            echo_facts(_facts(found), painted="State")

    return describe


def _events(described: ResourceType[NewT, ViewT]) -> click.Command:
    @click.command("events", help=f"List what happened to a {described.name}, and why.")
    @click.argument("name", shell_complete=names_of(described))
    @click.option(
        "-f", "--follow", is_flag=True, help="Follow until it is gone. Ctrl-C stops the output."
    )
    @output_option()
    @pass_session
    def events(session: Session, name: str, *, follow: bool, output: str | None) -> int:
        from cloud_ml.cli.display.events import tell, tell_as_it_happens

        calls = session.client.resources(described)
        return (
            tell_as_it_happens(calls.watch_events(name), output)
            if follow
            else tell(calls.events(name), output)
        )

    return events


def _wait(described: ResourceType[NewT, ViewT]) -> click.Command:
    codes = (
        f"Exit codes: 0 it ended well; {JOB_FAILED} it did not; {STILL_GOES_ON} the time is over."
    )

    @click.command("wait", help=f"Wait until a {described.name} has ended.", epilog=codes)
    @click.argument("name", shell_complete=names_of(described))
    @click.option(
        "--timeout", metavar="TIME", help="Time limit, such as 90s or 2h; none by default."
    )
    @pass_session
    def wait(session: Session, name: str, timeout: str | None) -> int:
        limit = WaitLimit(timeout)
        try:
            found = session.client.resources(described).wait(name, limit.seconds)
        except WaitTimedOut as error:
            note(error.message)
            return STILL_GOES_ON
        except KeyboardInterrupt:
            return INTERRUPTED
        message = getattr(found, "message", "")
        echo(f"{found.name} is {found.phase}" + (f": {message}" if message else ""))
        return 0 if found.phase in described.succeeded else JOB_FAILED

    return wait


def _act(described: ResourceType[NewT, ViewT], action: str, text: str) -> click.Command:
    @click.command(action, help=text)
    @click.argument(
        "names", nargs=-1, required=True, metavar="NAME...", shell_complete=names_of(described)
    )
    @pass_session
    def act(session: Session, names: tuple[str, ...]) -> int:
        def ask(name: str) -> None:
            found = session.client.resources(described).act(name, action)
            echo(f"{action} of the {described.name} {name} is requested; it was {_state(found)}")

        return each(names, ask)

    return act


def _delete(described: ResourceType[NewT, ViewT]) -> click.Command:
    @click.command("delete", help=described.deletes or f"Delete {described.plural}.")
    @click.argument(
        "names", nargs=-1, required=True, metavar="NAME...", shell_complete=names_of(described)
    )
    @click.option("--wait", "waits", is_flag=True, help="Wait until their names are free.")
    @yes_option
    @pass_session
    def delete(session: Session, names: tuple[str, ...], *, waits: bool, yes: bool) -> int:
        if described.deletes:
            confirm_deletion(names, described.goes_along, yes=yes)
        calls = session.client.resources(described)

        def remove(name: str) -> None:
            calls.delete(name)
            if waits:
                calls.wait_until_gone(name)
            echo(f"the {described.name} {name} is {'deleted' if waits else 'being deleted'}")

        return each(names, remove)

    return delete


def _document(
    new: type[Any], name: str | None, values: Sequence[str], file: str | None
) -> dict[str, Any]:
    """What is to be created, from a file and from the command line. The command line wins."""
    document = {} if file is None else read_document(file)
    types = {one.name: one.type for one in dataclasses.fields(new)}
    if name and "=" in name:
        values, name = (name, *values), None
    for text in values:
        field, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r} is not FIELD=VALUE. Fields: {', '.join(types)}")
        document[field] = value if "str" in str(types.get(field)) else json_or_text(value)
    if name is not None:
        document["name"] = name
    if "name" not in document:
        raise click.UsageError("missing: NAME")
    return document


def json_or_text(text: str) -> Any:
    """A value of the command line: JSON where it is, else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_document(file: str) -> dict[str, Any]:
    """The fields in a file.

    Raises:
        InvalidRequest: It cannot be read, or holds no fields.
    """
    from cloud_ml.cli.display.yamls import load

    try:
        text = sys.stdin.read() if file == "-" else decode_text(Path(file).read_bytes())
        document = _json_or(load, text)
    except OSError as error:
        raise InvalidRequest(
            f"{file} cannot be read: {error.strerror}", field="file", value=file
        ) from error
    except ValueError as error:
        raise InvalidRequest(f"{file} is not YAML: {error}", field="file", value=file) from error
    if not isinstance(document, dict):
        raise InvalidRequest(
            f"{file} does not hold fields", field="file", value=file, allowed="FIELD: VALUE lines"
        )
    return document


def _json_or(load: Callable[[str], Any], text: str) -> Any:
    """A document of JSON, else of YAML, which takes some of JSON's numbers for texts."""
    try:
        return json.loads(text)
    except ValueError:
        return load(text)


def _facts(found: ResourceView) -> Mapping[str, Any]:
    own = {name: value for name, value in vars(found).items() if name not in _COMMON}
    return {
        "Name": found.name,
        "State": _state(found),
        "Owner": found.owner,
        "Created": local_time(found.created_at),
        "Changed": local_time(found.updated_at),
        **{name.replace("_", " ").capitalize(): _listed(value) for name, value in own.items()},
    }


def _listed(value: Any) -> Any:
    """Texts of a list side by side; what has parts of its own as it is."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value


def _state(found: ResourceView) -> str:
    return "Deleting" if found.deleting else found.phase
