from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from cloud_ml.auth import signature
from cloud_ml.domain.audit import AuditFilter
from cloud_ml.errors import OutOfSpace
from cloud_ml.models import codec
from cloud_ml.models.storage.objects import BucketPage, ObjectPage, StoredObject
from support.platform import Served

pytestmark = pytest.mark.anyio

HERE = "/api/v1/storage"
BIG = bytes(range(256)) * 16384  # 4 MiB: several pieces


def pieces(content: bytes) -> Iterator[bytes]:
    return (content[i : i + 65_536] for i in range(0, len(content), 65_536))


async def test_what_was_stored_comes_back(served: Served) -> None:
    stored = await served.member.call("PUT", f"{HERE}/cloudml/a/b.bin", body=BIG)
    assert stored.status == 201
    one = codec.decode(StoredObject, stored.json())
    assert (one.uri, one.size) == ("fds://cloudml/a/b.bin", len(BIG))
    read = await served.member.call("GET", f"{HERE}/cloudml/a/b.bin")
    assert (read.status, read.body == BIG, read.headers["content-length"]) == (
        200,
        True,
        str(len(BIG)),
    )
    head = await served.member.call("HEAD", f"{HERE}/cloudml/a/b.bin")
    assert head.body == b""
    for name in ("content-length", "etag", "last-modified", "accept-ranges"):
        assert head.headers[name] == read.headers[name]
    assert read.headers["etag"] == f'"{one.etag}"'


@pytest.mark.parametrize("unsigned", [True, False])
async def test_an_upload_is_streamed_and_checked_at_its_end(served: Served, unsigned: bool) -> None:
    headers = served.member.sign("PUT", f"{HERE}/cloudml/big", iter(()) if unsigned else BIG)
    answer = await served.client.send("PUT", f"{HERE}/cloudml/big", headers, pieces(BIG))
    assert answer.status == 201
    assert served.platform.objects.get("cloudml", "big") == BIG


@pytest.mark.parametrize("whole", [True, False])
async def test_the_audit_log_has_the_time_when_an_upload_ended(served: Served, whole: bool) -> None:
    """It had the time of its beginning, above entries of later times."""
    began = served.clock()

    def slowly() -> Iterator[bytes]:
        for piece in pieces(BIG if whole else BIG[:-1]):
            served.clock.advance(0.1)
            yield piece

    headers = served.member.sign("PUT", f"{HERE}/cloudml/big", BIG)
    answer = await served.client.send("PUT", f"{HERE}/cloudml/big", headers, slowly())
    (entry,) = served.store.audit(AuditFilter(target="cloudml/big")).items
    assert (answer.status, entry.outcome) == ((201, "done") if whole else (401, "unauthenticated"))
    assert entry.at == served.clock() > began
    assert not served.store.audit(AuditFilter(until=served.clock())).items


@pytest.mark.parametrize("key", ["big", "old"])
async def test_another_content_than_the_signed_one_changes_nothing(
    served: Served, key: str
) -> None:
    served.platform.objects.put("cloudml", "old", b"old")
    headers = served.member.sign("PUT", f"{HERE}/cloudml/{key}", BIG)
    answer = await served.client.send("PUT", f"{HERE}/cloudml/{key}", headers, pieces(BIG[:-1]))
    assert (answer.status, answer.json()["field"]) == (401, signature.CONTENT)
    assert [one.key for one in served.platform.objects.list("cloudml").objects] == ["old"]
    assert served.platform.objects.get("cloudml", "old") == b"old"


async def test_an_upload_that_breaks_off_changes_nothing(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    headers = served.member.sign("PUT", f"{HERE}/cloudml/half", BIG)
    async with served.client.open(
        "PUT", f"{HERE}/cloudml/half", headers, pieces(BIG), cut_off=True
    ):
        pass
    assert not served.platform.objects.list("cloudml").objects
    assert "failed" not in caplog.text


async def test_a_replayed_upload_changes_nothing(served: Served) -> None:
    target = f"{HERE}/cloudml/a"
    headers = served.member.sign("PUT", target, b"old")
    assert (await served.client.send("PUT", target, headers, b"old")).status == 201
    await served.member.call("PUT", target, body=b"new")
    assert (await served.client.send("PUT", target, headers, b"old")).status == 401
    assert served.platform.objects.get("cloudml", "a") == b"new"


async def test_an_object_can_be_asked_to_be_new(served: Served) -> None:
    target, new = f"{HERE}/cloudml/a", {"If-None-Match": "*"}
    assert (await served.member.call("PUT", target, body=b"1", headers=new)).status == 201
    taken = await served.member.call("PUT", target, body=b"2", headers=new)
    assert (taken.status, taken.json()["code"]) == (409, "already_exists")
    assert served.platform.objects.get("cloudml", "a") == b"1"
    other = await served.member.call("PUT", target, body=b"2", headers={"If-None-Match": '"abc"'})
    assert (other.status, other.json()["field"]) == (400, "If-None-Match")


@pytest.mark.parametrize(
    ("requested_range", "status", "content", "range_"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
async def test_a_range_is_what_is_sent(
    served: Served, requested_range: str, status: int, content: bytes, range_: str | None
) -> None:
    served.platform.objects.put("cloudml", "digits", b"0123456789")
    answer = await served.member.call(
        "GET", f"{HERE}/cloudml/digits", headers={"Range": requested_range}
    )
    assert (answer.status, answer.body, answer.headers.get("content-range")) == (
        status,
        content,
        range_,
    )
    assert answer.headers["content-length"] == str(len(content))


async def test_a_range_outside_says_how_much_there_is(served: Served) -> None:
    served.platform.objects.put("cloudml", "digits", b"0123456789")
    answer = await served.member.call(
        "GET", f"{HERE}/cloudml/digits", headers={"Range": "bytes=10-"}
    )
    assert (answer.status, answer.headers["content-range"]) == (416, "bytes */10")
    assert (answer.json()["error"], answer.json()["field"]) == (True, "Range")


async def test_a_range_is_of_one_version(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is replaced by a shorter one between the look at its size and the reading."""
    served.platform.objects.put("cloudml", "digits", b"0123456789")
    look = served.platform.storage.head

    def look_and_be_overtaken(*args: str) -> StoredObject:
        found = look(*args)
        served.platform.objects.put("cloudml", "digits", b"abc")
        return found

    monkeypatch.setattr(served.platform.storage, "head", look_and_be_overtaken)
    answer = await served.member.call(
        "GET", f"{HERE}/cloudml/digits", headers={"Range": "bytes=1-9"}
    )
    assert (answer.status, answer.body, answer.headers["content-range"]) == (
        206,
        b"bc",
        "bytes 1-2/3",
    )


async def test_stored_pages_do_not_run_in_our_origin(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"<script>")
    headers = (await served.member.call("GET", f"{HERE}/cloudml/page.html")).headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == "attachment"
    assert headers["content-security-policy"] == "sandbox"
    assert headers["x-content-type-options"] == "nosniff"


async def test_buckets_are_made_and_listed(served: Served) -> None:
    for _ in range(2):
        assert (await served.member.call("PUT", f"{HERE}/more-data")).status == 201
    page = codec.decode(BucketPage, (await served.member.call("GET", HERE)).json())
    assert [bucket.name for bucket in page.items] == ["cloudml", "more-data"]
    taken = await served.stranger.call("PUT", f"{HERE}/more-data")
    assert (taken.status, taken.json()["code"]) == (409, "already_exists")
    bad = await served.member.call("PUT", f"{HERE}/Bad")
    assert (bad.status, bad.json()["field"]) == (400, "bucket")


async def test_objects_are_listed_a_page_at_a_time(served: Served) -> None:
    for key in ("a/1", "a/2", "a/3", "b", "c"):
        served.platform.objects.put("cloudml", key, b"")

    async def page(query: str) -> ObjectPage:
        return codec.decode(
            ObjectPage, (await served.member.call("GET", f"{HERE}/cloudml?{query}")).json()
        )

    first = await page("prefix=a/&limit=2")
    second = await page(f"prefix=a/&limit=2&after={first.next}")
    assert [one.key for one in (*first.objects, *second.objects)] == ["a/1", "a/2", "a/3"]
    assert second.next is None
    level = await page("delimiter=true")
    assert (level.folders, [one.key for one in level.objects]) == (["a/"], ["b", "c"])
    refused = await served.member.call("GET", f"{HERE}/cloudml?limit=1001")
    assert (refused.status, refused.json()["field"]) == (400, "limit")


async def test_an_object_is_removed_once(served: Served) -> None:
    served.platform.objects.put("cloudml", "a", b"12")
    first = await served.member.call("DELETE", f"{HERE}/cloudml/a")
    assert (first.status, first.json()["size"]) == (200, 2)
    assert (await served.member.call("DELETE", f"{HERE}/cloudml/a")).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/a"), ("HEAD", "/a"), ("PUT", "/a"), ("DELETE", "/a")],
)
async def test_a_bucket_of_somebody_else_is_as_absent_as_none(
    served: Served, method: str, path: str
) -> None:
    served.platform.objects.put("others", "a", b"secret")
    answers = {
        name: await served.member.call(
            method, f"{HERE}/{name}{path}", body=b"x" if method == "PUT" else None
        )
        for name in ("others", "never")
    }
    assert {answer.status for answer in answers.values()} == {404}
    assert len({answer.text.replace(name, "N") for name, answer in answers.items()}) == 1
    assert served.platform.objects.get("others", "a") == b"secret"


@pytest.mark.parametrize("key", ["..%2Fothers%2Fa", "a/../b", "a//b", "a%00b", "a/", "", "a%5Cb"])
async def test_keys_that_can_be_no_path_are_refused(served: Served, key: str) -> None:
    for method in ("GET", "PUT"):
        answer = await served.member.call(
            method, f"{HERE}/cloudml/{key}", body=b"x" if method == "PUT" else None
        )
        assert answer.status in (400, 404), answer.text
        assert answer.json()["error"] is True
    assert not served.platform.objects.list("cloudml").objects


async def test_keys_are_percent_decoded_once(served: Served) -> None:
    await served.member.call("PUT", f"{HERE}/cloudml/%E5%8C%97%20a%2525", body=b"x")
    assert [one.key for one in served.platform.objects.list("cloudml").objects] == ["北 a%25"]


async def test_a_full_disk_says_so_and_leaves_no_trace(served: Served) -> None:
    served.store.fail_writes(OutOfSpace("the disk is full"))
    answer = await served.member.call("PUT", f"{HERE}/cloudml/a", body=b"x")
    assert (answer.status, answer.json()["code"]) == (507, "out_of_space")
    assert not served.platform.objects.list("cloudml").objects


async def test_the_original_scheme_may_upload_too(served: Served) -> None:
    headers = served.member.sign_original(f"{HERE}/cloudml/a", b"abc")
    assert (await served.client.send("PUT", f"{HERE}/cloudml/a", headers, b"abc")).status == 201
    wrong = served.member.sign_original(f"{HERE}/cloudml/b", b"abc")
    refused = await served.client.send("PUT", f"{HERE}/cloudml/b", wrong, b"abd")
    assert refused.status == 401
    assert hashlib.md5(b"abd", usedforsecurity=False).hexdigest() in refused.text


async def test_usage_is_told_by_bucket_and_prefix(served: Served) -> None:
    for key, size in (("a/1", 3), ("a/2", 4), ("b", 5)):
        assert (
            await served.member.call("PUT", f"{HERE}/cloudml/{key}", body=bytes(size))
        ).status == 201
    whole = (await served.member.call("GET", f"{HERE}/-/usage")).json()
    assert (whole["objects"], whole["bytes"], whole["complete"]) == (3, 12, True)
    assert [item["bucket"] for item in whole["items"]] == ["cloudml"]
    part = (await served.member.call("GET", f"{HERE}/-/usage/cloudml?prefix=a%2F")).json()
    assert (part["objects"], part["bytes"], part["prefix"]) == (2, 7, "a/")
    await served.member.call("PUT", f"{HERE}/cloudml/c", body=bytes(8))
    assert (await served.member.call("GET", f"{HERE}/-/usage")).json()["bytes"] == 20
    for bucket in ("others", "nowhere"):
        assert (await served.member.call("GET", f"{HERE}/-/usage/{bucket}")).status == 404


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../others/a",
        "a/../../others/a",
        "%2e%2e/others/a",
        "a/%2E%2E/%2e%2e/x",
        "..%2fothers%2fa",
        "%2fetc/passwd",
        "a//b",
        "a/./b",
        "a%5cb",
        "a%00b",
        "a%0ab",
        "a%7fb",
        "%ff%fe",
        "%c0%ae%c0%ae/x",
        "a" * 256,
        "/".join(["a" * 200] * 6),
        "a/",
    ],
)
@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
async def test_what_can_be_no_key_is_refused_everywhere(
    served: Served, path: str, method: str
) -> None:
    answer = await served.member.call(
        method, f"{HERE}/cloudml/{path}", body=b"x" if method == "PUT" else None
    )
    assert answer.status in (400, 401, 404), answer.body
    assert not served.platform.objects.list("cloudml").objects
    assert not served.platform.objects.list("others").objects


async def test_two_forms_of_one_letter_are_two_keys(served: Served) -> None:
    for encoded in ("caf%C3%A9", "cafe%CC%81"):
        assert (
            await served.member.call("PUT", f"{HERE}/cloudml/{encoded}", body=encoded.encode())
        ).status == 201
    listed = (await served.member.call("GET", f"{HERE}/cloudml")).json()["objects"]
    assert [one["key"] for one in listed] == ["cafe\u0301", "caf\u00e9"]
    assert (await served.member.call("GET", f"{HERE}/cloudml/caf%C3%A9")).body == b"caf%C3%A9"


@pytest.mark.parametrize(
    ("if_range", "status"),
    [
        ('"{etag}"', 206), (' "{etag}" ', 206), ('W/"{etag}"', 200), ('"other"', 200), ("{etag}", 200), ("*", 200),
        ('"{etag}", "other"', 200), ("{modified}", 200), ("", 200), ("Sun, 18 Sep 2016 13:04:20 "
                                                                     "GMT", 200),
    ],
)  # fmt: skip
async def test_a_range_is_of_the_version_that_if_range_names(
    served: Served, if_range: str, status: int
) -> None:
    served.platform.objects.put("cloudml", "a", b"0123456789")
    head = await served.member.call("HEAD", f"{HERE}/cloudml/a")
    named = if_range.format(
        etag=head.headers["etag"].strip('"'), modified=head.headers["last-modified"]
    )
    headers = {"Range": "bytes=5-", "If-Range": named}
    answer = await served.member.call("GET", f"{HERE}/cloudml/a", headers=headers)
    assert (answer.status, answer.body) == (status, b"56789" if status == 206 else b"0123456789")
    served.platform.objects.put("cloudml", "a", b"another one")
    answer = await served.member.call("GET", f"{HERE}/cloudml/a", headers=headers)
    assert (answer.status, answer.body) == (200, b"another one"), (
        "never the end of one version for that of another"
    )


async def test_a_wrong_version_is_found_out_before_its_range(served: Served) -> None:
    served.platform.objects.put("cloudml", "a", b"0123456789")
    headers = {"Range": "bytes=50-", "If-Match": '"another"'}
    assert (await served.member.call("GET", f"{HERE}/cloudml/a", headers=headers)).status == 412
    headers = {"Range": "bytes=50-", "If-Range": '"another"'}
    answer = await served.member.call("GET", f"{HERE}/cloudml/a", headers=headers)
    assert (answer.status, answer.body) == (200, b"0123456789")
