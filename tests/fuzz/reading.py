"""Finds out which modules of ours read text or bytes that others wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "cloud_ml"
_APART = ("testing", "environments/compat", "state/sql/migrations")

_CALLS = frozenset(
    {
        "json.loads",
        "json.load",
        "tomllib.loads",
        "tomllib.load",
        "yaml.load",
        "ast.parse",
        "configparser.RawConfigParser",
        "urlsplit",
        "urlparse",
        "parse_qsl",
        "parse_qs",
        "unquote",
        "unquote_to_bytes",
        "unquote_plus",
        "datetime.fromisoformat",
        "date.fromisoformat",
        "datetime.strptime",
        "parsedate_to_datetime",
        "email.message_from_bytes",
        "BytesParser",
        "Parser",
        "zipfile.ZipFile",
        "tarfile.open",
        "tarfile.TarFile",
        "struct.unpack",
        "struct.unpack_from",
        "base64.b64decode",
        "b64decode",
        "bytes.fromhex",
        "ipaddress.ip_address",
        "ipaddress.ip_network",
        "shlex.split",
    }
)
_METHODS = frozenset(
    {"fullmatch", "match", "search", "findall", "finditer", "isdigit", "isdecimal"}
)


def reads(tree: ast.AST) -> Iterator[str]:
    """The calls in it that make sense of text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in _CALLS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
            ):
                yield name
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in _METHODS
            and isinstance(node.ctx, ast.Load)
        ):
            yield ast.unparse(node)  # handed on as a function


def modules() -> dict[str, set[str]]:
    """Module below ``cloud_ml`` (``auth.headers``) → the calls in it."""
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).with_suffix("").as_posix()
        if not name.startswith(_APART) and (
            calls := set(reads(ast.parse(file.read_text("utf-8"))))
        ):
            found[name.removesuffix("/__init__").replace("/", ".")] = calls
    return found


if __name__ == "__main__":
    for name, calls in modules().items():
        print(name, sorted(calls))
