"""Structured fuzzing of the storage protocol with the original client: its request building and its
readers of answers.

Runs in an interpreter that has ``galaxy-fds-sdk``, and imports nothing of ours::

    python original_storage.py ADDRESS ACCESS_KEY SECRET_KEY SECONDS SEED

Buckets ``fuzz-a`` and ``fuzz-b`` must exist and be the caller's; ``others`` must be somebody
else's. What the client stores is kept in a model beside it. A finding is an ``AssertionError`` with
the operation that showed it.
"""

from __future__ import annotations

import base64
import contextlib
import random
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from fds import FDSClientConfiguration, GalaxyFDSClient, GalaxyFDSClientException
from fds.model.fds_object_metadata import FDSObjectMetadata
from fds.model.upload_part_result_list import UploadPartResultList

base64.encodestring = getattr(base64, "encodebytes", None)  # type: ignore[attr-defined]

BUCKETS = ("fuzz-a", "fuzz-b")
FOREIGN = "others"
PIECES = (
    "a",
    "b",
    "A",
    "c.txt",
    "/",
    "/",
    "//",
    ".",
    "..",
    "/../",
    "/./",
    " ",
    "%",
    "%2F",
    "%2e%2e",
    "%00",
    "+",
    "&",
    "=",
    "?",
    "?acl",
    "?uploads",
    ";",
    "#",
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\x7f",
    "é",
    "e\u0301",
    "模",
    "\u202e",
    "\U0001f600",
    "'",
    '"',
    "<",
    "*",
    "[",
    "~",
    "$",
    "@",
    ":",
    ",",
    "|",
    "^",
    "`",
    "{",
    "\ud800",
    "x" * 120,
    "é" * 128,
)
CLIENTS_OWN = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidHeader,
    UnicodeError,
    ValueError,
)
"""What the client raises before it sends anything."""
Model = dict[tuple[str, str], bytes]


class Recorded:
    """Signs as the client does and keeps what was signed."""

    def __init__(self, sign: Callable[[Any], Any]) -> None:
        self._sign = sign
        self.request: Any = None

    def __call__(self, request: Any) -> Any:
        self.request = self._sign(request)
        return self.request

    @property
    def place(self) -> tuple[str, str]:
        """Bucket and key of the URL that went out: the client's library rewrites paths such as
        ``a/../b``.
        """
        bucket, _, key = unquote(urlsplit(self.request.url).path).removeprefix("/").partition("/")
        return bucket, key


class Fuzzer:
    """One client, the model of what it has stored, and the operations."""

    def __init__(self, address: str, access_key: str, secret_key: str, seed: int) -> None:
        self.luck = random.Random(seed)
        self.address = address
        config = FDSClientConfiguration(
            enable_https=False, endpoint="test-fds.api.xiaomi.net", max_retries=0
        )
        config._build_base_uri = lambda _cdn: "http://storage.invalid/"
        config.set_threshold_size(4096)
        config.set_part_size(1500)
        self.config = config
        self.client = GalaxyFDSClient(access_key, secret_key, config)
        build = self.client._formatUri  # which drops the port
        self.client._formatUri = lambda *arguments: build(*arguments).replace(
            "//storage.invalid/", f"//{address}/", 1
        )
        self.signed = self.client._auth = Recorded(self.client._auth)
        self.model: Model = {}
        self.done = self.refused = 0

    def run(self, seconds: float) -> None:
        """Fuzz for so long."""
        operations = (
            [self.put] * 6
            + [self.get] * 3
            + [self.delete] * 2
            + [
                self.ask,
                self.parts,
                self.listing,
                self.unsupported,
                self.changed,
                self.changed,
                self.changed,
            ]
        )
        for bucket in BUCKETS:
            for one in self.client.list_objects(bucket, "", "").objects:
                self.client.delete_object(bucket, one.object_name)
        end, checked = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            operation = self.luck.choice(operations)
            try:
                self.attempt(operation)
            except BaseException as error:
                error.add_note(
                    f"operation {operation.__name__}; signed "
                    f"{getattr(self.signed.request, 'url', None)!r}"
                )
                raise
            if self.done >= checked + 200:
                checked = self.done
                self.compare()
        self.compare()
        print(
            f"{self.done} operations, {self.refused} refused, {len(self.model)} objects at the end"
        )

    def attempt(self, operation: Callable[[], None]) -> None:
        """One operation; what the server refuses as a request's fault is no finding."""
        self.done += 1
        try:
            operation()
        except GalaxyFDSClientException as error:
            self.refused += 1
            found = re.search(r"status=(\d+)", str(error))
            if found is not None and not 400 <= int(found[1]) < 500:
                raise AssertionError(str(error)[:500]) from error
        except CLIENTS_OWN as error:
            assert error.__class__ is not requests.exceptions.JSONDecodeError, (  # noqa: PT017
                "an answer that is no JSON"
            )
            self.refused += 1
        except KeyError:
            if self.signed.place[
                1
            ]:  # otherwise an empty upload whose key was rewritten away: it makes the bucket
                raise

    def name(self) -> str:
        """A key, odd more often than not; often one that is there."""
        if self.model and self.luck.random() < 0.4:
            return self.luck.choice(list(self.model))[1]
        return "".join(self.luck.choices(PIECES, k=self.luck.randint(1, 6)))

    def bucket(self) -> str:
        return self.luck.choice((*BUCKETS, *BUCKETS, *BUCKETS, FOREIGN, self.name()))

    def content(self) -> bytes:
        return self.luck.randbytes(self.luck.choice((0, 1, 100, 4095, 4096, 5000)))

    def stored(self, content: bytes) -> None:
        """The client was told that its object is stored: it can be read back at once."""
        place = self.signed.place
        if not place[1]:  # a name such as '.': the client asked for the bucket
            return
        assert place[0] in BUCKETS, f"stored at {place}"
        self.model[place] = content
        answer = requests.get(
            self.signed.request.url.partition("?")[0], auth=self.signed, timeout=30
        )
        assert answer.status_code == 200, (place, answer.status_code)
        assert answer.content == content, place

    def put(self) -> None:
        content, metadata = self.content(), FDSObjectMetadata()
        self.config.enable_md5_calculate = self.luck.random() < 0.5
        if self.luck.random() < 0.1:
            metadata.add_header(
                f"x-xiaomi-meta-{self.luck.choice('abc')}", self.luck.choice(PIECES)
            )
        if self.luck.random() < 0.2:
            metadata.add_header("content-type", self.luck.choice(("text/html", "a/b;c", "")))
        self.client.put_object(self.bucket(), self.name(), content, metadata)
        self.stored(content)

    def get(self) -> None:
        position = self.luck.choice((0, 0, 1, 100, 10**6))
        found = self.client.get_object(self.bucket(), self.name(), position=position)
        content = b"".join(found.stream)
        place = self.signed.place
        if not place[1]:
            return
        assert place in self.model, f"read what nobody stored: {place}"
        assert content == self.model[place][position:], place

    def delete(self) -> None:
        trash = {"enable_trash": False} if self.luck.random() < 0.5 else {}
        self.client.delete_object(self.bucket(), self.name(), **trash)
        assert self.signed.place in self.model, f"deleted what nobody stored: {self.signed.place}"
        del self.model[self.signed.place]

    def ask(self) -> None:
        bucket, name = self.bucket(), self.name()
        if self.client.does_object_exists(bucket, name) and self.signed.place[1]:
            assert self.signed.place in self.model
            size = self.client.get_object_metadata(bucket, name).metadata[
                "x-xiaomi-meta-content-length"
            ]
            assert int(size) == len(self.model[self.signed.place])
        names = {one.bucket_name for one in self.client.list_buckets()}
        assert names >= set(BUCKETS)
        assert FOREIGN not in names | {
            one.bucket_name for one in self.client.list_authorized_buckets()
        }
        assert not self.client.does_bucket_exist(FOREIGN)
        self.client.get_bucket(self.luck.choice(BUCKETS))

    def parts(self) -> None:
        """An upload in parts, its steps in any order and number."""
        bucket, name, content = self.luck.choice(BUCKETS), self.name(), self.content()
        token = self.client.init_multipart_upload(bucket, name)
        sent, whole = [], {}
        for number in self.luck.sample(range(-1, 5), self.luck.randint(0, 4)):
            with contextlib.suppress(GalaxyFDSClientException):
                sent.append(self.client.upload_part(bucket, name, token.upload_id, number, content))
                whole[number] = content
        if self.luck.random() < 0.3:
            self.client.abort_multipart_upload(bucket, name, token.upload_id)
        listed = UploadPartResultList({"uploadPartResultList": sent})
        import json

        text = (
            json.dumps(listed)
            if self.luck.random() < 0.8
            else self.luck.choice(("", "{}", "[]", "null", "{"))
        )
        self.client.complete_multipart_upload(bucket, name, token.upload_id, None, text)
        self.stored(b"".join(whole[number] for number in sorted(whole)))

    def listing(self) -> None:
        """All pages of a listing, whatever is asked for, are what the model says."""
        bucket, prefix = self.luck.choice(BUCKETS), self.luck.choice(("", "a", "a/", self.name()))
        delimiter = self.luck.choice(("", "/", "/"))
        page = self.client.list_objects(
            bucket, prefix, delimiter, self.luck.choice((None, 1, 2, 3, 1000))
        )
        names: list[str] = []
        while page is not None:
            names += [one.object_name for one in page.objects] + list(page.common_prefixes)
            page = self.client.list_next_batch_of_objects(page)
        keys = sorted(
            key for where, key in self.model if where == bucket and key.startswith(prefix)
        )
        expected = {
            prefix + rest.partition("/")[0] + "/" if delimiter and "/" in rest else prefix + rest
            for rest in (key.removeprefix(prefix) for key in keys)
        }
        assert len(names) == len(set(names)), "a name is listed twice"
        assert set(names) == expected, (prefix, delimiter, set(names) ^ expected)

    def unsupported(self) -> None:
        """What this server does not do is refused and changes nothing."""
        bucket, name, ask = self.luck.choice(BUCKETS), self.name(), self.client
        calls: tuple[Callable[[], object], ...] = (
            lambda: ask.rename_object(bucket, name, "renamed"),
            lambda: ask.copy_object(bucket, name, bucket, "copied"),
            lambda: ask.delete_objects(bucket, [name]),
            lambda: ask.post_object(bucket, b"posted"),
            lambda: ask.restore_object(bucket, name),
            lambda: ask.set_public(bucket, name),
            lambda: ask.delete_bucket(bucket),
            lambda: ask.prefetch_object(bucket, name),
            lambda: ask.get_bucket_acl(bucket),
            ask.list_trash_objects,
            lambda: ask.create_bucket(FOREIGN),
            lambda: ask.get_object(bucket, name, version_id="1"),
        )
        with contextlib.suppress(GalaxyFDSClientException, *CLIENTS_OWN):
            self.luck.choice(calls)()
            raise AssertionError(
                "an operation that this server does not have was answered with success"
            )

    def changed(self) -> None:
        """A request of the client that is changed on its way does what was signed, or nothing."""
        with contextlib.suppress(GalaxyFDSClientException, *CLIENTS_OWN):
            self.luck.choice((self.put, self.delete, self.get))()
        request = self.signed.request
        if request is None or request.headers.get("Authorization") is None:
            return
        before = set(self.model)
        parts = urlsplit(request.url)
        target = parts.path + ("?" + parts.query if parts.query else "")
        method, headers = (
            request.method,
            [
                f"{name}: {value}"
                for name, value in request.headers.items()
                if name.lower() not in ("content-length", "host", "connection")
            ],
        )
        method, target, headers = self.luck.choice(CHANGES)(self.luck, method, target, headers)
        status = self.raw(method, target, headers, b"changed")
        assert status is None or status < 500, (method, target, headers, status)
        if (
            status is not None
            and status < 300
            and method in ("PUT", "DELETE")
            and self.signed.place[1]
        ):
            place = self.signed.place
            now = requests.get(request.url.partition("?")[0], auth=self.signed, timeout=30)
            self.model.pop(place, None)
            if now.status_code == 200:
                self.model[place] = now.content
            assert before ^ set(self.model) <= {place}

    def raw(self, method: str, target: str, headers: list[str], body: bytes) -> int | None:
        """The status of the answer to a request that is written byte by byte; ``None`` if there
        is no answer.
        """
        host, _, port = self.address.partition(":")
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self.address}",
            "Connection: close",
            *headers,
            f"Content-Length: {len(body)}",
        ]
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(
                "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body
            )
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None

    def compare(self) -> None:
        """Every object is there with its content, and nothing else is."""
        for bucket in BUCKETS:
            there: set[str] = set()
            page = self.client.list_objects(bucket, "", "", 1000)
            while page is not None:
                there |= {one.object_name for one in page.objects}
                page = self.client.list_next_batch_of_objects(page)
            assert there == {key for where, key in self.model if where == bucket}, there ^ {
                key for where, key in self.model if where == bucket
            }
        if len(self.model) > 400:
            for bucket, key in list(self.model)[:300]:
                with contextlib.suppress(GalaxyFDSClientException, *CLIENTS_OWN):
                    self.client.delete_object(bucket, key)
                    self.model.pop(self.signed.place, None)


Change = Callable[[random.Random, str, str, list[str]], tuple[str, str, list[str]]]


def another_method(
    luck: random.Random, _: str, target: str, headers: list[str]
) -> tuple[str, str, list[str]]:
    return (
        luck.choice(("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "put", "TRACE")),
        target,
        headers,
    )


def another_query(
    luck: random.Random, method: str, target: str, headers: list[str]
) -> tuple[str, str, list[str]]:
    more = luck.choice(
        (
            "uploads",
            "uploadId=1",
            "acl",
            "metadata",
            "prefix=",
            "enableTrash=true",
            "deleteObjects=true",
            "x=1",
            "prefix=a&prefix=b",
            "%75ploads",
            "Expires=9999999999",
            "&&&",
            "=",
            "acl;uploads",
        )
    )
    return method, target + ("&" if "?" in target else "?") + more, headers


def another_path(
    luck: random.Random, method: str, target: str, headers: list[str]
) -> tuple[str, str, list[str]]:
    path, mark, query = target.partition("?")
    changed = luck.choice(
        (
            path.replace("/", "%2F"),
            path.replace("/", "//"),
            path + "/",
            path + "/..",
            "/." + path,
            path + "%3Facl",
            path + "%00",
            path + ";a",
            path.replace("fuzz-a", FOREIGN),
            path.replace("fuzz-a", "fuzz-b"),
            path.upper(),
            "http://x" + path,
            path.replace("a", "%61"),
            path + "%ff",
            "*",
            path + "\\..\\x",
        )
    )
    return method, changed + mark + query, headers


def other_headers(
    luck: random.Random, method: str, target: str, headers: list[str]
) -> tuple[str, str, list[str]]:
    found = list(headers)
    one = luck.choice(found)
    more = luck.choice(
        (
            one,
            one.upper(),
            one.lower(),
            one + " ",
            "X-Xiaomi-Date: x",
            "x-xiaomi-meta-a: b",
            "Content-MD5: 0",
            "Content-Type: a/b",
            "Authorization: Galaxy-V2 a:b",
            "Range: bytes=0-",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Content-Length: 3",
            "X: \udcff",
        )
    )
    if luck.random() < 0.3:
        found.remove(one)
    found.insert(luck.randint(0, len(found)), more)
    return method, target, found


CHANGES: tuple[Change, ...] = (another_method, another_query, another_path, other_headers)


def main(arguments: Iterator[str]) -> None:
    address, access_key, secret_key, seconds, seed = arguments
    Fuzzer(address, access_key, secret_key, int(seed)).run(float(seconds))


if __name__ == "__main__":
    main(iter(sys.argv[1:]))
