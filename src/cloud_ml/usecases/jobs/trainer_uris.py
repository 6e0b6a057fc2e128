"""Where trainers may come from: ``fds://``, ``http(s)://``, ``git+https://`` and, if the
operator says so, ``file://``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.settings import TrainerSettings

_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}")
_FIELD = "trainer_uri"
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_FOLDER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._/+ -]{0,499}")
_GIT_FORM = "git+https://host/path, @ and a branch, tag or commit, #subdirectory= and a folder"


@dataclass(frozen=True, slots=True)
class WebTrainer:
    """A trainer on the web. ``name`` is its file's name, ``sha256`` what it must have, if the URL
    says so.

    With ``git`` the URL is a repository: ``ref`` names a commit of it, empty for the default
    branch, and ``subdirectory`` a folder.
    """

    url: str
    name: str
    sha256: str | None
    git: bool = False
    ref: str = ""
    subdirectory: str = ""


@dataclass(frozen=True, slots=True)
class FileTrainer:
    """A trainer in a folder of the server's machine that the operator has opened to all jobs."""

    path: PurePosixPath


TrainerUri = common.ObjectUri | WebTrainer | FileTrainer


def parse_trainer_uri(text: str, settings: TrainerSettings) -> TrainerUri:
    """Read the URI of a trainer.

    Raises:
        InvalidRequest: It is malformed, or of a kind that this server does not take.
    """
    scheme = text.partition(":")[0].lower()
    if scheme == "fds":
        where = common.parse_object_uri(_FIELD, text)
        if not where.key:
            raise common.refuse(_FIELD, text, "fds://bucket/path with a path")
        return where
    if scheme in ("http", "https", "git+http", "git+https"):
        if settings.urls == "none":
            raise common.refuse(
                _FIELD,
                text,
                f"{_describe_allowed(settings)}: this server fetches nothing from the web",
            )
        return _git(text) if scheme.startswith("git+") else _web(text)
    if scheme == "file" and settings.folders:
        return _file(text, settings)
    raise common.refuse(_FIELD, text, _describe_allowed(settings))


def _git(text: str) -> WebTrainer:
    """``git+https://host/path@REF#subdirectory=FOLDER``, as pip writes it."""
    address, _, fragment = text.removeprefix("git+").partition("#")
    base, separator, ref = address.rpartition("@")
    # An @ before the path belongs to the host, and begins no ref.
    if not separator or "/" not in base.partition("://")[2]:
        base, ref, separator = address, "", ""
    found = _web(base)
    below = unquote(fragment.removeprefix("subdirectory=")).strip("/")
    named = not fragment or (fragment.startswith("subdirectory=") and _is_folder(below))
    parts = urlsplit(base)
    if not named or (separator and not _is_ref(ref)) or parts.query or not parts.path.strip("/"):
        raise common.refuse(_FIELD, text, _GIT_FORM)
    name = found.name.removesuffix(".git") or "trainer"
    return WebTrainer(found.url, f"{name}.tar", None, git=True, ref=ref, subdirectory=below)


def _is_ref(text: str) -> bool:
    return _REF.fullmatch(text) is not None and ".." not in text


def _is_folder(text: str) -> bool:
    parts = text.split("/")
    return _FOLDER.fullmatch(text) is not None and not {"", ".", ".."} & set(parts)


def _web(text: str) -> WebTrainer:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises what is wrong with it
    except ValueError:
        # The value is left out: a password with "/" or "#" in it looks like a port.
        raise InvalidRequest(
            f"{_FIELD} is not a URL: it needs a host, and a port if there is a colon",
            field=_FIELD,
            allowed="a URL such as https://host/trainer-1.0.tar.gz, without user and password",
        ) from None
    if parts.username is not None or parts.password is not None:
        # The value is left out: it holds a password.
        raise InvalidRequest(
            f"{_FIELD} has a user or a password in it, which everybody who sees the job could read",
            field=_FIELD,
            allowed="a URL without them",
            hint="upload the package: cloudml storage cp FILE fds://bucket/",
        )
    if (
        not parts.hostname
        or len(text) > 2048
        or not text.isascii()
        or not text.isprintable()
        or " " in text
    ):
        raise common.refuse(
            _FIELD,
            text,
            "a URL such as https://host/trainer-1.0.tar.gz, of at most 2048 ASCII letters",
        )
    digest = _SHA256.fullmatch(parts.fragment)
    if parts.fragment and digest is None:
        raise common.refuse(_FIELD, text, "no fragment, or #sha256= and 64 lower-case hex digits")
    name = unquote(parts.path).rpartition("/")[2]
    plain = name if _FILE_NAME.fullmatch(name) else "trainer"
    return WebTrainer(text.partition("#")[0], plain, digest[1] if digest else None)


def _file(text: str, settings: TrainerSettings) -> FileTrainer:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise common.refuse(_FIELD, text, _describe_allowed(settings)) from None
    path = PurePosixPath(unquote(parts.path))
    inside = any(
        path.is_relative_to(folder.strip())
        for folder in settings.folders.split(",")
        if folder.strip()
    )
    if (
        parts.netloc not in ("", "localhost")
        or parts.query
        or parts.fragment
        or ".." in path.parts
        or not inside
    ):
        raise common.refuse(
            _FIELD,
            text,
            f"{_describe_allowed(settings)}; files only in a folder that the operator has opened",
        )
    return FileTrainer(path)


def _describe_allowed(settings: TrainerSettings) -> str:
    ways = ["fds://bucket/path"]
    if settings.urls != "none":
        ways.append("https://host/path (or http)")
        ways.append("git+https://host/path@REF#subdirectory=FOLDER")
    if settings.folders:
        ways.append("file:///path in an open folder")
    return " or ".join(ways) + " of a package"
