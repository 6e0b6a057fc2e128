"""Many small objects in one request, as raw requests in process."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.errors import NotFound
from cloud_ml.models.storage.batches import Entry, EntryReader
from cloud_ml.settings import StorageSettings
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio

SEND, READ = "/api/v1/storage/-/batch/cloudml", "/api/v1/storage/-/read/cloudml"


def body_of(objects: dict[str, bytes]) -> bytes:
    entries = [
        (Entry(key, len(value), hashlib.sha256(value).hexdigest()), value)
        for key, value in objects.items()
    ]
    return b"".join(entry.line() + value for entry, value in entries)


async def send(caller: Caller, objects: dict[str, bytes]) -> list[dict[str, Any]]:
    answer = await caller.call("POST", SEND, body=body_of(objects))
    assert answer.status == 200, answer.text
    return list(answer.json()["items"])


async def read(caller: Caller, *keys: str) -> dict[str, bytes | str]:
    """Each object, or the code of its error."""
    answer = await caller.call("POST", READ, {"keys": list(keys)})
    assert answer.status == 200, answer.text
    reader, found = EntryReader(), dict[str, bytes | str]()
    for one in reader.feed(answer.body):
        if isinstance(one, Entry):
            key = one.key
            found[key] = b"" if one.error is None else one.error["code"]
        else:
            before = found[key]
            assert isinstance(before, bytes)
            found[key] = before + one
    reader.end()
    return found


OBJECTS = {"a": b"one", "deep/er/b": b"two" * 1000, "empty": b"", "ü": bytes(range(256))}


async def test_what_is_sent_together_is_read_together(served: Served) -> None:
    items = await send(served.member, OBJECTS)
    assert [item["key"] for item in items] == list(OBJECTS)
    for item in items:
        content = OBJECTS[item["key"]]
        stored = item["object"]
        assert (stored["size"], stored["sha256"]) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )
    assert {key: served.platform.objects.get("cloudml", key) for key in OBJECTS} == OBJECTS
    assert await read(served.member, *OBJECTS) == OBJECTS


async def test_each_object_has_its_own_outcome(served: Served) -> None:
    await send(served.member, {"a": b"an object"})
    items = await send(served.member, {"a/b": b"below it", "../up": b"out", "c": b"kept"})
    outcomes = [item["error"] and item["error"]["code"] for item in items]
    assert outcomes == ["conflict", "invalid", None]
    assert await read(served.member, "c", "none", "../up") == {
        "c": b"kept",
        "none": "not_found",
        "../up": "invalid",
    }


async def test_bytes_that_were_not_announced_are_not_kept(served: Served) -> None:
    good, bad = (
        Entry("a", 3, hashlib.sha256(b"one").hexdigest()),
        Entry("b", 3, hashlib.sha256(b"two").hexdigest()),
    )
    answer = await served.member.call("POST", SEND, body=good.line() + b"one" + bad.line() + b"xxx")
    first, second = answer.json()["items"]
    assert (first["error"], second["error"]["field"]) == (None, "sha256")
    assert served.platform.objects.head("cloudml", "b") is None


@pytest.mark.parametrize("body", [b"no batch\n", body_of({"a": b"content"})[:-1], b"{"])
async def test_a_body_that_is_none_leaves_nothing(served: Served, body: bytes) -> None:
    answer = await served.member.call("POST", SEND, body=body_of({"kept": b"x"}) + body)
    assert (answer.status, answer.json()["field"]) == (400, "body")
    assert served.platform.objects.list("cloudml").objects == []


async def test_a_batch_has_its_limits(served: Served) -> None:
    limits = StorageSettings(batch_objects=2, batch_bytes=10, batch_object_bytes=5)
    served.platform.storage._settings = served.platform.batches._settings = limits
    for objects in ({"a": b"", "b": b"", "c": b""}, {"a": bytes(6), "b": bytes(5)}):
        answer = await served.member.call("POST", SEND, body=body_of(objects))
        assert (answer.status, answer.json()["field"]) == (400, "body")
    assert served.platform.objects.list("cloudml").objects == []
    await send(served.member, {"large": bytes(6), "small": bytes(4)})
    assert await read(served.member, "large", "small") == {"large": "too_large", "small": bytes(4)}
    answer = await served.member.call("POST", READ, {"keys": ["a", "b", "c"]})
    assert (answer.status, answer.json()["field"]) == (400, "keys")


async def test_a_batch_never_reaches_the_next_owner_of_the_buckets_name(served: Served) -> None:
    """The bucket is removed and made again by somebody else while the body is on its way."""
    storage, batches_ = served.platform.storage, served.platform.batches
    await served.member.call("PUT", "/api/v1/storage/shared-name")
    upload = batches_.upload(served.member.identity.org, "shared-name")
    body = body_of({"trainer.whl": b"evil"})
    upload.write(body[:-1])
    assert (await served.member.call("DELETE", "/api/v1/storage/shared-name")).status == 200
    assert (await served.stranger.call("PUT", "/api/v1/storage/shared-name")).status == 201
    assert (
        await served.stranger.call("PUT", "/api/v1/storage/shared-name/trainer.whl", body=b"good")
    ).status == 201
    upload.write(body[-1:])
    with pytest.raises(NotFound):
        upload.finish(None)
    upload.abort()
    assert served.platform.objects.get("shared-name", "trainer.whl") == b"good"
    assert storage.owns(served.stranger.identity.org, "shared-name")


async def test_a_read_of_many_ends_with_the_right_to_the_bucket(served: Served) -> None:
    await served.member.call("PUT", "/api/v1/storage/shared-name")
    await served.member.call("PUT", "/api/v1/storage/shared-name/a", body=bytes(300_000))
    pieces = served.platform.batches.read(
        served.member.identity.org, "shared-name", ["a", "secret"]
    )
    assert len(next(pieces)) > 300_000
    await served.member.call("DELETE", "/api/v1/storage/shared-name/a")
    await served.member.call("DELETE", "/api/v1/storage/shared-name")
    await served.stranger.call("PUT", "/api/v1/storage/shared-name")
    await served.stranger.call("PUT", "/api/v1/storage/shared-name/secret", body=b"a secret")
    assert b"a secret" not in b"".join(pieces)


async def test_a_batch_holds_few_descriptors(served: Served) -> None:
    upload = served.platform.batches.upload(served.member.identity.org, "cloudml")
    before = len(list(Path("/proc/self/fd").iterdir()))
    upload.write(body_of({f"{number}": b"" for number in range(200)}))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(upload.finish(None).items) == 200
    upload.abort()
    assert len(served.platform.objects.list("cloudml").objects) == 200
