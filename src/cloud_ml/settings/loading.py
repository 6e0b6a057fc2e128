"""Settings from their sources, later ones winning: defaults, a TOML file, the environment,
command-line options.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec, common
from cloud_ml.settings.all_settings import Settings
from cloud_ml.settings.checks import check


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
            document[theme].update(
                {name: value for name, value in values.items() if value is not None}
            )
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
            raise common.refuse(
                theme, values, f"a table: [{theme}] on a line of its own, its settings below"
            )
    return document


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return f"line {line} is not UTF-8 text; save the file as UTF-8"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for theme in dataclasses.fields(Settings):
        for setting in dataclasses.fields(cast("Any", theme.default_factory)):
            text = environment.get(f"CLOUDML_{theme.name}_{setting.name}".upper())
            if text is not None:
                found.setdefault(theme.name, {})[setting.name] = _read(
                    text, str(setting.type), setting.name
                )
    return found


def _read(text: str, type_name: str, name: str) -> Any:
    try:
        if type_name == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
                text.lower()
            ]
        return {"int": int, "float": float, "str": str}[type_name](text)
    except (KeyError, ValueError):
        raise InvalidRequest(
            f"the setting {name} is {text!r}; allowed is a value of type {type_name}",
            field=name,
            value=text,
        ) from None
