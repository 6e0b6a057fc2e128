"""``DELETE`` with ``If-Match``: only the version that the caller knows is removed."""

from __future__ import annotations

import pytest

from support.platform import Served

pytestmark = pytest.mark.anyio

HERE = "/api/v1/storage/cloudml/x"


async def test_only_the_version_that_is_named_is_deleted(served: Served) -> None:
    objects = served.platform.objects
    old = objects.put("cloudml", "x", b"old").etag
    new = objects.put("cloudml", "x", b"new").etag
    refused = await served.member.call("DELETE", HERE, headers={"If-Match": f'"{old}"'})
    assert (refused.status, refused.json()["code"], refused.json()["field"]) == (
        412,
        "precondition_failed",
        "If-Match",
    )
    assert objects.get("cloudml", "x") == b"new"
    assert (
        await served.member.call("DELETE", HERE, headers={"If-Match": f'"{new}"'})
    ).status == 200
    assert (
        await served.member.call("DELETE", HERE, headers={"If-Match": f'"{new}"'})
    ).status == 404


@pytest.mark.parametrize("header", ["", "abc", '"a", "b"', 'W/"a"', '"a b"', '"' + "a" * 201 + '"'])
async def test_what_is_no_etag_is_refused_by_name(served: Served, header: str) -> None:
    served.platform.objects.put("cloudml", "x", b"old")
    refused = await served.member.call("DELETE", HERE, headers={"If-Match": header})
    assert (refused.status, refused.json()["field"]) == (400, "If-Match")
    assert served.platform.objects.get("cloudml", "x") == b"old"


async def test_any_version_may_be_named(served: Served) -> None:
    served.platform.objects.put("cloudml", "x", b"old")
    assert (await served.member.call("DELETE", HERE, headers={"If-Match": "*"})).status == 200
