"""Uploads in parts, as raw requests in process."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from cloud_ml.settings import StorageSettings
from support.asgi import Answer
from support.platform import Caller, Served
from support.storage_protocol import send

pytestmark = pytest.mark.anyio

HERE = "/api/v1/storage/-/uploads/cloudml"
WHOLE = bytes(range(256)) * 10
PARTS = [WHOLE[:1000], WHOLE[1000:2000], WHOLE[2000:]]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def begin(caller: Caller, **more: Any) -> dict[str, Any]:
    declared = {
        "key": "a/b",
        "size": len(WHOLE),
        "sha256": sha256(WHOLE),
        "part_size": 1000,
        **more,
    }
    answer = await caller.call("POST", HERE, declared)
    assert answer.status == 201, answer.body
    return dict(answer.json())


async def put(caller: Caller, upload: str, number: int, content: bytes) -> Answer:
    return await caller.call("PUT", f"{HERE}/{upload}/parts/{number}", body=content)


async def test_an_object_comes_in_parts_in_any_order(served: Served) -> None:
    begun = await begin(served.member)
    for number in (3, 1, 2):
        answer = await put(served.member, begun["id"], number, PARTS[number - 1])
        assert answer.json() == {
            "number": number,
            "size": len(PARTS[number - 1]),
            "sha256": sha256(PARTS[number - 1]),
        }
    assert not served.platform.objects.list("cloudml").objects
    done = await served.member.call(
        "POST", f"{HERE}/{begun['id']}/complete", {"sha256": sha256(WHOLE)}
    )
    assert (done.status, done.json()["sha256"], done.json()["size"]) == (
        200,
        sha256(WHOLE),
        len(WHOLE),
    )
    assert served.platform.objects.get("cloudml", "a/b") == WHOLE
    again = await served.member.call("POST", f"{HERE}/{begun['id']}/complete", {})
    assert (again.status, again.json()["field"]) == (404, "upload")


async def test_to_begin_the_same_again_is_to_go_on(served: Served) -> None:
    begun = await begin(served.member)
    await put(served.member, begun["id"], 1, PARTS[0])
    again = await begin(served.member)
    assert (again["id"], [part["number"] for part in again["parts"]]) == (begun["id"], [1])
    assert (await begin(served.member, sha256=sha256(b"another")))["id"] != begun["id"]
    assert (await begin(served.member, key="other"))["id"] != begun["id"]
    listed = (await served.member.call("GET", HERE)).json()["items"]
    assert sorted(one["key"] for one in listed) == ["a/b", "a/b", "other"]


async def test_a_part_with_another_digest_than_was_signed_is_not_kept(served: Served) -> None:
    begun = await begin(served.member)
    target = f"{HERE}/{begun['id']}/parts/1"
    answer = await served.client.send(
        "PUT", target, served.member.sign("PUT", target, PARTS[0]), PARTS[1]
    )
    assert answer.status == 401
    assert (await served.member.call("GET", f"{HERE}/{begun['id']}")).json()["parts"] == []


async def test_a_missing_part_is_named_and_the_upload_goes_on(served: Served) -> None:
    begun = await begin(served.member)
    await put(served.member, begun["id"], 1, PARTS[0])
    refused = await served.member.call("POST", f"{HERE}/{begun['id']}/complete", {})
    assert (refused.status, "were declared" in refused.json()["message"]) == (409, True)
    for number in (2, 3):
        await put(served.member, begun["id"], number, PARTS[number - 1])
    assert (await served.member.call("POST", f"{HERE}/{begun['id']}/complete", {})).status == 200


async def test_giving_up(served: Served) -> None:
    begun = await begin(served.member)
    assert (await served.member.call("DELETE", f"{HERE}/{begun['id']}")).status == 204
    assert (await served.member.call("DELETE", f"{HERE}/{begun['id']}")).status == 404
    assert (await put(served.member, begun["id"], 1, b"x")).status == 404


async def test_uploads_expire(served: Served) -> None:
    await begin(served.member)
    assert served.platform.uploads.sweep() == 0
    served.clock.advance(StorageSettings().upload_expiry_s + 400 * 86_400)
    assert served.platform.uploads.sweep() == 1
    assert (await served.member.call("GET", HERE)).json()["items"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", "x"),
        ("size", -1),
        ("part_size", 0),
        ("part_size", 2**40),
        ("size", "big"),
        ("key", "../x"),
        ("no", 1),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(
    served: Served, field: str, value: object
) -> None:
    answer = await served.member.call("POST", HERE, {"key": "a", field: value})
    assert (answer.status, answer.json()["field"]) == (400, field)


async def test_a_part_number_must_be_one(served: Served) -> None:
    begun = await begin(served.member)
    for number in ("0", "10001", "x"):
        answer = await served.member.call("PUT", f"{HERE}/{begun['id']}/parts/{number}", body=b"x")
        assert (answer.status, answer.json()["field"]) == (400, "number")


async def test_uploads_of_others_are_as_absent_as_none(served: Served) -> None:
    begun = await begin(served.member)
    own = "/api/v1/storage/-/uploads/others"
    for method, rest, document in (
        ("GET", "", None),
        ("GET", f"/{begun['id']}", None),
        ("POST", "", {"key": "a"}),
        ("POST", f"/{begun['id']}/complete", {}),
        ("DELETE", f"/{begun['id']}", None),
        ("PUT", f"/{begun['id']}/parts/1", None),
    ):
        assert (await served.stranger.call(method, HERE + rest, document)).status == 404
        if rest:
            assert (await served.stranger.call(method, own + rest, document)).status == 404


async def test_no_more_uploads_than_the_setting_allows(served: Served) -> None:
    served.platform.uploads._settings = StorageSettings(uploads_per_bucket=1)
    await begin(served.member)
    await begin(served.member)
    refused = await served.member.call("POST", HERE, {"key": "other"})
    assert (refused.status, refused.json()["field"]) == (409, "bucket")


async def test_copies(served: Served) -> None:
    served.platform.objects.put("cloudml", "a", b"abc")
    request = {"source_bucket": "cloudml", "source_key": "a", "bucket": "cloudml", "key": "b/c"}
    made = await served.member.call("POST", "/api/v1/storage/-/copy", request)
    assert (made.status, made.json()["sha256"]) == (201, sha256(b"abc"))
    assert served.platform.objects.get("cloudml", "b/c") == b"abc"
    refused = await served.member.call(
        "POST", "/api/v1/storage/-/copy", {**request, "only_if_absent": True}
    )
    assert refused.status == 409
    for other in ({"source_key": "none"}, {"source_bucket": "others"}, {"bucket": "others"}):
        assert (
            await served.member.call("POST", "/api/v1/storage/-/copy", {**request, **other})
        ).status == 404


async def test_a_bucket_has_an_owner_and_goes_when_it_is_empty(served: Served) -> None:
    made = await served.member.call("PUT", "/api/v1/storage/scratch")
    assert made.json()["owner"] == served.member.identity.user
    listed = (await served.member.call("GET", "/api/v1/storage")).json()["items"]
    assert [one["owner"] for one in listed if one["name"] == "scratch"] == [
        served.member.identity.user
    ]
    await served.member.call("PUT", "/api/v1/storage/scratch/a", body=b"x")
    refused = await served.member.call("DELETE", "/api/v1/storage/scratch")
    assert (refused.status, refused.json()["field"]) == (409, "bucket")
    assert (await served.stranger.call("DELETE", "/api/v1/storage/scratch")).status == 404
    await served.member.call("DELETE", "/api/v1/storage/scratch/a")
    assert (await served.member.call("DELETE", "/api/v1/storage/scratch")).status == 200
    assert (await served.member.call("DELETE", "/api/v1/storage/scratch")).status == 404
    assert (await served.stranger.call("PUT", "/api/v1/storage/scratch")).status == 201
    default = await served.member.call("DELETE", "/api/v1/storage/cloudml")
    assert (default.status, "default bucket" in default.json()["message"]) == (409, True)


async def test_a_download_goes_on_with_the_same_version_or_not_at_all(served: Served) -> None:
    target = "/api/v1/storage/cloudml/a"
    etag = (await served.member.call("PUT", target, body=b"0123456789")).headers["etag"]
    rest = await served.member.call("GET", target, headers={"If-Match": etag, "Range": "bytes=4-"})
    assert (rest.status, rest.body) == (206, b"456789")
    assert rest.headers["repr-digest"].startswith("sha-256=:")
    await served.member.call("PUT", target, body=b"abcdefghij")
    gone = await served.member.call("GET", target, headers={"If-Match": etag, "Range": "bytes=4-"})
    assert (gone.status, gone.json()["code"]) == (412, "conflict")
    head = await served.member.call("HEAD", target, headers={"Want-Repr-Digest": "sha-256=1"})
    digest = base64.b64encode(hashlib.sha256(b"abcdefghij").digest()).decode()
    assert head.headers["repr-digest"] == f"sha-256=:{digest}:"


async def test_the_storage_protocol_sends_parts_too(served: Served) -> None:
    begun = (await send(served.member, "PUT", "/cloudml/big?uploads=true")).json()
    assert (begun["bucketName"], begun["objectName"]) == ("cloudml", "big")
    where = f"/cloudml/big?uploadId={begun['uploadId']}"
    sent = [
        (await send(served.member, "PUT", f"{where}&partNumber={number}", content)).json()
        for number, content in enumerate(PARTS, start=1)
    ]
    assert sent[0] == {"partNumber": 1, "etag": sha256(PARTS[0]), "partSize": 1000}
    wrong = {"uploadPartResultList": [{**sent[0], "etag": "0" * 64}, *sent[1:]]}
    assert (await send(served.member, "PUT", where, json.dumps(wrong).encode())).status == 409
    served.clock.advance(1)
    elsewhere = f"/cloudml/other?uploadId={begun['uploadId']}"
    assert (
        await send(
            served.member, "PUT", elsewhere, json.dumps({"uploadPartResultList": sent}).encode()
        )
    ).status == 404
    done = await send(
        served.member, "PUT", where, json.dumps({"uploadPartResultList": sent}).encode()
    )
    assert (done.status, done.json()["objectName"]) == (200, "big")
    assert served.platform.objects.get("cloudml", "big") == WHOLE
    other = (await send(served.member, "PUT", "/cloudml/big2?uploads=true")).json()["uploadId"]
    assert (await send(served.member, "DELETE", f"/cloudml/big2?uploadId={other}")).status == 200
    assert (
        await send(served.member, "PUT", f"/cloudml/big2?uploadId={other}&partNumber=1", b"x")
    ).status == 404


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"uploadPartResultList": [1]}', b'{"uploadPartResultList": [{}]}']
)
async def test_a_list_of_parts_that_is_none_is_refused(served: Served, body: bytes) -> None:
    begun = (await send(served.member, "PUT", "/cloudml/big?uploads=true")).json()
    assert (
        await send(served.member, "PUT", f"/cloudml/big?uploadId={begun['uploadId']}", body)
    ).status == 400
