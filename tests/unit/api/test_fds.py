"""The storage protocol, as raw requests in process."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from cloud_ml.api.fds.fds_request import Level
from cloud_ml.api.fds.operations import OPERATIONS
from cloud_ml.settings import ApiSettings
from support.platform import Served
from support.storage_protocol import send, signed

pytestmark = pytest.mark.anyio

OBJECT = "/cloudml/user_packages/linear.tar.gz"


async def put(served: Served, target: str = OBJECT, body: bytes = b"0123456789") -> None:
    served.clock.advance(1)
    assert (await send(served.member, "PUT", target, body)).status == 200


async def test_an_object_comes_and_goes(served: Served) -> None:
    missing = await send(served.member, "HEAD", OBJECT)
    assert missing.status == 404
    stored = await send(served.member, "PUT", OBJECT, b"0123456789")
    assert (stored.status, stored.json()) == (
        200,
        {
            "bucketName": "cloudml",
            "objectName": "user_packages/linear.tar.gz",
            "accessKeyId": served.member.identity.access_key,
            "signature": "",
            "expires": 0,
        },
    )
    known = await send(served.member, "HEAD", OBJECT)
    assert (known.status, known.headers["content-length"], known.body) == (200, "10", b"")
    whole = await send(served.member, "GET", OBJECT)
    assert (whole.status, whole.body, whole.headers["content-disposition"]) == (
        200,
        b"0123456789",
        "attachment",
    )
    about = await send(served.member, "GET", OBJECT + "?metadata=true")
    assert (about.body, about.headers["x-xiaomi-meta-content-length"]) == (b"", "10")
    assert "content-length" not in about.headers
    rest = await send(served.member, "GET", OBJECT, headers={"Range": "bytes=7-"})
    assert (rest.status, rest.body) == (206, b"789")
    assert (await send(served.member, "DELETE", OBJECT + "?enableTrash=false")).status == 200
    assert (await send(served.member, "HEAD", OBJECT)).status == 404


async def test_what_is_stored_here_is_seen_on_the_modern_surface(served: Served) -> None:
    await put(served, "/cloudml/a%20b/%E6%A8%A1")
    answer = await served.member.call("GET", "/api/v1/storage/cloudml/a%20b/%E6%A8%A1")
    assert (answer.status, answer.body) == (200, b"0123456789")


async def test_buckets(served: Served) -> None:
    assert (await send(served.member, "HEAD", "/cloudml")).status == 200
    assert (await send(served.member, "HEAD", "/cloudml/")).status == 200
    assert (await send(served.member, "HEAD", "/nowhere")).status == 404
    made = await send(served.member, "PUT", "/scratch")
    assert (made.status, made.json()["name"]) == (200, "scratch")
    assert (await send(served.member, "GET", "/scratch")).json()["name"] == "scratch"
    listed = (await send(served.member, "GET", "/?authorizedBuckets=true")).json()
    assert [bucket["name"] for bucket in listed["buckets"]] == ["cloudml", "scratch"]
    assert listed["owner"]["id"] == "1"
    assert (await send(served.member, "PUT", "/others")).status == 409


async def test_an_upload_whose_key_was_rewritten_away_is_refused(served: Served) -> None:
    refused = await send(served.member, "PUT", "/cloudml/", b"content of the key '.'")
    assert (refused.status, refused.json()["field"]) == (400, "body")


@pytest.mark.parametrize("method", ["HEAD", "GET", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "target",
    ["/cloudml/%0D%0A/", "/cloudml/%0A", "/cloudml/a%0Db/c", "/%0A/", "/cloudml/%0A/?metadata"],
)
async def test_a_line_break_in_a_path_leads_nowhere_else(
    served: Served, method: str, target: str
) -> None:
    answer = await send(served.member, method, target)
    assert answer.status in (400, 404, 405), "no redirect, and nothing that is stored or found"
    assert "location" not in answer.headers
    unsigned = await served.client.send(
        method, target, {"Authorization": "Galaxy-V2 a:" + "A" * 27 + "="}
    )
    assert unsigned.status == (405 if method == "PATCH" else 401)


async def test_listings_are_pages(served: Served) -> None:
    for name in ("a/1", "a/2", "b"):
        await put(served, f"/cloudml/{name}")
    first = (await send(served.member, "GET", "/cloudml?prefix=&delimiter=%2F&maxKeys=1")).json()
    assert (first["commonPrefixes"], first["objects"], first["truncated"]) == (["a/"], [], True)
    following = f"/cloudml?prefix=&delimiter=%2F&maxKeys=1&marker={first['nextMarker']}"
    second = (await send(served.member, "GET", following)).json()
    assert ([one["name"] for one in second["objects"]], second["truncated"]) == (["b"], False)
    assert second["objects"][0]["size"] == 10
    below = (await send(served.member, "GET", "/cloudml?prefix=a%2F&delimiter=")).json()
    assert [one["name"] for one in below["objects"]] == ["a/1", "a/2"]


@pytest.mark.parametrize("query", ["prefix=&delimiter=-", "prefix=&maxKeys=0", "prefix=&prefix=a"])
async def test_a_listing_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    assert (await send(served.member, "GET", f"/cloudml?{query}")).status == 400


async def test_foreign_and_missing_buckets_get_the_same_answers(served: Served) -> None:
    for method, rest in [
        ("HEAD", ""),
        ("GET", ""),
        ("GET", "?prefix="),
        ("HEAD", "/a"),
        ("GET", "/a"),
        ("PUT", "/a"),
    ]:
        answers = [
            await send(served.member, method, f"/{bucket}{rest}")
            for bucket in ("others", "nowhere")
        ]
        assert [answer.status for answer in answers] == [404, 404], method + rest
        assert answers[0].body.replace(b"others", b"nowhere") == answers[1].body


@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda one: f"{one.method} {one.level.name} {one.run.__name__}"
)
async def test_nothing_is_done_without_a_signature(served: Served, operation: Any) -> None:
    path = {Level.SERVICE: "/", Level.BUCKET: "/cloudml", Level.OBJECT: OBJECT}[operation.level]
    target = path + "".join(f"?{name}=" for name in operation.required)
    headers = signed(served.member, operation.method, target)
    assert (await served.client.send(operation.method, target, headers, b"x")).status != 401
    headers["Authorization"] = headers["Authorization"].replace(":", ":A")[:-2] + "="
    served.clock.advance(1)
    assert (await served.client.send(operation.method, target, headers, b"x")).status == 401


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", OBJECT + "?cp=cpparam"),
        ("PUT", OBJECT + "?renameTo=b"),
        ("PUT", OBJECT + "?acl=true"),
        ("PUT", "/cloudml?deleteObjects=true"),
        ("PUT", "/cloudml?storageClass=ARCHIVE"),
        ("GET", OBJECT + "?versionIds=true"),
        ("GET", "/cloudml?lifecycle="),
        ("POST", "/cloudml"),
        ("DELETE", "/cloudml"),
        ("HEAD", OBJECT + "?prefix="),
    ],
)
async def test_what_is_not_listed_is_refused_and_changes_nothing(
    served: Served, method: str, target: str
) -> None:
    await put(served)
    answer = await send(served.member, method, target, b'["user_packages/linear.tar.gz"]')
    assert (answer.status, answer.json()["message"].startswith("this server has no ")) == (
        400,
        True,
    )
    assert (await send(served.member, "GET", OBJECT)).body == b"0123456789"


@pytest.mark.parametrize(
    "name", ["x-xiaomi-meta-owner", "x-xiaomi-copy-source", "x-xiaomi-storage-class"]
)
async def test_an_upload_does_not_lose_what_came_with_it_in_silence(
    served: Served, name: str
) -> None:
    answer = await send(served.member, "PUT", OBJECT, b"x", {name: "/cloudml/a"})
    assert (answer.status, answer.json()["field"]) == (400, name)
    assert (await send(served.member, "HEAD", OBJECT)).status == 404


@pytest.mark.parametrize("key", ["..", "a/../b", "a//b", ".", "a%00b", "a%3Fb"])
async def test_a_key_that_can_be_no_path_is_refused(served: Served, key: str) -> None:
    answer = await served.client.send(
        "PUT", f"/cloudml/{key}", signed(served.member, "PUT", "/cloudml/x"), b"x"
    )
    assert answer.status == 401
    if "%3F" not in key:
        assert (await send(served.member, "PUT", f"/cloudml/{key}", b"x")).status == 400


async def test_a_body_is_the_signed_one_when_one_was_signed(served: Served) -> None:
    digest = hashlib.md5(b"right").hexdigest()
    wrong = await send(served.member, "PUT", OBJECT, b"wrong", {"Content-MD5": digest})
    assert (wrong.status, wrong.json()["field"]) == (401, "Content-MD5")
    assert (await send(served.member, "HEAD", OBJECT)).status == 404
    served.clock.advance(1)
    assert (
        await send(served.member, "PUT", OBJECT, b"right", {"Content-MD5": digest})
    ).status == 200


async def test_a_mutation_is_taken_once(served: Served) -> None:
    headers = signed(served.member, "PUT", OBJECT)
    assert (await served.client.send("PUT", OBJECT, headers, b"first")).status == 200
    again = await served.client.send("PUT", OBJECT, headers, b"second")
    assert again.status == 401
    assert (await send(served.member, "GET", OBJECT)).body == b"first"


@pytest.mark.parametrize("seconds", [-301, 301])
async def test_an_old_request_is_refused(served: Served, seconds: int) -> None:
    headers = signed(served.member, "HEAD", "/cloudml")
    served.clock.advance(seconds)
    assert (await served.client.send("HEAD", "/cloudml", headers)).status == 401


@pytest.mark.parametrize(
    "path", ["/api/v1/whoami", "/api/v1/jobs", "/cloud_ml/v1/train", "/cloud_ml/v1/org_ids"]
)
async def test_this_scheme_opens_no_other_room(served: Served, path: str) -> None:
    answer = await send(served.member, "GET", path)
    assert answer.status == 404
    assert "object" in answer.json()["message"] or "bucket" in answer.json()["message"]


async def test_no_other_scheme_opens_this_room(served: Served) -> None:
    await put(served)
    assert (await served.member.call("GET", OBJECT)).status == 404
    assert (await served.member.original("GET", OBJECT)).status == 404
    assert (await served.client.send("GET", OBJECT)).status == 404
    two = [("authorization", "Galaxy V3 x"), *signed(served.member, "GET", OBJECT).items()]
    assert (await served.client.send("GET", OBJECT, dict(two))).status == 401


async def test_the_operator_may_close_the_room() -> None:
    closed = Served(ApiSettings(legacy_signatures=False))
    answer = await send(closed.member, "GET", "/cloudml")
    assert (answer.status, "switched off" in answer.json()["message"]) == (401, True)
    closed.close()


async def test_a_key_may_be_kept_out(served: Served) -> None:
    identities = served.platform.identities
    new = identities.create_key(served.member.identity.organisation, "new", fds_signatures=False)
    answer = await send(served.as_caller(new), "GET", "/cloudml")
    assert (answer.status, "cloudml admin keys create --fds" in answer.json()["message"]) == (
        401,
        True,
    )


async def test_a_key_need_not_accept_the_other_original_signature(served: Served) -> None:
    new = served.as_caller(
        served.platform.identities.create_key(served.member.identity.organisation, "new")
    )
    assert (await send(new, "GET", "/cloudml")).status == 200
    assert (await new.original("GET", "/cloud_ml/v1/org_ids")).status == 401


async def test_a_fault_of_ours_is_answered_like_everywhere(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("a detail")

    monkeypatch.setattr(served.platform.storage, "buckets", fail)
    answer = await send(served.member, "GET", "/")
    assert (answer.status, answer.json()["code"]) == (500, "internal")
    assert "a detail" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_other_methods_are_refused(served: Served) -> None:
    assert (await send(served.member, "PATCH", "/cloudml")).status == 405


async def test_a_range_is_of_the_version_that_if_range_names(served: Served) -> None:
    await put(served)
    etag = (await send(served.member, "HEAD", OBJECT)).headers["etag"]
    for named, status, body in (
        (etag, 206, b"789"),
        (f"W/{etag}", 200, b"0123456789"),
        ('"x"', 200, b"0123456789"),
    ):
        answer = await send(
            served.member, "GET", OBJECT, headers={"Range": "bytes=7-", "If-Range": named}
        )
        assert (answer.status, answer.body) == (status, body), named
    await put(served, body=b"another version")
    answer = await send(
        served.member, "GET", OBJECT, headers={"Range": "bytes=7-", "If-Range": etag}
    )
    assert (answer.status, answer.body) == (200, b"another version")
    answer = await send(served.member, "GET", OBJECT, headers={"If-Match": etag})
    assert answer.status == 412
