"""Lock files of other tools, read as requirements: ``uv.lock`` and ``pylock.toml`` (PEP 751).

Both list exact versions for several platforms. Each package becomes a line
``name==version ; marker``, so that the platform's own resolver decides which of them this machine
needs.
"""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cloud_ml.environments.packages.requirements import BadRequirement, normalise_name, parse

MOST_PACKAGES = 1000
_STEPS = 50_000
_ALTERNATIVES = 8
"""A package that is reached under more conditions than this is required under all."""

_Key = tuple[str, str]


def from_pylock(text: str) -> tuple[list[str], list[str]]:
    """Requirements of a ``pylock.toml``, and sentences about what was left out.

    Raises:
        BadRequirement: It is no such file.
    """
    document = parse_toml(text)
    lines, left_out = [], []
    for package in _tables(document.get("packages"), "packages"):
        name, marker = _text(package, "name"), _text(package, "marker")
        if "dependency_groups" in marker or "extras" in marker:
            continue  # of groups and extras that nobody has asked for
        reference = _pylock_reference(package)
        if reference is None:
            left_out.append(name)
        else:
            lines.append(_line(name, reference, marker))
    return _check_length(lines), _notices("pylock.toml", left_out)


def from_uv_lock(text: str) -> tuple[list[str], list[str]]:
    """Requirements of the project that a ``uv.lock`` belongs to, and sentences about what was left
    out.

    Raises:
        BadRequirement: It is no such file.
    """
    packages: dict[str, list[dict[str, Any]]] = {}
    root = None
    for package in _tables(parse_toml(text).get("package"), "package"):
        packages.setdefault(_text(package, "name"), []).append(package)
        source = package.get("source")
        if isinstance(source, dict) and "." in (source.get("virtual"), source.get("editable")):
            root = package
    if root is None:
        raise BadRequirement("no package in it is the project of this folder")
    lines, left_out = [], []
    for (name, version), conditions in _find_reachable(root, packages).items():
        package = next(one for one in packages[name] if _text(one, "version") == version)
        reference = _uv_reference(package)
        if reference is None:
            left_out.append(name)
        else:
            marker = (
                "" if "" in conditions else " or ".join(f"({one})" for one in sorted(conditions))
            )
            lines.append(_line(name, reference, marker))
    return _check_length(lines), _notices("uv.lock", left_out)


def _find_reachable(
    root: dict[str, Any], packages: dict[str, list[dict[str, Any]]]
) -> dict[_Key, set[str]]:
    """Each package that the project needs → the markers under which it does; an empty one is
    always true.
    """
    found: dict[_Key, set[str]] = {}
    taken: set[tuple[int, str, tuple[str, ...]]] = set()
    waiting = deque((edge, "") for edge in _edges(root, ()))
    for _ in range(_STEPS):
        if not waiting:
            return found
        edge, above = waiting.popleft()
        marker = _both(above, _text(edge, "marker"))
        for package in packages.get(_text(edge, "name"), ()):
            version = _text(package, "version")
            if package is root or _text(edge, "version") not in ("", version):
                continue
            known = found.setdefault((_text(package, "name"), version), set())
            if len(known) >= _ALTERNATIVES:
                marker = ""
            extras = _extras(edge)
            step = (id(package), marker, extras)
            if step in taken or (not extras and ("" in known or marker in known)):
                continue
            taken.add(step)
            known.add(marker)
            waiting.extend((one, marker) for one in _edges(package, extras))
    raise BadRequirement("its packages require each other in too many ways")


def _extras(edge: dict[str, Any]) -> tuple[str, ...]:
    extras = edge.get("extra", [])
    return tuple(map(str, extras)) if isinstance(extras, list) else ()


def _edges(package: dict[str, Any], extras: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield from _tables(package.get("dependencies", []), "dependencies")
    optional = package.get("optional-dependencies")
    if isinstance(optional, dict):
        for extra in extras:
            yield from _tables(optional.get(extra, []), "optional-dependencies")


def _uv_reference(package: dict[str, Any]) -> str | None:
    source = package.get("source")
    source = source if isinstance(source, dict) else {}
    if "registry" in source:
        return f"=={_text(package, 'version')}"
    if isinstance(git := source.get("git"), str):
        parts = urlsplit(git)
        below = parse_qs(parts.query).get("subdirectory", [""])[0]
        return _git_reference(parts._replace(query="", fragment="").geturl(), parts.fragment, below)
    return f" @ {source['url']}" if isinstance(source.get("url"), str) else None


def _pylock_reference(package: dict[str, Any]) -> str | None:
    vcs, archive = package.get("vcs"), package.get("archive")
    if isinstance(vcs, dict) and vcs.get("type") == "git" and isinstance(vcs.get("url"), str):
        return _git_reference(vcs["url"], _text(vcs, "commit-id"), _text(vcs, "subdirectory"))
    if isinstance(archive, dict):
        return f" @ {archive['url']}" if isinstance(archive.get("url"), str) else None
    version = _text(package, "version")
    return f"=={version}" if version and "directory" not in package else None


def _git_reference(url: str, commit: str, below: str) -> str:
    return (
        f" @ git+{url}"
        + (f"@{commit}" if commit else "")
        + (f"#subdirectory={below}" if below else "")
    )


def _line(name: str, reference: str, marker: str) -> str:
    line = f"{name}{reference}" + (f" ; {marker}" if marker else "")
    if parse(line).name != normalise_name(name):
        raise BadRequirement(f"{line[:200]!r} is not a requirement by name and version")
    return line


def _both(one: str, other: str) -> str:
    return f"({one}) and ({other})" if one and other else one or other


def _check_length(lines: list[str]) -> list[str]:
    if len(lines) > MOST_PACKAGES:
        raise BadRequirement(f"it has {len(lines)} packages; allowed are {MOST_PACKAGES}")
    return lines


def _notices(file: str, left_out: list[str]) -> list[str]:
    if not left_out:
        return []
    return [
        f"{file}: {', '.join(left_out[:8])} of this machine's folders or of unknown origin is "
        "left out"
    ]


def parse_toml(text: str) -> dict[str, Any]:
    """The document of a TOML text.

    Raises:
        BadRequirement: It is not valid, or nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequirement(f"it is not valid TOML: {str(error)[:200]}") from error


def _tables(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise BadRequirement(f"{name} is not a list of tables")
    return value


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise BadRequirement(f"{key} is not a text")
    return value
