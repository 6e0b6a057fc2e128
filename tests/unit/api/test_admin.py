"""Organisations, users and keys over HTTP: who may what, and that others' do not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.domain.tenancy import BUCKET, SYSTEM, Role
from cloud_ml.settings import KeySettings
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio

ADMIN = "/api/v1/admin"


async def good(caller: Caller, method: str, path: str, document: Any = None) -> Any:
    answer = await caller.call(method, ADMIN + path, document)
    assert answer.status < 300, answer.text
    return answer.json()


async def refused(caller: Caller, method: str, path: str, document: Any = None) -> tuple[int, str]:
    answer = await caller.call(method, ADMIN + path, document)
    assert answer.status >= 400, answer.text
    return answer.status, answer.json()["code"]


async def with_key(served: Served, by: Caller, user: str, **query: str) -> Caller:
    """A caller with a new key of the user."""
    ending = "".join(f"?{name}={value}" for name, value in query.items())
    made = await good(by, "POST", f"/keys{ending}", {"user": user})
    return holder(served, by, made)


def holder(served: Served, like: Caller, made: Any) -> Caller:
    identity = replace(
        like.identity, access_key=made["key"]["access_key"], secret=made["secret_key"]
    )
    return served.as_caller(identity)


@pytest.fixture
async def owner(served: Served) -> Caller:
    """The owner of a new organisation, vision."""
    await good(served.admin, "POST", "/orgs", {"name": "vision", "mail": "v@example.com"})
    await good(served.admin, "POST", "/users?org=vision", {"name": "olga", "role": "owner"})
    return await with_key(served, served.admin, "olga", org="vision")


async def test_from_an_organisation_to_a_member_who_works(served: Served, owner: Caller) -> None:
    org = await good(owner, "GET", "/orgs/vision")
    assert (org["org_id"], org["enabled"], org["default_bucket"], org["mail"]) == (
        "3",
        True,
        "vision",
        "v@example.com",
    )
    await good(owner, "POST", "/users", {"name": "max"})
    member = await with_key(served, owner, "max")
    me = (await member.call("GET", "/api/v1/whoami")).json()
    assert (me["org"], me["user"], me["role"], me["default_bucket"]) == (
        "vision",
        "max",
        "member",
        "vision",
    )
    assert (
        await member.call("POST", "/api/v1/jobs", served.job(trainer_uri="fds://vision/t.tar.gz"))
    ).status == 201
    assert [one["name"] for one in (await good(owner, "GET", "/users"))["items"]] == ["olga", "max"]


async def test_a_secret_is_told_once(served: Served, owner: Caller) -> None:
    made = await good(owner, "POST", "/keys", {})
    for path in ("/keys", f"/keys/{made['key']['access_key']}", "/audit"):
        assert made["secret_key"] not in (await owner.call("GET", ADMIN + path)).text
    assert made["key"]["user"] == "olga"


async def test_a_repeated_request_makes_one_key(served: Served, owner: Caller) -> None:
    sent = [
        await owner.call("POST", f"{ADMIN}/keys", {}, headers={"Idempotency-Key": key})
        for key in ("one", "one", "two")
    ]
    first, again, other = (answer.json()["key"]["access_key"] for answer in sent)
    assert first == again != other
    assert sent[0].headers["cache-control"] == "no-store"


async def test_a_request_for_a_key_that_is_repeated_at_the_limit_is_answered_as_the_first_time(
    served: Served, owner: Caller
) -> None:
    served.platform.keys._settings = KeySettings(per_user=2)
    last = {"Idempotency-Key": "last"}
    first = await owner.call("POST", f"{ADMIN}/keys", {}, headers=last)
    again = await owner.call("POST", f"{ADMIN}/keys", {}, headers=last)
    assert (first.status, again.status, again.json()) == (201, 201, first.json())
    other = await owner.call("POST", f"{ADMIN}/keys", {}, headers={"Idempotency-Key": "other"})
    assert (other.status, "has 2 keys already" in other.json()["message"]) == (409, True)


async def test_a_rotation_that_is_repeated_after_its_key_ended_is_answered_as_the_first_time(
    served: Served, owner: Caller
) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    member = await with_key(served, owner, "max")
    path = f"{ADMIN}/keys/{member.identity.access_key}/rotate"
    answers = [
        await owner.call("POST", path, {"overlap_s": 0}, headers={"Idempotency-Key": key})
        for key in ("one", "one", "two")
    ]
    assert [answer.status for answer in answers] == [201, 201, 409]
    assert answers[0].json()["secret_key"] == answers[1].json()["secret_key"]


async def test_roles_and_what_they_may_not(served: Served, owner: Caller) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    member = await with_key(served, owner, "max")
    forbidden = (403, "forbidden")
    for caller in (owner, member):
        assert await refused(caller, "POST", "/orgs", {"name": "mine"}) == forbidden
        assert await refused(caller, "PATCH", "/orgs/vision", {"enabled": False}) == forbidden
        assert await refused(caller, "DELETE", "/orgs/vision") == forbidden
        assert await refused(caller, "DELETE", "/orgs/nowhere") == forbidden
    for method, path, document in (
        ("GET", "/users", None),
        ("POST", "/users", {"name": "eve"}),
        ("PATCH", "/users/max", {"role": "owner"}),
        ("DELETE", "/users/olga", None),
        ("GET", "/audit", None),
        ("POST", "/keys", {"user": "olga"}),
    ):
        assert await refused(member, method, path, document) == forbidden
    assert await refused(owner, "POST", "/users", {"name": "eve", "role": "admin"}) == forbidden
    assert await refused(owner, "PATCH", "/users/max", {"role": "admin"}) == forbidden


async def test_an_owner_gets_no_key_of_an_admin_of_the_same_organisation(served: Served) -> None:
    identities = served.platform.identities
    owner = served.as_caller(
        identities.create_key(served.admin.identity.organisation, "olga", role=Role.OWNER)
    )
    key = served.admin.identity.access_key
    for method, path, document in (
        ("POST", "/keys", {"user": "admin"}),
        ("POST", f"/keys/{key}/rotate", {}),
        ("PATCH", f"/keys/{key}", {"enabled": False}),
        ("DELETE", f"/keys/{key}", None),
        ("PATCH", "/users/admin", {"role": "viewer"}),
        ("DELETE", "/users/admin", None),
    ):
        assert await refused(owner, method, path, document) == (403, "forbidden")


async def test_a_member_has_the_own_keys_and_sees_no_others(served: Served, owner: Caller) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    member = await with_key(served, owner, "max")
    second = await good(member, "POST", "/keys", {})
    assert {one["user"] for one in (await good(member, "GET", "/keys"))["items"]} == {"max"}
    assert len((await good(owner, "GET", "/keys"))["items"]) == 3
    assert len((await good(owner, "GET", "/keys?user=max"))["items"]) == 2
    assert await refused(member, "GET", f"/keys/{owner.identity.access_key}") == (404, "not_found")
    await good(member, "DELETE", f"/keys/{second['key']['access_key']}")


CROSSING = (
    ("GET", "/orgs/{org}", None),
    ("GET", "/users?org={org}", None),
    ("POST", "/users?org={org}", {"name": "eve"}),
    ("GET", "/users/{user}?org={org}", None),
    ("PATCH", "/users/{user}?org={org}", {"enabled": False}),
    ("DELETE", "/users/{user}?org={org}", None),
    ("GET", "/keys?org={org}", None),
    ("POST", "/keys?org={org}", {"user": "{user}"}),
    ("GET", "/keys/{key}", None),
    ("PATCH", "/keys/{key}", {"enabled": False}),
    ("POST", "/keys/{key}/rotate", {}),
    ("DELETE", "/keys/{key}", None),
    ("GET", "/audit?org={org}", None),
)


@pytest.mark.parametrize(("method", "path", "document"), CROSSING)
async def test_foreign_and_missing_are_answered_alike(
    served: Served, owner: Caller, method: str, path: str, document: Any
) -> None:
    foreign = {"org": "other", "user": "zoe", "key": served.stranger.identity.access_key}
    missing = {"org": "nowhere", "user": "nobody", "key": "AK00"}
    answers = []
    for names in (foreign, missing):
        sent = (
            None
            if document is None
            else {k: names["user"] if v == "{user}" else v for k, v in document.items()}
        )
        answer = await owner.call(method, ADMIN + path.format(**names), sent)
        text = answer.text
        for name, value in names.items():
            text = text.replace(value, f"<{name}>")
        answers.append((answer.status, text))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
    number = await owner.call("GET", f"{ADMIN}/orgs/1")
    assert number.status == 404


async def test_rotation_overlaps_and_then_the_old_key_ends(served: Served, owner: Caller) -> None:
    key = owner.identity.access_key
    made = await good(owner, "POST", f"/keys/{key}/rotate", {"overlap_s": 60})
    successor = holder(served, owner, made)
    for caller in (owner, successor):
        assert (await caller.call("GET", "/api/v1/whoami")).status == 200
    served.clock.advance(59)
    assert (await owner.call("GET", "/api/v1/whoami")).status == 200
    served.clock.advance(1)
    assert (await owner.call("GET", "/api/v1/whoami")).status == 401
    assert (await successor.call("GET", "/api/v1/whoami")).status == 200
    assert (await good(successor, "GET", f"/keys/{key}"))["usable"] is False
    assert await refused(successor, "POST", f"/keys/{key}/rotate", {}) == (409, "conflict")


async def test_without_overlap_the_old_key_ends_at_once(served: Served, owner: Caller) -> None:
    made = await good(owner, "POST", f"/keys/{owner.identity.access_key}/rotate", {"overlap_s": 0})
    assert (await owner.call("GET", "/api/v1/whoami")).status == 401
    assert (await holder(served, owner, made).call("GET", "/api/v1/whoami")).status == 200


@pytest.mark.parametrize("overlap", [-1, 30 * 24 * 3600 + 1, "1h", 1.5])
async def test_an_overlap_has_bounds(served: Served, owner: Caller, overlap: object) -> None:
    answer = await owner.call(
        "POST", f"{ADMIN}/keys/{owner.identity.access_key}/rotate", {"overlap_s": overlap}
    )
    assert (answer.status, answer.json()["field"]) == (400, "overlap_s")


async def test_a_key_ends_when_it_was_made_to(served: Served, owner: Caller) -> None:
    made = await good(owner, "POST", "/keys", {"expires_in_s": 3600})
    caller = holder(served, owner, made)
    assert (await caller.call("GET", "/api/v1/whoami")).status == 200
    served.clock.advance(3600)
    assert (await caller.call("GET", "/api/v1/whoami")).status == 401


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/keys/{key}", {"enabled": False}),
        ("/users/max?org=vision", {"enabled": False}),
        ("/orgs/vision", {"enabled": False}),
    ],
)
async def test_what_is_disabled_is_refused_at_once_and_works_again(
    served: Served, owner: Caller, path: str, document: dict[str, Any]
) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    member = await with_key(served, owner, "max")
    assert (await member.call("GET", "/api/v1/whoami")).status == 200
    there = path.format(key=member.identity.access_key)
    await good(served.admin, "PATCH", there, document)
    assert (await member.call("GET", "/api/v1/whoami")).status == 401
    assert (await member.original("GET", "/cloud_ml/v1/train")).status == 401
    await good(served.admin, "PATCH", there, {"enabled": True})
    assert (await member.call("GET", "/api/v1/whoami")).status == 200


async def test_revoked_keys_and_removed_users_are_gone(served: Served, owner: Caller) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    first, second = [await with_key(served, owner, "max") for _ in "ab"]
    await good(owner, "DELETE", f"/keys/{first.identity.access_key}")
    assert (await first.call("GET", "/api/v1/whoami")).status == 401
    assert (await second.call("GET", "/api/v1/whoami")).status == 200
    await good(owner, "DELETE", "/users/max")
    assert (await second.call("GET", "/api/v1/whoami")).status == 401
    assert await refused(owner, "GET", "/users/max") == (404, "not_found")
    await good(owner, "POST", "/users", {"name": "max"})
    assert (await second.call("GET", "/api/v1/whoami")).status == 401, (
        "the key does not come back with the name"
    )


async def test_the_last_admin_stays(served: Served) -> None:
    key = served.admin.identity.access_key
    attempts = (
        ("PATCH", "/users/admin", {"enabled": False}),
        ("PATCH", "/users/admin", {"role": "member"}),
        ("DELETE", "/users/admin", None),
        ("PATCH", f"/keys/{key}", {"enabled": False}),
        ("DELETE", f"/keys/{key}", None),
        ("PATCH", "/orgs/default", {"enabled": False}),
    )
    for method, path, document in attempts:
        assert await refused(served.admin, method, path, document) == (409, "conflict"), path
    second = await good(served.admin, "POST", "/keys", {})
    await good(served.admin, "DELETE", f"/keys/{key}")
    assert (await holder(served, served.admin, second).call("GET", "/api/v1/whoami")).status == 200


async def test_an_owner_does_not_lock_himself_out(served: Served, owner: Caller) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    await with_key(served, owner, "max")
    for method, path, document in (
        ("DELETE", "/users/olga", None),
        ("PATCH", "/users/olga", {"role": "viewer"}),
    ):
        assert await refused(owner, method, path, document) == (409, "conflict")
    await good(owner, "PATCH", "/users/max", {"role": "owner"})
    await good(owner, "PATCH", "/users/olga", {"role": "viewer"})


async def test_an_organisation_goes_when_it_is_disabled_and_empty_and_its_name_with_it(
    served: Served, owner: Caller
) -> None:
    assert await refused(served.admin, "DELETE", "/orgs/vision") == (409, "conflict")
    await good(served.admin, "PATCH", "/orgs/vision", {"enabled": False})
    await good(served.admin, "DELETE", "/orgs/vision")
    assert not served.platform.objects.has_bucket("vision")
    assert served.store.find(BUCKET, SYSTEM, "vision") is None
    await good(served.admin, "POST", "/orgs", {"name": "empty", "default_bucket": ""})
    await good(served.admin, "PATCH", "/orgs/empty", {"enabled": False})
    await good(served.admin, "DELETE", "/orgs/empty")
    assert await refused(served.admin, "GET", "/orgs/empty") == (404, "not_found")
    assert "empty" not in [
        one["name"] for one in (await good(served.admin, "GET", "/orgs"))["items"]
    ]
    answer = await served.admin.call("POST", f"{ADMIN}/orgs", {"name": "empty"})
    assert (answer.status, answer.json()["code"]) == (409, "already_exists")
    assert "belonged to an organisation that is deleted" in answer.json()["message"]


async def test_an_organisation_that_holds_something_stays_and_the_steps_are_named(
    served: Served, owner: Caller
) -> None:
    async def refusal() -> tuple[str, str]:
        await good(served.admin, "PATCH", "/orgs/vision", {"enabled": False})
        answer = await served.admin.call("DELETE", f"{ADMIN}/orgs/vision")
        assert answer.status == 409, answer.text
        await good(served.admin, "PATCH", "/orgs/vision", {"enabled": True})
        return answer.json()["message"], answer.json().get("hint", "")

    assert (await owner.call("PUT", "/api/v1/storage/vision/a.txt", body=b"hello")).status < 300
    assert (await owner.call("PUT", "/api/v1/storage/scratch-v")).status == 201
    message, hint = await refusal()
    assert ("has buckets: scratch-v" in message, "rb --force scratch-v" in hint) == (True, True)
    assert (await owner.call("DELETE", "/api/v1/storage/scratch-v")).status == 200
    message, hint = await refusal()
    assert message == "the default bucket of vision, vision, holds objects"
    assert hint.split("; ")[:3] == [
        "cloudml admin orgs enable vision",
        "with a key of vision: cloudml storage rm -r fds://vision",
        "cloudml admin orgs disable vision",
    ]
    assert (await owner.call("GET", "/api/v1/storage/vision/a.txt")).body == b"hello"
    assert (await owner.call("DELETE", "/api/v1/storage/vision/a.txt")).status == 200
    await good(served.admin, "PATCH", "/orgs/vision", {"enabled": False})
    await good(served.admin, "DELETE", "/orgs/vision")


@pytest.mark.parametrize(
    ("path", "document", "field"),
    [
        ("/orgs", {"name": "Bad_Name"}, "name"),
        ("/orgs", {"name": "system"}, "org"),
        ("/orgs", {"nmae": "x"}, "nmae"),
        ("/orgs", {"name": "new", "default_bucket": "x"}, "default_bucket"),
        ("/users", {"name": "eve", "role": "boss"}, "role"),
        ("/users", {"name": ""}, "name"),
        ("/keys", {"user": "admin", "expires_in_s": 0}, "expires_in_s"),
    ],
)
async def test_bad_input_is_named(
    served: Served, path: str, document: dict[str, Any], field: str
) -> None:
    answer = await served.admin.call("POST", ADMIN + path, document)
    assert (answer.status, answer.json()["field"]) == (400, field)


async def test_a_user_has_so_many_keys_and_no_more(served: Served, owner: Caller) -> None:
    for _ in range(19):
        await good(owner, "POST", "/keys", {})
    assert await refused(owner, "POST", "/keys", {}) == (409, "conflict")


async def test_the_audit_log_is_read_by_who_manages_in_pages_and_filtered(
    served: Served, owner: Caller
) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    await good(owner, "PATCH", "/users/max", {"enabled": False})
    await refused(owner, "POST", "/users", {"name": "max"})
    page = await good(owner, "GET", "/audit?limit=2")
    assert [(one["operation"], one["target"], one["outcome"]) for one in page["items"]] == [
        ("admin.create_user", "max", "already_exists"),
        ("admin.change_user", "max", "done"),
    ]
    rest = await good(owner, "GET", f"/audit?after={page['next']}")
    assert [one["operation"] for one in rest["items"]] == ["admin.create_user"]
    assert {one["org"] for one in rest["items"]} == {"vision"}
    everything = await good(served.admin, "GET", "/audit?org=-1&operation=admin.create_org")
    assert [(one["user"], one["target"]) for one in everything["items"]] == [("admin", "vision")]
    made = await good(served.admin, "GET", "/audit?operation=admin.create_user&target=olga")
    assert [one["target"] for one in made["items"]] == ["olga@vision"]
    assert (await good(owner, "GET", "/audit?since=2030-01-01T00:00:00Z"))["items"] == []
    assert (await owner.call("GET", f"{ADMIN}/audit?since=yesterday")).json()["field"] == "since"
    assert await refused(owner, "GET", "/audit?org=-1") == (404, "not_found")


async def test_an_admin_reads_what_a_deleted_organisation_did(
    served: Served, owner: Caller
) -> None:
    await good(owner, "POST", "/users", {"name": "max"})
    await good(served.admin, "PATCH", "/orgs/vision", {"enabled": False})
    await good(served.admin, "DELETE", "/orgs/vision")
    found = await good(served.admin, "GET", "/audit?org=vision")
    assert [(one["org"], one["target"]) for one in found["items"]] == [("vision", "max")]
    assert await refused(served.admin, "GET", "/audit?org=visions") == (404, "not_found")
    other = served.platform.identities.organisation("other")
    someone = served.as_caller(served.platform.identities.create_key(other, "ida", role=Role.OWNER))
    assert await refused(someone, "GET", "/audit?org=vision") == (404, "not_found")


async def test_an_outcome_that_there_is_not_is_refused_with_the_nearest(owner: Caller) -> None:
    answer = await owner.call("GET", f"{ADMIN}/audit?outcome=forbiden")
    assert (answer.status, answer.json()["field"]) == (400, "outcome")
    assert answer.json()["hint"] == "Did you mean forbidden?"
    assert "done, already_exists" in answer.json()["allowed"]
    for outcome in ("done", "forbidden", "quota_exceeded", "seen_before"):
        assert (await owner.call("GET", f"{ADMIN}/audit?outcome={outcome}")).status == 200
    assert (await owner.call("GET", f"{ADMIN}/audit?outcome={'x' * 5000}")).status == 400


async def test_org_id_says_what_it_may_be(served: Served) -> None:
    of_all = await served.admin.call("GET", "/api/v1/jobs/linear?org_id=-1")
    assert (of_all.status, "is for lists" in of_all.json()["hint"]) == (404, True)
    no_number = await served.admin.call("GET", "/api/v1/jobs?org_id=vision")
    assert (no_number.status, "the number of" in no_number.json()["allowed"]) == (404, True)
    refused = await served.member.call("GET", "/api/v1/jobs?org_id=-1")
    assert (refused.status, "leave org_id out" in refused.json()["message"]) == (403, True)
    unknown = await served.admin.call("POST", "/api/v1/jobs?org_id=1", served.job())
    assert (unknown.status, "read, cancel, stop and delete" in unknown.json()["message"]) == (
        400,
        True,
    )
