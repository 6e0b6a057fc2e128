"""Links to objects, as raw requests in process."""

from __future__ import annotations

import pytest

from cloud_ml.auth import presigned
from support.asgi import Answer
from support.platform import Served

pytestmark = pytest.mark.anyio

HERE = "/api/v1/storage"
OBJECT = f"{HERE}/cloudml/page.html"


def link(served: Served, method: str = "GET", path: str = OBJECT, lasts_s: float = 3600) -> str:
    key = served.member.identity
    expires = int(served.clock().timestamp() + lasts_s)
    return presigned.sign(method, path, key=key.access_key, secret=key.secret, expires=expires)


async def send(served: Served, method: str, target: str, body: bytes = b"") -> Answer:
    return await served.client.send(method, target, {}, body)


async def test_a_link_reads_and_a_page_never_runs(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"<script>")
    answer = await send(served, "GET", link(served))
    assert (answer.status, answer.body) == (200, b"<script>")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await send(served, "GET", link(served))).status == 200


async def test_a_link_writes(served: Served) -> None:
    made = link(served, "PUT")
    for content in (b"one", b"two"):
        assert (await send(served, "PUT", made, content)).status == 201
        assert served.platform.objects.get("cloudml", "page.html") == content


async def test_a_link_opens_nothing_else(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = link(served)
    for method in ("PUT", "DELETE", "HEAD", "POST"):
        assert (await send(served, method, made)).status in (401, 405), method
    assert (await send(served, "GET", made.replace("page", "pagf"))).status == 401
    for path in (HERE, f"{HERE}/cloudml", f"{HERE}/-/usage", f"{HERE}/-/usage/cloudml", f"{HERE}/-/uploads/cloudml",
                 "/api/v1/jobs", "/api/v1/whoami"):  # fmt: skip
        assert (await send(served, "GET", link(served, path=path))).status == 401, path
    assert (await send(served, "GET", link(served, path=f"{HERE}/others/a"))).status == 404
    assert served.platform.objects.get("cloudml", "page.html") == b"x"


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "changed",
    [
        "{made}&x=1", "{made}&x", "{made}&", "{made}&=", "{path}?x=1&{query}", "{path}?&{query}", "{made}&{query}",
        "{made}&X-Cloudml-Key=other", "{made}&X-Cloudml-Expires=1", "{made}&X-Cloudml-Signature=00", "{made}&prefix=a",
        "{made}&org_id=other", "{made}&X%2DCloudml%2DKey=other", "{made}&%58-Cloudml-Key=other", "{made};x=1",
    ],
)  # fmt: skip
async def test_a_link_with_anything_added_is_refused_as_any_wrong_signature(
    served: Served, method: str, changed: str
) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = link(served, method)
    path, _, query = made.partition("?")
    answer = await send(served, method, changed.format(made=made, path=path, query=query), b"y")
    assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")
    assert served.platform.objects.get("cloudml", "page.html") == b"x"


async def test_a_link_ends(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = link(served, lasts_s=60)
    served.clock.advance(59)
    assert (await send(served, "GET", made)).status == 200
    served.clock.advance(2)
    ended = await send(served, "GET", made)
    assert (ended.status, ended.json()["message"]) == (401, "the link has expired")
    assert (await send(served, "GET", link(served, lasts_s=8 * 86_400))).status == 401


async def test_a_link_goes_with_its_key(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = link(served)
    assert (await send(served, "GET", made)).status == 200
    served.platform.identities.set_secret(served.member.identity.access_key, "another")
    assert (await send(served, "GET", made)).status == 401


async def test_what_a_link_opened_is_in_nobodys_cache(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    assert (await send(served, "GET", link(served))).headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(
    "change",
    [
        ("PATCH", "/api/v1/admin/users/mei", {"enabled": False}),
        ("PATCH", "/api/v1/admin/keys/{key}", {"enabled": False}),
        ("DELETE", "/api/v1/admin/users/mei", None),
        ("DELETE", "/api/v1/admin/keys/{key}", None),
    ],
)
async def test_a_link_ends_with_the_right_to_it(
    served: Served, change: tuple[str, str, object]
) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = [link(served), link(served, "PUT")]
    method, target, document = change
    key = served.member.identity.access_key
    assert (await served.admin.call(method, target.format(key=key), document)).status == 200
    assert [
        (await send(served, "GET", made[0])).status,
        (await send(served, "PUT", made[1])).status,
    ] == [401, 401]
    assert served.platform.objects.get("cloudml", "page.html") == b"x"


async def test_who_may_only_look_makes_no_link_that_writes(served: Served) -> None:
    served.platform.objects.put("cloudml", "page.html", b"x")
    made = [link(served), link(served, "PUT")]
    await served.admin.call("PATCH", "/api/v1/admin/users/mei", {"role": "viewer"})
    assert (await send(served, "GET", made[0])).status == 200
    assert (await send(served, "PUT", made[1], b"y")).status == 403
    assert served.platform.objects.get("cloudml", "page.html") == b"x"


async def test_a_link_means_the_very_bytes_of_its_path_and_query(served: Served) -> None:
    for key in ("page.html", "a/page.html"):
        served.platform.objects.put("cloudml", key, b"x")
    made = link(served)
    path, _, query = made.partition("?")
    pairs = query.split("&")
    for other in (
        path.replace("page", "%70age"), path.replace("/cloudml/", "//cloudml/"),
        path.replace("/cloudml/", "/cloudml//"),
        path.replace("/cloudml/", "/cloudml/a/../"), path.replace("/cloudml/", "/cloudml/./"), path + "/", path + ";x",
        path.replace("/cloudml/", "/cloudml/a/%2e%2e/"), path.replace("cloudml/", "cloudml%2F"), path + "%00",
    ):  # fmt: skip
        assert (await send(served, "GET", f"{other}?{query}")).status in (400, 401, 404), other
    for more in (
        pairs[:2], [*pairs, pairs[0]], [*pairs, "prefix="], [*pairs, ""], [*pairs[:2], pairs[2].upper()],
        [pairs[0], "X-Cloudml-Expires=99999999999", pairs[2]], [pairs[0], pairs[1] + "0", pairs[2]],
        [pairs[0], pairs[1].replace("=", "=0"), pairs[2]], [pairs[0].replace("X-", "x-"), *pairs[1:]],
    ):  # fmt: skip
        answer = await send(served, "GET", f"{path}?{'&'.join(more)}")
        assert answer.status in (400, 401), more
    assert (await send(served, "GET", f"{path}?{'&'.join(reversed(pairs))}")).status == 200
    for headers in ({"X-Http-Method-Override": "PUT"}, {"X-Original-Url": "/api/v1/whoami"}):
        assert (await served.client.send("GET", made, headers)).body == b"x"
    assert (
        await served.client.send("GET", made, {"Authorization": "CLOUDML1-HMAC-SHA256 x"})
    ).status == 401
    assert (await served.client.send("GET", made, {"Range": "bytes=0-0"})).status == 206
