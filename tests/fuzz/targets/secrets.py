"""Secrets: how jobs ask for them, names that suggest one, the file of the sealing key, and
sealed values.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path

from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.models import parameter_file
from cloud_ml.models.common import is_unicode
from cloud_ml.models.secrets import arguments as secret_arguments_module
from cloud_ml.models.secrets import commands as secret_commands_module
from cloud_ml.models.secrets import secret
from cloud_ml.sealing import KeyFile
from fuzz.harness import target, text

_FOLDER = tempfile.TemporaryDirectory(prefix="cloudml-fuzz-")
_HOME = Path(_FOLDER.name)
_KEY = KeyFile(_HOME / "whole")
_KEY.make()
_SEALED = _KEY.seal(b"value", "default/db")


@target(
    "models.secrets.secret",
    seeds=[
        "db-password",
        "db=DB_PASSWORD",
        "../db",
        "db=LD_PRELOAD",
        "a=b=c",
        "=",
        "HF_TOKEN",
        "maxTokens",
        "a" * 500,
    ],
    words=["=", "_", "-", "../", "LD_", "CLOUDML_", "TOKEN", "KEY", "PASS", "\0", "\n", "ß"],
)
def requested_secrets(data: bytes) -> None:
    """What passes is a name that stays in its folder and a variable that a program may have."""
    value = text(data)
    secret.looks_secret(value)
    with contextlib.suppress(InvalidRequest):
        (use,) = secret.uses_of(secret.check_secrets("secrets", [value]))
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", use.name)
        assert not use.variable or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", use.variable)
        assert not use.variable.startswith(("LD_", "CLOUDML_"))


@target(
    "models.parameter_file",
    seeds=['{"lr": 0.1, "api-token": "x"}', '{"url": "a://b:c@d"}', "[1]", '{"a": {"b": 1}}'],
    words=['"token": ', "1e999", "null", "true", "{", "}", '"', ", ", "\\ud800"],
)
def parameters_of_a_job(data: bytes) -> None:
    """What is shown is a JSON object of the same names, without values whose names suggest a secret."""
    value = text(data)
    found = parameter_file.decode_parameters(value)
    shown = secret.masked_value(parameter_file.VARIABLE, value)
    if found is None:
        assert shown == value
        return
    if all(map(is_unicode, [*found, *map(str, found.values())])):  # else halves may become one
        assert parameter_file.decode_parameters(parameter_file.encode_parameters(found)) == found
    masked = parameter_file.decode_parameters(shown)
    assert masked is not None
    assert len(masked) <= len(found)
    for name, each in masked.items():
        plain = found.get(name, each) not in ("", each)
        assert not plain or secret.has_mask(parameter_file.VARIABLE, shown)


@target(
    "models.secrets.arguments",
    seeds=[
        "--password x",
        "--token=a --token b",
        "-k 'a b' c",
        "a://b:c@d --api-key",
        "db.password=x",
        "--secret ******",
    ],
    words=["--", "=", "'", "password", "--token ", "://a:b@", "******", " ", "\n"],
)
def secret_arguments(data: bytes) -> None:
    """What is shown leads back to what was given, and is shown as it is."""
    given = text(data)
    words = given.split("\n")
    shown = secret_arguments_module.mask_words(words)
    assert secret_arguments_module.mask_words(shown) == shown
    if not secret_arguments_module.flags_with_masks(words):
        assert secret_arguments_module.fill_masked_arguments(shown, words) == words
    secret_arguments_module.masked_arguments(given)


@target(
    "models.secrets.commands",
    seeds=[
        "export TOKEN=a; curl --token 'b c' x",
        'login --password $PASSWORD && (echo "$(cat token)")',
        "pip install https://u:p@host/x\n--secret",
        "A_KEY='x",
    ],
    words=["--token ", "TOKEN=", "'", '"', "$", "$(", ";", "&&", "\\", "://a:b@", "******", "\n"],
)
def secret_commands(data: bytes) -> None:
    """What is shown leads back to what was given, is shown as it is, and names the same flags."""
    given = text(data)
    shown = secret_commands_module.mask_command(given)
    assert secret_commands_module.mask_command(shown) == shown
    flags = secret_commands_module.masked_command_flags(given)
    if not secret_commands_module.command_flags_with_masks(given):
        assert secret_commands_module.command_flags_with_masks(shown) == flags
        assert secret_commands_module.fill_masked_command(shown, given) == given


@target(
    "sealing",
    seeds=[
        _KEY.path.read_bytes(),
        b"#\n",
        b"AAAA\n",
        _SEALED.encode(),
        b"1:%s:" % _KEY.keys()[0].id.encode(),
    ],
    words=["1:", ":", "=", "\n", "#", "+/", _KEY.keys()[0].id],
)
def sealing_keys(data: bytes) -> None:
    """A file is keys of 32 bytes or an error; only what was sealed here opens."""
    file = KeyFile(_HOME / "made-up")
    file.path.write_bytes(data)
    with contextlib.suppress(Unavailable):
        assert all(len(one.key) == 32 for one in file.keys())  # noqa: SIM118 - no mapping
    sealed = text(data)
    with contextlib.suppress(Unavailable):
        assert _KEY.open(sealed, "default/db") == b"value"
    _KEY.opens(sealed)
