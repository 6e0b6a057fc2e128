"""Lines of requirements: what they name, and which of them the platform accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = re.compile(
    r"^\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[^\]]*\])?\s*(.*)$", re.DOTALL
)
_COMMENT = re.compile(r"(^|\s)#.*$")
_URL = re.compile(r"^@\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_ARCHIVE = re.compile(r"\.(?:whl|egg|zip|tar|tgz|tbz|tbz2|txz|tlz|tar\.\w+)$", re.IGNORECASE)
"""The end of a name that an installer takes for a file beside it."""
_ADDRESS = re.compile(r"(https?|git\+\w+|ssh)://")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
"""All but the tab. An installer would read what follows a line break as another line, such as an
option.
"""
_SECRET = re.compile(r"(://)[^/ ]*@")
"""Up to a space: other white space is shown as an escape, and would be a part of the secret
then.
"""
_REMOTE_SCHEMES = frozenset({"https", "http", "git+https", "git+http"})
_FROM_OPERATOR = "; where packages come from is set by the operator of the server"
_INSTEAD = dict.fromkeys(
    ("-i", "--index-url", "--extra-index-url", "-f", "--find-links"), _FROM_OPERATOR
) | dict.fromkeys(("-e", "--editable"), "; put that code beside the trainer's")


class BadRequirement(ValueError):
    """A line that is not taken, with the reason as a sentence."""


@dataclass(frozen=True)
class Requirement:
    """One requirement: ``text`` as it was written, and what could be read of it.

    ``name`` is normalised (``tf-keras``). ``url`` tells a direct reference (``name @ https://…``),
    whose code comes from wherever its author says.
    """

    text: str
    name: str
    specifier: str
    url: bool = False

    @property
    def shown(self) -> str:
        """The text for people: without credentials."""
        return without_secrets(self.text)


def without_secrets(text: str) -> str:
    """``text`` with the part before the host of every address in it blotted out."""
    return _SECRET.sub(r"\1****@", text)


def normalise_name(name: str) -> str:
    """The name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str) -> Requirement:
    """Read one requirement.

    Raises:
        BadRequirement: It is no requirement by name, refers to a local file, or is more than one
            line.
    """
    if _CONTROL.search(text):
        raise BadRequirement(
            f"{without_secrets(text)!r} is more than one line or holds a control character"
        )
    if address := _ADDRESS.match(text):
        shown = without_secrets(text)
        raise BadRequirement(
            f"{shown!r} names no package; write NAME @ "
            f"{shown if address[1] in _REMOTE_SCHEMES else 'git+https://…'}"
            " or put the code beside the trainer's"
        )
    found = _NAME.match(text)
    if not found:
        raise BadRequirement(f"{without_secrets(text)!r} is not a requirement by name")
    name, _, rest = found.groups()
    if _ARCHIVE.search(name):
        raise BadRequirement(
            f"{without_secrets(text)!r} names a file; name the package, or put the code "
            "beside the trainer's"
        )
    if rest.startswith("@"):
        scheme = _URL.match(rest)
        if not scheme or scheme.group(1).lower() not in _REMOTE_SCHEMES:
            raise BadRequirement(
                f"{without_secrets(text)!r} refers to something other than a package index or "
                "an https address"
            )
        return Requirement(text, normalise_name(name), "", url=True)
    # PEP 508 allows a version in parentheses.
    specifier = rest.split(";", 1)[0].strip().removeprefix("(").removesuffix(")").strip()
    if specifier and specifier[0] not in "=<>!~":
        raise BadRequirement(f"{without_secrets(text)!r} is not a requirement by name and version")
    return Requirement(text, normalise_name(name), specifier)


def parse_all(lines: Iterable[str]) -> tuple[Requirement, ...]:
    """Read several; the first bad one raises `BadRequirement`."""
    return tuple(parse(line) for line in lines)


def from_file_text(text: str) -> tuple[list[str], list[str]]:
    """The requirement lines of a ``requirements.txt`` and sentences about lines that were left out.

    Options are left out: which index packages come from is the platform's to say, and hashes
    belong to a lock that the platform makes itself.

    Raises:
        BadRequirement: A line is neither a requirement nor an option.
    """
    lines: list[str] = []
    notices: list[str] = []
    for raw in text.replace("\\\n", " ").splitlines():
        line = _COMMENT.sub("", raw).strip()
        if line.startswith("-"):
            option = line.split()[0].split("=")[0]
            notices.append(
                f"requirements.txt: the option {option!r} is left out{_INSTEAD.get(option, '')}"
            )
        elif line:
            # Drop per-requirement options, such as --hash.
            line = re.split(r"\s--\w", line, maxsplit=1)[0].strip()
            parse(line)
            lines.append(line)
    return lines, notices


def locked_versions(lock: str) -> dict[str, str]:
    """Name to version of every ``name==version`` line of a lock."""
    pins: dict[str, str] = {}
    for line in lock.splitlines():
        head = line.split(" ", 1)[0]
        if "==" in head and not head.startswith(("-", "#")):
            name, version = head.split("==", 1)
            pins[normalise_name(name)] = version.rstrip("\\").strip()
    return pins
