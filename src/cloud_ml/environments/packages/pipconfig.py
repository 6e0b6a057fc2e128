"""What the machine's pip is told about indexes, for uv, which does not read pip's configuration.

uv's own configuration (``UV_*`` variables, ``uv.toml``) stays uv's and wins where both speak.
Addresses travel in environment variables, never in arguments: they may hold credentials.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cloud_ml.environments.files import digest_of

_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index", "proxy")
_SECTIONS = ("global", "install", "download")
_CREDENTIALS = re.compile(r"//[^/\s]*@")
_TRUE = frozenset({"1", "true", "yes", "on"})
_LOCAL_BUILD = re.compile(
    r"^([A-Za-z0-9_.]+)-([^-+]+\+[a-z0-9.]+)(?:-\d[^-]*)?-([^-]+)-([^-]+)-[^-]+\.whl$"
)
_KEPT = frozenset(
    {
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NETRC",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_DATA_HOME",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
    }
)


@dataclass(frozen=True)
class PipConfig:
    """Where packages come from on this machine. Folders and files that are missing have been left
    out.

    ``kept`` are variables of the server's own environment that an installer needs (proxies,
    ``UV_*``), ``preferred`` the indexes of a runtime's own.
    """

    index: str | None = None
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    no_index: bool = False
    proxy: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    preferred: tuple[str, ...] = ()

    def preferring(self, indexes: tuple[str, ...]) -> PipConfig:
        """The same with ``indexes`` asked before all others; nothing changes where no index may
        be asked.
        """
        return self if self.no_index or not indexes else replace(self, preferred=indexes)

    @property
    def arguments(self) -> list[str]:
        """What uv takes only as arguments."""
        return ["--no-index"] if self.no_index else []

    def uv_environment(self, *, secrets: bool) -> dict[str, str]:
        """The variables for uv.

        Without ``secrets``, for a process that runs a tenant's code, credentials are cut from
        addresses and nothing of the server's own environment that could hold any is passed on.
        """
        names = {
            name
            for name in self.kept
            if secrets or name.startswith("SSL_") or name in ("PATH", "LANG", "LC_ALL")
        }
        made = {name: self.kept[name] for name in names}
        clean = (lambda url: url) if secrets else without_credentials
        if not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & set(self.kept) and self.index:
            made["UV_DEFAULT_INDEX"] = clean(self.index)
        extra = (
            self.extra_indexes if not {"UV_INDEX", "UV_EXTRA_INDEX_URL"} & set(self.kept) else ()
        )
        if indexes := (*self.preferred, *map(clean, extra)):
            made["UV_INDEX"] = " ".join((*indexes, *filter(None, [made.get("UV_INDEX", "")])))
            # pip looks into all of its indexes; this does too, in their order, so that a mirror of
            # a few packages does not hide other versions of them.
            made.setdefault("UV_INDEX_STRATEGY", "unsafe-first-match")
        if "UV_FIND_LINKS" not in self.kept and self.find_links:
            made["UV_FIND_LINKS"] = ",".join(map(clean, self.find_links))
        if "UV_INSECURE_HOST" not in self.kept and self.trusted_hosts:
            made["UV_INSECURE_HOST"] = " ".join(self.trusted_hosts)
        if self.cert:
            made["SSL_CERT_FILE"] = self.cert
        if self.proxy and (secrets or self.proxy == without_credentials(self.proxy)):
            made.setdefault("HTTPS_PROXY", self.proxy)
            made.setdefault("HTTP_PROXY", self.proxy)
        return made

    def job_environment(self) -> dict[str, str]:
        """The variables for pip inside a job, without credentials."""
        made = {
            "PIP_INDEX_URL": without_credentials(self.index or ""),
            "PIP_EXTRA_INDEX_URL": " ".join(map(without_credentials, self.extra_indexes)),
            "PIP_FIND_LINKS": " ".join(map(without_credentials, self.find_links)),
            "PIP_TRUSTED_HOST": " ".join(self.trusted_hosts),
            "PIP_CERT": self.cert or "",
            "PIP_NO_INDEX": "1" if self.no_index else "",
        }
        return {name: value for name, value in made.items() if value} | {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1"
        }

    @property
    def fingerprint(self) -> str:
        """Changes when packages come from elsewhere."""
        sources = (self.index, self.extra_indexes, self.find_links, self.no_index, dict(self.kept))
        return digest_of(*sources, *([self.preferred] if self.preferred else []))

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders and files of this machine that an installer reads."""
        places = [
            _local(place) for place in (self.index or "", *self.extra_indexes, *self.find_links)
        ]
        # The pages of an index in a folder "simple" link to files beside it, not below it.
        whole = [place.parent if place and place.name == "simple" else place for place in places]
        return tuple(dict.fromkeys(str(place) for place in (*whole, self.cert) if place))

    def local_builds(self, tag: str) -> dict[str, str]:
        """Builds with a local version (``torch`` → ``2.13.0+cpu``) that a folder of ``find-links``
        offers.

        Such a build was put there on purpose, but a resolver would pass it over for a newer or an
        ordinary one. ``tag`` is the interpreter's, such as ``cp311``.
        """
        offered: dict[str, str] = {}
        for folder in filter(None, map(_local, self.find_links)):
            for wheel in sorted(folder.glob("*+*.whl")) if folder.is_dir() else ():
                found = _LOCAL_BUILD.match(wheel.name)
                if found and (
                    tag in found[3].split(".") or found[3].startswith("py3") or found[4] == "abi3"
                ):
                    offered[found[1].lower().replace("_", "-")] = found[2]
        return offered


def read(
    environ: Mapping[str, str] | None = None, files: Iterable[Path | str] | None = None
) -> PipConfig:
    """Read pip's configuration of this machine: its files in pip's order, then ``PIP_*``
    variables.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, str] = {}
    for file in _files(environ) if files is None else files:
        values.update(_read_file(file))
    for key in _KEYS:
        if (value := environ.get("PIP_" + key.upper().replace("-", "_"))) is not None:
            values[key] = value
    cert = values.get("cert", "").strip()
    index = values.get("index-url", "").strip()
    return PipConfig(
        index=index if index and _there(index) else None,
        extra_indexes=tuple(filter(_there, values.get("extra-index-url", "").split())),
        find_links=tuple(filter(_there, values.get("find-links", "").split())),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=cert if cert and os.path.exists(cert) else None,  # noqa: PTH110
        no_index=values.get("no-index", "").strip().lower() in _TRUE,
        proxy=values.get("proxy", "").strip() or None,
        kept={name: environ[name] for name in environ if name in _KEPT or name.startswith("UV_")},
    )


def without_credentials(url: str) -> str:
    """``https://user:secret@host/simple`` without the part before the host; also where it is no
    proper URL.
    """
    return _CREDENTIALS.sub("//", url)


def _files(environ: Mapping[str, str]) -> Iterator[str]:
    if environ.get("PIP_CONFIG_FILE") == os.devnull:
        return
    for folder in reversed(environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield f"{folder or '.'}/pip/pip.conf"
    yield "/etc/pip.conf"
    home = environ.get("HOME", "/nonexistent")
    yield f"{home}/.pip/pip.conf"
    yield f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/pip/pip.conf"
    yield f"{sys.prefix}/pip.conf"
    if named := environ.get("PIP_CONFIG_FILE"):
        yield named


def _read_file(file: Path | str) -> dict[str, str]:
    """The keys of one file; one that cannot be read or parsed says nothing, as if it were
    absent.
    """
    try:
        facts = os.stat(file)  # noqa: PTH116 - several at each start
    except OSError:
        return {}
    return _parse_file(file, (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))


@functools.lru_cache(32)
def _parse_file(file: Path | str, facts: tuple[int, ...]) -> dict[str, str]:
    """Read once for as long as the file stays what ``facts`` say. Nobody alters what is
    returned.
    """
    del facts
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(Path(file).read_text())
    except (OSError, ValueError, configparser.Error):
        return {}
    found: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            found.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return found


def _local(place: str) -> Path | None:
    """The folder that ``place`` names, if it is one of this machine."""
    if place.startswith("file:"):
        with contextlib.suppress(ValueError):
            return Path(unquote(urlsplit(place).path))
    return Path(place) if place.startswith("/") else None


def _there(place: str) -> bool:
    """Whether ``place`` is worth telling uv of: a missing folder would stop it, while pip only
    warns.
    """
    folder = _local(place)
    return folder is None or folder.exists()
