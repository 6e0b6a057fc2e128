"""The secrets of a gang as its processes get them: files in the memory of their sandbox, and
variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_ml.engines.gang import Gang

FOLDER = "/run/secrets"
NO_SECRET_FILES = (
    f"this machine has no sandbox, so {FOLDER} cannot be made; use variables (--secret "
    "NAME=VARIABLE), or have bubblewrap installed"
)


def secret_files(gang: Gang) -> Sequence[tuple[bytes, str]]:
    """(content, path) pairs of the secrets that are files."""
    return [(one.value, f"{FOLDER}/{one.name}") for one in gang.secrets if not one.variable]


def secret_variables(gang: Gang) -> Mapping[str, str]:
    """The secrets that are variables. As in a shell, the line break at the end of a file is left
    out.
    """
    found = ((one.variable, one.value.decode("utf-8")) for one in gang.secrets if one.variable)
    return {name: value.removesuffix("\n").removesuffix("\r") for name, value in found}
