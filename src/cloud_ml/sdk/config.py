"""Endpoint and credentials: from arguments, the environment, or the user's file, in this order.

The file holds contexts, each a server and a key or an access token for it::

    {"current": "default", "contexts": {"default": {"endpoint": "…", "access_key": "…", "secret_key": "…"},
                                        "ci": {"endpoint": "…", "token": "…"}}}

With ``"git": false`` beside them, jobs keep nothing of git.
It is readable by its owner only and replaced as a whole, so that a crash leaves the old one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.paths.local import local_path
from cloud_ml.sdk.endpoint import DEFAULT_ENDPOINT, Endpoint, parse_endpoint

_HINT = (
    "Run `cloudml config init`, or set CLOUDML_ACCESS_KEY and CLOUDML_SECRET_KEY, or "
    "CLOUDML_TOKEN. A server of your own makes a key when it first starts: `cloudml server`."
)
_VARIABLES = ("CLOUDML_ENDPOINT", "CLOUDML_ACCESS_KEY", "CLOUDML_SECRET_KEY", "CLOUDML_TOKEN")
"""What the environment may give, in the order of the fields of ``Context``."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key and its secret."""

    access_key: str
    secret_key: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The part that is no secret, for people."""
        return f"access_key={self.access_key!r}"


@dataclass(frozen=True, slots=True)
class TokenCredentials:
    """An access token in place of a key. ``token_id`` is the part of it that is no secret."""

    token: str = field(repr=False)
    token_id: str

    @property
    def shown(self) -> str:
        """The part that is no secret, for people."""
        return f"token={self.token_id!r}"


@dataclass(frozen=True, slots=True)
class Context:
    """A server, and a key or a token for it. An empty value is not set."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The content of the file. With ``git``, jobs keep facts of git."""

    current: str = "default"
    contexts: Mapping[str, Context] = field(default_factory=dict)
    git: bool = True


@dataclass(frozen=True, slots=True)
class Connection:
    """Whom to talk to and as whom: everything a client needs."""

    endpoint: Endpoint
    credentials: Credentials | TokenCredentials


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """The user's file: ``CLOUDML_CONFIG``, else ``cloudml/config.json`` in the folder for
    configuration.
    """
    environment = os.environ if environment is None else environment
    if named := environment.get("CLOUDML_CONFIG"):
        return local_path(named)
    if home := environment.get("XDG_CONFIG_HOME"):
        return Path(home) / "cloudml" / "config.json"
    return Path("~/.config/cloudml/config.json").expanduser()


def resolve(
    *,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    token: str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Connection:
    """Find out whom to talk to and as whom.

    Each value is taken from the first place that has it: the argument, the environment
    (``CLOUDML_ENDPOINT``, ``CLOUDML_ACCESS_KEY``, ``CLOUDML_SECRET_KEY``, ``CLOUDML_TOKEN``), the
    context of the file; the endpoint at last from the default. A ``context`` named by the caller
    goes before the environment; ``CLOUDML_CONTEXT`` says which one stands for the file.

    A key and its secret come from the same place: half a pair is refused, and so are a key and a
    token of one place.

    Raises:
        NotFound: The context that was named does not exist.
        InvalidRequest: There is no key and no token, half of a key, both, a bad endpoint, one over
            which a token would travel unencrypted, or a file that cannot be read.
    """
    environment = os.environ if environment is None else environment
    given = Context(endpoint or "", access_key or "", secret_key or "", token or "")
    _check_no_address(given.access_key)
    sources = _sources(given, context, environment)
    credentials = _credentials_of(sources)
    if credentials is None:
        raise InvalidRequest(
            "there is no access key to sign requests with", field="access_key", hint=_HINT
        )
    server = parse_endpoint(_endpoint_of(sources) or DEFAULT_ENDPOINT)
    if isinstance(credentials, TokenCredentials):
        check_encrypted(server)
    return Connection(server, credentials)


def _check_no_address(access_key: str) -> None:
    """Refuse an address in the place of a key: the two are the first arguments of a client."""
    if ":" in access_key or access_key == "localhost":
        raise InvalidRequest(
            "the access key is an address of a server; did you mean endpoint=?",
            field="access_key",
            allowed="the name of a key",
        )


def _sources(given: Context, context: str | None, environment: Mapping[str, str]) -> list[Context]:
    """The places that may have a value, the first one first. The file is read only if it is
    needed: one that is broken must not stop who gives everything else.
    """
    variables = Context(*(environment.get(name, "") for name in _VARIABLES))
    sources = [given, variables]
    if not context and _credentials_of(sources) and _endpoint_of(sources):
        return sources
    name = context or environment.get("CLOUDML_CONTEXT") or None
    chosen = choose_context(read_configuration(config_path(environment)), name)
    return [given, chosen, variables] if context else [given, variables, chosen]


def read_token(text: str) -> TokenCredentials:
    """The credentials of a token's text. Spaces and line ends around it are ignored. No message
    repeats it.

    Raises:
        InvalidRequest: It is not an access token.
    """
    from cloud_ml.auth import bearer  # noqa: PLC0415 - few clients have a token

    text = text.strip()
    if (parsed := bearer.parse(text)) is not None:
        return TokenCredentials(text, parsed.id)
    if text.startswith(("cmt1.", "cmt2.")):
        message = "this token is only for calls of model services; it was made with `cloudml models token`"
    elif re.fullmatch("tk[a-z0-9]{14}", text):
        message = f"{text} is the id of a token; the whole token is needed, as `cloudml token create` printed it"
    elif text.startswith("cloudml_"):
        message = "the token is incomplete or has further characters"
    else:
        message = "the token is not an access token"
    raise InvalidRequest(
        message,
        field="token",
        allowed="cloudml_ID_SECRET, 68 characters",
        hint="Copy it again, or create one: cloudml token create --scope jobs:write,storage:write",
    )


def check_encrypted(server: Endpoint) -> None:
    """Refuse to send an access token where others can read it.

    Raises:
        InvalidRequest: The connection is neither encrypted nor within this machine.
    """
    if server.secure or server.local:
        return
    raise InvalidRequest(
        f"an access token is not sent to {server}: others could read it on the way",
        field="endpoint",
        value=str(server),
        allowed="https, or an address of this machine",
        hint="Use https:// in the endpoint, or sign requests with an access key.",
    )


def choose_context(configuration: Configuration, name: str | None) -> Context:
    """The context called ``name``, or the current one, which may be missing and is then empty.

    Raises:
        NotFound: There is none of that name.
    """
    if name is None:
        return configuration.contexts.get(configuration.current, Context())
    if name not in configuration.contexts:
        near = get_close_matches(name, configuration.contexts, n=3)
        known = ", ".join(sorted(configuration.contexts)) or "none"
        raise NotFound(
            f'there is no context named "{name}"',
            field="context",
            value=name,
            allowed=known,
            hint=f"Did you mean {' or '.join(near)}?" if near else f"There are: {known}.",
        )
    return configuration.contexts[name]


def read_configuration(path: Path) -> Configuration:
    """Read the file; one that does not exist is empty.

    Raises:
        InvalidRequest: It cannot be read, or is not what we write.
    """
    try:
        document = json.loads(path.read_bytes())
        contexts = {
            str(name): Context(
                **{field: str(values.get(field) or "") for field in Context.__slots__}
            )
            for name, values in document.get("contexts", {}).items()
        }
        current = str(document.get("current") or "default")
        return Configuration(current, contexts, _as_switch("git", document.get("git", True)))
    except FileNotFoundError:
        return Configuration()
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidRequest(
            f"the settings file {path} cannot be read: {error}",
            field="config",
            value=str(path),
            hint="Repair it, or move it away and run `cloudml config init`.",
        ) from error


def _as_switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; allowed is true or false")
    return value


def write_configuration(configuration: Configuration, path: Path) -> None:
    """Replace the file, readable by its owner only.

    Raises:
        InvalidRequest: It cannot be written.
    """
    contexts = {
        name: _document(context) for name, context in sorted(configuration.contexts.items())
    }
    document: dict[str, Any] = {"current": configuration.current, "contexts": contexts}
    if not configuration.git:
        document["git"] = False
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, text.encode())
    except OSError as error:
        raise InvalidRequest(
            f"the settings file {path} cannot be written: {error.strerror}",
            field="config",
            value=str(path),
        ) from error


def write_context(
    name: str, context: Context, *, path: Path | None = None, make_current: bool = True
) -> Path:
    """Add or replace one context and keep the others. Returns the file's path.

    Raises:
        InvalidRequest: The file cannot be read or written, or the endpoint is malformed.
    """
    parse_endpoint(context.endpoint)
    path = path or config_path()
    before = read_configuration(path)
    current = name if make_current or before.current not in before.contexts else before.current
    changed = replace(before, current=current, contexts={**before.contexts, name: context})
    write_configuration(changed, path)
    return path


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    # Created with its mode: until a later ``chmod`` others could open it. With ``O_EXCL`` no link
    # that somebody put there is followed.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            # Before the rename: otherwise a power failure may leave an empty file under the name.
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _document(context: Context) -> dict[str, Any]:
    return {name: value for name in Context.__slots__ if (value := getattr(context, name))}


def _endpoint_of(sources: list[Context]) -> str:
    return next((source.endpoint for source in sources if source.endpoint), "")


def _credentials_of(sources: list[Context]) -> Credentials | TokenCredentials | None:
    for source in sources:
        if source.token and (source.access_key or source.secret_key):
            raise InvalidRequest(
                "an access key and a token are both given; use one of them",
                field="token",
                allowed="a key with its secret, or a token",
                hint="Unset CLOUDML_TOKEN, or CLOUDML_ACCESS_KEY and CLOUDML_SECRET_KEY. In a "
                "context of the "
                "settings file, `cloudml config init` sets one and removes the other.",
            )
        if source.token:
            return read_token(source.token)
        if source.access_key and source.secret_key:
            return Credentials(source.access_key, source.secret_key)
        if source.access_key or source.secret_key:
            missing = "secret_key" if source.access_key else "access_key"
            raise InvalidRequest(
                f"{missing} is missing: a key and its secret are given together",
                field=missing,
                hint=_HINT,
            )
    return None
