"""Uploads in segments, as raw requests in process."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from cloud_ml.settings import StorageSettings
from support.asgi import Answer
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio

HERE = "/api/v1/storage/-/uploads/cloudml"
WHOLE = bytes(range(256)) * 10


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def begin(caller: Caller, **more: Any) -> dict[str, Any]:
    answer = await caller.call(
        "POST", HERE, {"key": "a/b", "size": len(WHOLE), "resume": "token-1", **more}
    )
    assert answer.status == 201, answer.body
    return dict(answer.json())


async def append(
    caller: Caller,
    upload: str,
    start: int,
    end: int,
    *,
    digest: str | None = None,
    body: bytes | None = None,
) -> Answer:
    query = f"offset={start}&sha256={digest or sha256(WHOLE[:end])}"
    return await caller.call(
        "PATCH", f"{HERE}/{upload}?{query}", body=WHOLE[start:end] if body is None else body
    )


async def test_an_object_is_appended_segment_by_segment(served: Served) -> None:
    upload = (await begin(served.member))["id"]
    for start, end in ((0, 1000), (1000, 1001), (1001, len(WHOLE))):
        answer = await append(served.member, upload, start, end)
        assert answer.json() == {"size": end, "sha256": sha256(WHOLE[:end])}
    assert not served.platform.objects.list("cloudml").objects
    done = await served.member.call("POST", f"{HERE}/{upload}/complete", {"sha256": sha256(WHOLE)})
    assert (done.status, done.json()["sha256"], done.json()["size"]) == (
        200,
        sha256(WHOLE),
        len(WHOLE),
    )
    assert served.platform.objects.get("cloudml", "a/b") == WHOLE


async def test_the_same_token_goes_on_and_another_begins_anew(served: Served) -> None:
    upload = (await begin(served.member))["id"]
    await append(served.member, upload, 0, 1000)
    again = await begin(served.member)
    assert (again["id"], again["received"]) == (
        upload,
        {"size": 1000, "sha256": sha256(WHOLE[:1000])},
    )
    for other in ({"resume": "token-2"}, {"key": "other"}, {"size": 1}):
        assert (await begin(served.member, **other))["id"] != upload
    assert (await begin(served.member, resume=None))["id"] != (
        await begin(served.member, resume=None)
    )["id"]


@pytest.mark.parametrize("token", ["", "a b", "é", "a" * 65, "../x"])
async def test_a_token_has_few_letters(served: Served, token: str) -> None:
    answer = await served.member.call("POST", HERE, {"key": "a", "resume": token})
    assert (answer.status, answer.json()["field"]) == (400, "resume")


async def test_bytes_that_were_not_signed_are_not_kept(served: Served) -> None:
    upload = (await begin(served.member))["id"]
    await append(served.member, upload, 0, 1000)
    changed = await append(served.member, upload, 1000, 2000, body=b"x" * 1000)
    assert (changed.status, changed.json()["field"]) == (401, "sha256")
    shorter = await append(served.member, upload, 1000, 2000, body=WHOLE[1000:1999])
    assert shorter.status == 401
    assert (await begin(served.member))["received"]["size"] == 1000


@pytest.mark.parametrize(
    "query", ["", "offset=0", f"sha256={sha256(b'')}", "offset=-1&sha256=x", "offset=0&sha256=XYZ"]
)
async def test_a_segment_says_where_it_begins_and_what_it_brings(
    served: Served, query: str
) -> None:
    upload = (await begin(served.member))["id"]
    answer = await served.member.call("PATCH", f"{HERE}/{upload}?{query}", body=b"x")
    assert answer.status == 400


async def test_a_segment_that_was_received_is_answered_with_what_there_is(served: Served) -> None:
    upload = (await begin(served.member))["id"]
    await append(served.member, upload, 0, 1000)
    again = await append(served.member, upload, 0, 1000)
    assert (again.status, again.json()["field"], again.json()["allowed"]) == (409, "offset", "1000")


async def test_another_whole_is_not_completed(served: Served) -> None:
    upload = (await begin(served.member))["id"]
    await append(served.member, upload, 0, len(WHOLE))
    answer = await served.member.call(
        "POST", f"{HERE}/{upload}/complete", {"sha256": sha256(b"other")}
    )
    assert (answer.status, answer.json()["field"]) == (409, "sha256")
    assert served.platform.objects.head("cloudml", "a/b") is None


async def test_a_segment_has_a_largest_size(served: Served) -> None:
    served.platform.uploads._settings = StorageSettings(upload_part_limit_bytes=999)
    upload = (await begin(served.member))["id"]
    answer = await append(served.member, upload, 0, 1000)
    assert (answer.status, answer.json()["allowed"]) == (400, "at most 999 bytes")
    assert (await append(served.member, upload, 0, 999)).status == 200


async def test_many_who_stop_sending_cost_little_memory(served: Served) -> None:
    platform = served.platform
    platform.gathered_bytes = 64 << 20  # of others
    upload = (await begin(served.member))["id"]
    kept: list[int] = []
    moving = platform.offload.moving

    async def counted(function: Any, piece: bytes) -> Any:
        kept.append(len(piece))
        return await moving(function, piece)

    platform.offload.moving = counted  # type: ignore[method-assign, assignment]
    big = bytes(200_000)
    query = f"offset=0&sha256={sha256(big)}"
    assert (await served.member.call("PATCH", f"{HERE}/{upload}?{query}", body=big)).status == 200
    assert kept == [len(big)]
    assert platform.gathered_bytes == 64 << 20
