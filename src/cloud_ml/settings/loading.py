"""Settings from their sources, later ones winning: defaults, a TOML file, the environment,
command-line options.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec, common
from cloud_ml.settings.all_settings import Settings
from cloud_ml.settings.checks import check

_PREFIX = "CLOUDML_"
_SERVICE_LINK = re.compile(
    r".+_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.+)?)?)"
)
"""Variables that Kubernetes sets in a container for a service, such as ``cloudml-server``."""
_LONGEST_NAME = 100
"""Longer names are compared by their beginnings: the comparison takes quadratic time."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Merge all sources.

    Args:
        file: A TOML file, or ``None``.
        environment: Usually ``os.environ``.
        options: Theme → name → value, from the command line; ``None`` values count as not given.

    Raises:
        InvalidRequest: A source names an unknown setting, or a value of the wrong type or out of
            range.
    """
    document: dict[str, dict[str, Any]] = {theme.name: {} for theme in dataclasses.fields(Settings)}
    for source in (_from_file(file), _from_environment(environment or {}), options or {}):
        for theme, values in source.items():
            if theme not in document:
                raise InvalidRequest(
                    f"there is no group of settings named {theme}",
                    field=theme,
                    allowed=", ".join(document),
                )
            for name in values:
                _check_theme(theme, name)
            document[theme].update(
                {name: value for name, value in values.items() if value is not None}
            )
    _check_quotes(document)
    settings = codec.decode(Settings, document)
    check(settings)
    return settings


def _from_file(file: Path | None) -> Mapping[str, Mapping[str, Any]]:
    if file is None:
        return {}
    try:
        document = tomllib.loads(file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"the settings file {file} cannot be read: {_reason(error)}", field="config"
        ) from error
    for theme, values in document.items():
        if not isinstance(values, dict):
            raise _no_table(theme, values)
    return document


def _no_table(name: str, value: Any) -> InvalidRequest:
    """The refusal of a setting that stands in the file above every table."""
    if not (themes := _themes_of(name)):
        allowed = f"a table: [{name}] on a line of its own, its settings below"
        return common.refuse(name, value, allowed)
    tables = " or ".join(f"[{theme}]" for theme in themes)
    return InvalidRequest(
        f"{name} stands above every table of the settings file; put it below the line {tables}",
        field=name,
        value=value,
    )


def _themes_of(name: str) -> list[str]:
    """The themes that have a setting of this name."""
    return [
        theme.name
        for theme in dataclasses.fields(Settings)
        if name in getattr(theme.default_factory, "__dataclass_fields__", ())
    ]


def _check_theme(theme: str, name: str) -> None:
    """Refuse a setting that only other themes have. The codec refuses what no theme has."""
    themes = _themes_of(name)
    if themes and theme not in themes:
        tables = " or ".join(f"[{other}]" for other in themes)
        raise InvalidRequest(
            f"{theme}.{name} is not a setting; {name} belongs below {tables}",
            field=f"{theme}.{name}",
        )


def _check_quotes(document: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse numbers in the place of texts, with what the text must be."""
    for theme in dataclasses.fields(Settings):
        texts = {
            setting.name
            for setting in dataclasses.fields(cast("Any", theme.default_factory))
            if setting.type == "str"
        }
        for name, value in document[theme.name].items():
            if name in texts and type(value) in (int, float):
                raise _unquoted(f"{theme.name}.{name}", value)


def _unquoted(field: str, value: float) -> InvalidRequest:
    theme, _, name = field.partition(".")
    try:
        check(codec.decode(Settings, {theme: {name: str(value)}}))
    except InvalidRequest as error:
        if error.field == field and error.allowed:
            return common.refuse(field, value, f"{error.allowed}; write it in quotes")
    return common.refuse(field, value, f'a text in quotes: {name} = "{value}"')


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return f"line {line} is not UTF-8 text; save the file as UTF-8"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    variables = _variables()
    found: dict[str, dict[str, Any]] = {}
    for variable, text in environment.items():
        if variable in variables:
            theme, setting = variables[variable]
            if not _is_service_link(variable, text):
                found.setdefault(theme, {})[setting.name] = _read(
                    text, str(setting.type), f"{theme}.{setting.name}"
                )
        else:
            _check_unknown_variable(variable, text, list(variables))
    return found


def _variables() -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    """The variable of each setting, with its theme and its field."""
    return {
        f"{_PREFIX}{theme.name}_{setting.name}".upper(): (theme.name, setting)
        for theme in dataclasses.fields(Settings)
        for setting in dataclasses.fields(cast("Any", theme.default_factory))
    }


def _check_unknown_variable(variable: str, text: str, known: list[str]) -> None:
    """Refuse a misspelt setting. Variables of clients, jobs and tests begin with no theme.

    Raises:
        InvalidRequest: The variable begins as a setting does, and is none.
    """
    themes = (f"{_PREFIX}{theme.name}_".upper() for theme in dataclasses.fields(Settings))
    theme = next((theme for theme in themes if variable.startswith(theme)), "")
    if not theme or _is_service_link(variable, text):
        return
    of_theme = [name for name in known if name.startswith(theme)]
    near = get_close_matches(variable[:_LONGEST_NAME], of_theme, n=1)
    raise InvalidRequest(
        f"the environment variable {variable[:_LONGEST_NAME]} is not a known setting"
        + (f"; did you mean {near[0]}?" if near else ""),
        field=variable[:_LONGEST_NAME],
        allowed="one of " + ", ".join(near or of_theme),
        hint="correct its name, or remove it from the environment of this command",
    )


def _is_service_link(variable: str, text: str) -> bool:
    if not _SERVICE_LINK.fullmatch(variable):
        return False
    is_own_port = variable.endswith("_PORT") and not variable.endswith("_SERVICE_PORT")
    return "://" in text or not is_own_port


_TYPES = {"bool": "yes or no", "int": "a whole number", "float": "a number"}
"""What an operator may write, by the type of a setting."""


def _read(text: str, type_name: str, name: str) -> Any:
    try:
        if type_name == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
                text.lower()
            ]
        return {"int": int, "float": float, "str": str}[type_name](text)
    except (KeyError, ValueError):
        variable = f"CLOUDML_{name}".replace(".", "_").upper()
        allowed = _TYPES[type_name]
        raise InvalidRequest(
            f"the variable {variable} is {common.format_value(text)}; allowed is {allowed}",
            field=name,
            value=text,
            allowed=allowed,
        ) from None
