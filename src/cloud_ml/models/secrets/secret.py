"""Secrets over HTTP. A value goes to the server once and never comes back: jobs get it, and
nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common, parameter_file, suggestions

FOLDER = "/run/secrets"
"""Where a job finds its secrets, each as a file of its name."""
READY, UNREADABLE = "Ready", "Unreadable"
MASK = "******"
"""Stands for a value that is not shown."""
LONGEST_VARIABLE_BYTES = 32_768
"""The largest secret that can be a variable."""
_MOST_USES = 100
_ALLOWED_USE = "NAME for the file /run/secrets/NAME, or NAME=VARIABLE for a variable"
_RESERVED_PREFIXES = ("CLOUDML_", "LD_")
_RESERVED = frozenset(
    {
        "BASH_ENV",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "HOME",
        "IFS",
        "LANG",
        "LOCPATH",
        "PATH",
        "PWD",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONUNBUFFERED",
        "SHELL",
        "TMPDIR",
        "USER",
        "VIRTUAL_ENV",
    }
)
"""Variables that decide how a program starts, and none is secret."""
_SECRET_WORDS = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRETS?|CREDENTIALS?|APIKEY|CONNECTION_STRING|"
    r"(?:API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION|SIGNING|ACCOUNT|STORAGE)_?KEY)(?:$|_)|"
    r"(?:^|_)(?:PASS|PWD)$|(?:PASSWORD|TOKEN|SECRET|APIKEY)$"
)
_URL_PASSWORD = re.compile(r"(://[^/?#\s:@]*:)[^/\s]*@")
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
_NOT_SECRET_ENDS = (
    "_FILE",
    "_PATH",
    "_DIR",
    "_NAME",
    "_URL",
    "_TYPE",
    "_TTL",
    "_LENGTH",
    "_LEN",
    "_SIZE",
    "_COUNT",
)
_MEASURES = re.compile(
    r"(?:MAX|MIN|NUM|N|PAD|EOS|BOS|CLS|SEP|UNK|MASK|STOP|SPECIAL|TOTAL)_(?:\w+_)?TOKENS?(?:_IDS?)?|\w*TOKENS|TOKENIZERS?_\w+"
)
"""Tokens of texts, which are no secrets."""


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret without its value. ``state`` is ``Ready``, or ``Unreadable`` where the server lacks
    its sealing key.

    ``used_by`` names unfinished jobs and model services that use it, such as ``job churn``, at most 20. It is ``None``
    in lists.
    """

    name: str
    org: str
    owner: str
    size: int
    state: str
    created_at: datetime
    updated_at: datetime
    used_by: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SecretPage:
    """Secrets by name."""

    items: list[Secret]


@dataclass(frozen=True, kw_only=True)
class NewSecret:
    """A secret to be stored: ``data`` is its value in base64. With ``replace`` an existing one
    gets the new value.
    """

    name: str
    data: str = field(repr=False)
    replace: bool = False


@dataclass(frozen=True)
class SecretUse:
    """A secret as a job asks for it: a file, or with ``variable`` an environment variable."""

    name: str
    variable: str = ""

    @classmethod
    def parse(cls, text: str) -> SecretUse:
        """Read ``NAME`` or ``NAME=VARIABLE``, checked before."""
        name, _, variable = text.partition("=")
        return cls(name, variable)


def uses_of(secrets: Sequence[str] | None) -> list[SecretUse]:
    """What a checked list of secrets asks for."""
    return [SecretUse.parse(text) for text in secrets or ()]


def check_secrets(
    field: str, values: Any, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Secrets that a job asks for; each is ``NAME`` or ``NAME=VARIABLE``.

    Raises:
        InvalidRequest: One is malformed, is given twice, or sets a variable that the platform or
            ``environment`` sets.
    """
    if not isinstance(values, list) or len(values) > _MOST_USES:
        raise common.refuse(
            field, values, f"a list of at most {_MOST_USES} texts such as db-password=DB_PASSWORD"
        )
    seen: dict[str, str] = {}
    for number, value in enumerate(values):
        use = _check_use(f"{field}[{number}]", value)
        if use.variable in (environment or {}):
            raise InvalidRequest(
                f"{field}: {value!r} sets the variable {use.variable}, which environment sets, too",
                field=field, value=value, allowed=f"{use.variable} in one of the two",
            )  # fmt: skip
        target = f"the variable {use.variable}" if use.variable else f"the file {FOLDER}/{use.name}"
        if target in seen:
            raise InvalidRequest(
                f"{field}: {seen[target]!r} and {value!r} both set {target}",
                field=field, value=value, allowed="each file and each variable once",
            )  # fmt: skip
        seen[target] = value
    return values


def _swapped(name: str, variable: str) -> str:
    """``hf=HF_TOKEN`` for the ``HF_TOKEN=hf`` of other tools; empty if it is not that."""
    is_swapped = common.NAME.fullmatch(variable) and name.isidentifier() and len(variable) <= 63
    return f"{variable}={name}" if is_swapped else ""


def _check_use(field: str, value: Any) -> SecretUse:
    if not isinstance(value, str) or len(value) > 400:
        raise common.refuse(field, value, _ALLOWED_USE)
    name, equals, variable = value.partition("=")
    if len(name) > 63 or not common.NAME.fullmatch(name):
        raise common.refuse(
            field,
            value,
            f"{_ALLOWED_USE}; a name has {common.NAME_ALLOWED}",
            suggestion=_swapped(name, variable) or suggestions.name(name),
        )
    if not equals:
        return SecretUse(name)
    common.check_environment(field, {variable: ""})
    if variable in _RESERVED or variable.startswith(_RESERVED_PREFIXES):
        raise InvalidRequest(
            f"{field} is {value!r}: the variable {variable} cannot be set by a secret",
            field=field,
            value=value,
            allowed="a variable that does not begin with CLOUDML_ or LD_, and not PATH, HOME, "
            "PYTHONPATH or another that decides how programs start",
        )
    return SecretUse(name, variable)


def looks_secret(variable: str) -> bool:
    """Whether the value of a variable of this name is likely to be a secret, such as
    ``DB_PASSWORD``.
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", variable).upper()
    if name in _NOT_SECRET or name.endswith(_NOT_SECRET_ENDS) or _MEASURES.fullmatch(name):
        return False
    return bool(_SECRET_WORDS.search(name))


def masked_names(environment: Mapping[str, str]) -> list[str]:
    """The variables whose values are not shown."""
    return [name for name, value in environment.items() if masked_value(name, value) != value]


def masked_value(variable: str, value: str) -> str:
    """The value of a variable as it may be shown: of a URL, without the password in it, and of
    parameters, each masked by its name.
    """
    if variable == parameter_file.VARIABLE:
        return _mask_parameters(value)
    if value and looks_secret(variable):
        return MASK
    return _URL_PASSWORD.sub(rf"\1{MASK}@", value) if "://" in value else value


def _mask_parameters(text: str) -> str:
    """Parameters in JSON as they may be shown; the text itself if nothing is masked."""
    found = parameter_file.decode_parameters(text) or {}
    masked = {name: masked_value(name.replace("-", "_"), str(each)) for name, each in found.items()}
    shown = {name: each if masked[name] == str(each) else masked[name]
             for name, each in found.items()}  # fmt: skip
    return text if shown == found else parameter_file.encode_parameters(shown)


def has_mask(variable: str, value: str) -> bool:
    """Whether a value is one as it is shown, and not the value itself."""
    if variable == parameter_file.VARIABLE:
        found = parameter_file.decode_parameters(value) or {}
        return any(has_mask(name.replace("-", "_"), str(each)) for name, each in found.items())
    return (value == MASK and looks_secret(variable)) or f":{MASK}@" in value


def store_as_secret(variable: str) -> str:
    """What to do instead of giving a secret as a variable."""
    name = suggestions.name(variable) or "name"
    return f"store it: cloudml secret create {name}, then --secret {name}={variable}"


def mask_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables as they may be shown."""
    return {name: masked_value(name, value) for name, value in environment.items()}
