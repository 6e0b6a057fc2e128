"""Variables and arguments whose names suggest a secret: values are not shown, and no mask
becomes a value. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from cloud_ml.domain.records import Event
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.secrets.arguments import Arguments, flags_with_masks, masked_flags, variable_of
from cloud_ml.models.secrets.commands import (
    Command,
    command_flags_with_masks,
    mask_command,
    masked_command_flags,
)
from cloud_ml.models.secrets.secret import (
    MASK,
    has_mask,
    mask_variables,
    masked_names,
    masked_value,
    store_as_secret,
)

_MOST_NAMES = 5
Environment = Mapping[str, str] | None
Commands = Mapping[str, Command]
"""Shell commands of a job or service, by the name of their field."""


class HasCommands(Protocol):
    """A job or a service as it was submitted."""

    @property
    def prepare_command(self) -> str | None:
        """Run before the code."""

    @property
    def finish_command(self) -> str | None:
        """Run after the code."""


def commands_of(submitted: HasCommands) -> Commands:
    """The shell commands of a job or service."""
    return {
        "prepare_command": submitted.prepare_command,
        "finish_command": submitted.finish_command,
    }


def masked_commands(submitted: HasCommands) -> dict[str, str]:
    """The commands that are set, as they may be shown."""
    return {
        field: mask_command(command) for field, command in commands_of(submitted).items() if command
    }


def masked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a trial as they may be shown: masked like the arguments that they are."""
    shown = {
        name: masked_value(variable_of(name), str(value)) for name, value in parameters.items()
    }
    return {
        name: value if shown[name] == str(value) else shown[name]
        for name, value in parameters.items()
    }


def masked_space(documents: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a study as they may be shown, also where conditions name their values."""
    return {
        name: document | {"active_if": masked_parameters(document["active_if"])}
        if isinstance(document, dict) and "active_if" in document
        else document
        for name, document in masked_parameters(documents).items()
    }


def fill_masks(environment: Environment, stored: Environment) -> dict[str, str] | None:
    """``environment`` with the stored values in the place of masks."""
    if environment is None:
        return None
    known = mask_variables(stored or {})
    filled = {name: (stored or {})[name] for name, value in environment.items()
              if has_mask(name, value) and known.get(name) == value}  # fmt: skip
    return {**environment, **filled}


def refuse_masks(
    environment: Environment,
    arguments: Arguments = None,
    commands: Commands | None = None,
    *,
    arguments_field: str = "job_args",
) -> None:
    """Refuse a mask in the place of a value: it comes from a view, and the code would take it for
    the secret.

    Raises:
        InvalidRequest: Names the variable or the flag.
    """
    found = [(arguments_field, flag) for flag in flags_with_masks(arguments)]
    for field, flag in [*found, *_command_masks(commands or {})]:
        raise InvalidRequest(
            f"{field}: {flag} has {MASK}, which stands for a value that is not shown",
            field=field,
            value=MASK,
            allowed="the value itself",
            hint=f"Give it, or {store_as_secret(variable_of(flag))}. `cloudml jobs rerun` keeps "
            "it.",
        )
    for name, value in (environment or {}).items():
        if has_mask(name, value):
            raise InvalidRequest(
                f"environment.{name} has {MASK}, which stands for a value that is not shown",
                field=f"environment.{name}",
                value=MASK,
                allowed="the value itself",
                hint=f"Give it: --env {name}, or {store_as_secret(name)}. `cloudml jobs rerun` "
                "keeps it.",
            )


def _command_masks(commands: Commands) -> Iterator[tuple[str, str]]:
    """(field, flag) of each mask."""
    for field, command in commands.items():
        for flag in command_flags_with_masks(command):
            yield field, flag


def masking_events(
    environment: Environment,
    now: datetime,
    arguments: Arguments = None,
    commands: Commands | None = None,
) -> Sequence[Event]:
    """What to say about a job or service whose variables, arguments or commands look like
    secrets.
    """
    names = [*masked_names(environment or {}), *masked_flags(arguments)]
    names += [
        flag for command in (commands or {}).values() for flag in masked_command_flags(command)
    ]
    names = list(dict.fromkeys(names))
    if not names:
        return []
    shown = ", ".join(names[:_MOST_NAMES]) + (" …" if len(names) > _MOST_NAMES else "")
    what = f"the value of {shown} is not shown, because its name suggests a secret"
    if len(names) > 1:
        what = f"the values of {shown} are not shown, because their names suggest secrets"
    return [
        Event(now, Reason.VALUE_MASKED, f"{what}; better {store_as_secret(variable_of(names[0]))}")
    ]
