"""URIs and where they lead."""

from __future__ import annotations

import contextlib
import ipaddress
import posixpath
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from cloud_ml.errors import InvalidRequest
from cloud_ml.fetching import program, task
from cloud_ml.fetching.addresses import Allowed, refusal
from cloud_ml.models import common
from cloud_ml.recipes.paths import rewrite
from cloud_ml.sdk import endpoint, messages
from cloud_ml.settings import TrainerSettings
from cloud_ml.usecases.jobs import trainer_uris
from fuzz.harness import pieces, target, text

SETTINGS = TrainerSettings(urls="public", folders="/srv/trainers, /opt/x")


@target(
    "usecases.jobs.trainer_uris",
    "models.common",
    "fetching.program",
    seeds=["fds://bucket/trainer.tar.gz", "https://host/a%2F..%2fb.whl#sha256=" + "a" * 64, "file:///srv/trainers/../x",
           "file:///srv/trainers/%2e%2e/x", "http://u:p@h/", "http://[::1]/", "http://[", "file://[", "http://h:99999/",
           "http://0x7f.1/", "http://2130706433/", "HTTP://ⓔxample/", "fds://b/../c", "fds://b//c", "file://localhost/srv/trainers/a",
           "git+https://h/o/r.git@v1.0#subdirectory=a/b", "git+https://u:p@h/r@x", "git+http://h@--upload-pack=x/r@-x"],
    words=["fds://", "https://", "file://", "%2e%2e", "%252e", "..", "//", "\\", "@", "#sha256=", "[", "]", "?", "%00", "\u2025"],
)  # fmt: skip
def trainer_uri(data: bytes) -> None:
    """Refused by the field; or an object, an address of the web without secrets, a file of an
    open folder.
    """
    uri = text(data)
    try:
        found = trainer_uris.parse_trainer_uri(uri, SETTINGS)
    except InvalidRequest as error:
        assert error.field == "trainer_uri"  # noqa: PT017
        return
    if isinstance(found, trainer_uris.FileTrainer):
        assert posixpath.normpath(str(found.path)).startswith(("/srv/trainers", "/opt/x"))
    elif isinstance(found, trainer_uris.WebTrainer):
        parts = urlsplit(found.url)
        assert parts.hostname
        assert not found.ref.startswith("-")
        assert not found.subdirectory.startswith(("-", "/"))
        assert ".." not in (found.ref, *found.subdirectory.split("/"))
        assert parts.username is None
        assert not parts.fragment
        assert "/" not in found.name
        assert found.name not in ("", ".", "..")

        def nobody(host: str, port: int) -> Any:
            assert host == parts.hostname
            assert 0 <= port <= 65535
            raise OSError

        with contextlib.suppress(task.FetchFailed):
            program.fetch(task.Task(found.url), SimpleNamespace(), resolve=nobody)  # type: ignore[arg-type]
            raise AssertionError("fetched from nobody")
    else:
        assert found == common.parse_object_uri("uri", str(found))


@target(
    "models.common",
    seeds=["fds://bucket/a/b", "--data=fds://bucket/a", "fds://b-b/é/", "fds://BUCKET/a", "fds://bucket/a\\b", "fds://bucket/./a",
           "fds://bucket/%2e%2e/a", "fds://bucket/" + "x" * 300, "fds://bucket/\u202ea", "fds://a..b/c"],
    words=["fds://", "/", "..", ".", "%2e", "=", "\\", "\u202e", "e\u0301", "\x7f", "\ud800".encode("utf-8", "surrogatepass")],
)  # fmt: skip
def object_uri(data: bytes) -> None:
    """A URI comes back as it was, its path of the API leads back to it, and a job's path stays
    in the buckets.
    """
    uri = text(data)
    path = rewrite(uri, SimpleNamespace(storage="/storage"))  # type: ignore[arg-type]
    try:
        where = common.parse_object_uri("uri", uri)
    except InvalidRequest:
        return
    assert str(where) == (uri if uri.count("/") > 2 else uri + "/")
    assert posixpath.normpath(path) == path
    assert path.startswith(f"/storage/{where.bucket}")
    assert unquote(messages.key_path(where.key)) == where.key


@target(
    "sdk.endpoint",
    seeds=["http://127.0.0.1:8471", "https://h/ml/", "h:1", "[::1]:80", "http://u:p@h", "http://h/api/v1/jobs", "https://h:0",
           "http://[", "ftp://h", "http://h?x"],
    words=["http://", "https://", "://", ":", "@", "[", "]", "/api/v1", "?", "#", "%", "localhost"],
)  # fmt: skip
def server_address(data: bytes) -> None:
    """Refused without its password; or an address that comes back when it is written."""
    try:
        found = endpoint.parse_endpoint(text(data))
    except InvalidRequest as error:
        assert error.field == "endpoint"  # noqa: PT017
        return
    assert endpoint.parse_endpoint(str(found)) == found
    assert 0 < found.port < 65536


@target(
    "fetching.addresses",
    seeds=["127.0.0.1\0", "::ffff:127.0.0.1\0", "10.1.2.3\x0010.1.0.0/16", "fe80::1%eth0\0", "64:ff9b::7f00:1\0", "2002:7f00:1::\0",
           "1.1.1.1\0", "2606:4700::1\0host", "0177.0.0.1\0", "::\0", "fd00:ec2::254\0", "host\0Host,", "3fff::1\0", "2001:db8::1\0"],
    words=["::", "ffff:", "/", ".", "%", "127.", "169.254.169.254", "100.64.", "192.0.0.", "224.", "0x", ","],
)  # fmt: skip
def address(data: bytes) -> None:
    """What is let through is an address of the open internet by the standard library's own book."""
    one, allowed_words = map(text, pieces(data, 2))
    try:
        allowed = Allowed.parse(allowed_words.split(","))
    except ValueError:
        allowed = Allowed()
    why = refusal("host", one, Allowed())
    assert refusal("host", one, allowed) in (None, why)
    if why is None:
        found = ipaddress.ip_address(one)
        found = getattr(found, "ipv4_mapped", None) or found
        assert found.is_global
        assert not any(
            (found.is_multicast, found.is_loopback, found.is_link_local, found.is_reserved)
        )
        assert getattr(found, "sixtofour", None) is None
        assert getattr(found, "teredo", None) is None
