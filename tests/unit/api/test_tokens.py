"""Access tokens at the API: who gets one, what it opens, when it ends, and how it may travel."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from cloud_ml.domain.access_tokens import ACCESS_TOKEN
from cloud_ml.domain.audit import AuditFilter
from cloud_ml.domain.tenancy import SYSTEM, Role
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.failures import error_of_answer, name_refused_read
from cloud_ml.settings import KeySettings, ServerSettings
from support.asgi import Answer, AsgiClient
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio

DAY_S = 86400


async def created(caller: Caller, *scopes: str, expires_in_s: int = DAY_S) -> dict[str, Any]:
    answer = await caller.call(
        "POST", "/api/v1/tokens", {"scopes": list(scopes), "expires_in_s": expires_in_s}
    )
    assert answer.status == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    document: dict[str, Any] = answer.json()
    return document


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def ask(
    served: Served,
    token: str,
    method: str = "GET",
    target: str = "/api/v1/jobs",
    document: Any = None,
    **headers: str,
) -> Answer:
    content = b"" if document is None else json.dumps(document).encode()
    return await served.client.send(method, target, {**bearer(token), **headers}, content)


def refused(answer: Answer, *words: str) -> None:
    assert answer.status == 401, (answer.status, answer.text)
    assert "bearer" in answer.headers["www-authenticate"].lower()
    for word in words:
        assert word in answer.json()["message"], answer.text


async def test_a_token_opens_what_its_scope_says(served: Served) -> None:
    await served.submitted(served.member, job_name="mine")
    token = (await created(served.member, "jobs:read"))["token"]
    answer = await ask(served, token)
    assert answer.status == 200, answer.text
    assert [one["name"] for one in answer.json()["items"]] == ["mine"]
    me = (await ask(served, token, target="/api/v1/whoami")).json()
    assert (me["user"], me["scopes"]) == ("mei", ["jobs:read"])
    signed = await served.member.call("GET", "/api/v1/whoami")
    assert signed.json()["scopes"] is None, "the role alone limits a signed request"


async def test_a_head_without_the_scope_says_which_one_and_for_what(served: Served) -> None:
    token = (await created(served.member, "jobs:read"))["token"]
    answer = await ask(served, token, "HEAD", "/api/v1/storage/cloudml/a%20b.txt")
    assert answer.status == 403
    error = error_of_answer(parse_endpoint("http://here"), 403, answer.headers, b"")
    name_refused_read(error, "/api/v1/storage/cloudml/a%20b.txt")
    assert error.message == (
        "reading fds://cloudml/a b.txt is refused: the token lacks the scope storage:read"
    )
    assert error.hint is not None
    assert "cloudml whoami" in error.hint
    assert "--scope storage:read" in error.hint


async def test_a_token_is_shown_once_and_kept_as_a_digest(served: Served) -> None:
    made = await created(served.member, "jobs:read")
    listed = await served.member.call("GET", "/api/v1/tokens")
    assert [one["id"] for one in listed.json()["items"]] == [made["info"]["id"]]
    assert made["token"] not in listed.text
    parts = [part for part in vars(served.store).values() if hasattr(part, "__dict__")]
    kept = repr([vars(part) for part in parts])
    assert made["info"]["id"] in kept
    assert made["token"].rpartition("_")[2] not in kept


async def test_a_change_by_a_token_is_audited_under_its_id(served: Served) -> None:
    made = await created(served.member, "jobs:write")
    assert (await ask(served, made["token"], "POST", "/api/v1/jobs", served.job())).status == 201
    entry = served.store.audit(AuditFilter()).items[0]
    assert (entry.operation, entry.user, entry.key, entry.outcome) == (
        "jobs.submit",
        "mei",
        made["info"]["id"],
        "done",
    )


async def test_a_scope_that_is_missing_is_named(served: Served) -> None:
    made = await created(served.member, "jobs:read", "storage:write")
    answer = await ask(served, made["token"], "POST", "/api/v1/jobs", served.job())
    assert answer.status == 403
    assert "jobs:write" in answer.json()["message"]
    assert answer.json()["allowed"] == "jobs:write"
    assert "unset CLOUDML_TOKEN" in answer.json()["hint"]
    assert "--scope jobs:write`" in answer.json()["hint"]
    assert answer.headers["www-authenticate"] == (
        'Bearer realm="cloudml", error="insufficient_scope", scope="jobs:write"'
    )
    assert served.store.audit(AuditFilter()).items[0].outcome == "forbidden"


async def test_a_token_ends_with_its_time(served: Served) -> None:
    made = await created(served.member, "jobs:read", expires_in_s=60)
    assert (await ask(served, made["token"])).status == 200
    served.clock.advance(60)
    answer = await ask(served, made["token"])
    refused(answer, "expired", made["info"]["id"])
    assert "unset CLOUDML_TOKEN" in answer.json()["hint"]  # it creates no other one
    assert "`cloudml token create --scope SCOPE`" in answer.json()["hint"]


async def test_a_revoked_token_ends_at_once(served: Served) -> None:
    made = await created(served.member, "jobs:read")
    assert (await ask(served, made["token"])).status == 200
    gone = await served.member.call("DELETE", f"/api/v1/tokens/{made['info']['id']}")
    assert gone.json()["state"] == "revoked"
    refused(await ask(served, made["token"]), "revoked", made["info"]["id"])
    again = await served.member.call("DELETE", f"/api/v1/tokens/{made['info']['id']}")
    assert again.json()["revoked_at"] == gone.json()["revoked_at"]


@pytest.mark.parametrize(
    "what", ["disable key", "revoke key", "disable user", "delete user", "disable org"]
)
async def test_a_token_ends_with_its_key_user_or_organisation(served: Served, what: str) -> None:
    identities = served.platform.identities
    caller = served.as_caller(identities.create_key(identities.organisation("other"), "tim"))
    made = await created(caller, "jobs:read")
    assert (await ask(served, made["token"])).status == 200
    key = f"/api/v1/admin/keys/{caller.identity.access_key}"
    method, target, body = {
        "disable key": ("PATCH", key, {"enabled": False}),
        "revoke key": ("DELETE", key, None),
        "disable user": ("PATCH", "/api/v1/admin/users/tim?org=other", {"enabled": False}),
        "delete user": ("DELETE", "/api/v1/admin/users/tim?org=other", None),
        "disable org": ("PATCH", "/api/v1/admin/orgs/other", {"enabled": False}),
    }[what]
    assert (await served.admin.call(method, target, body)).status == 200
    refused(await ask(served, made["token"]))


async def test_a_deleted_users_token_does_not_open_the_account_of_a_namesake(
    served: Served,
) -> None:
    identities = served.platform.identities
    caller = served.as_caller(identities.create_key(identities.organisation("default"), "tim"))
    made = await created(caller, "jobs:read")
    assert (await served.admin.call("DELETE", "/api/v1/admin/users/tim")).status == 200
    identities.create_key(
        identities.organisation("default"),
        "tim",
        access_key=caller.identity.access_key,
        secret="another",
    )
    refused(await ask(served, made["token"]), "not valid")
    assert (await served.admin.call("GET", "/api/v1/tokens?user=tim")).json()["items"] == []


async def test_who_may_only_look_makes_no_token(served: Served) -> None:
    identities = served.platform.identities
    viewer = served.as_caller(
        identities.create_key(identities.organisation("default"), "vi", role=Role.VIEWER)
    )
    answer = await viewer.call(
        "POST", "/api/v1/tokens", {"scopes": ["jobs:read"], "expires_in_s": 60}
    )
    assert answer.status == 403


async def test_owners_see_and_revoke_tokens_of_their_organisation_and_no_other(
    served: Served,
) -> None:
    identities = served.platform.identities
    owner = served.as_caller(
        identities.create_key(identities.organisation("other"), "ola", role=Role.OWNER)
    )
    theirs, foreign = (
        await created(served.stranger, "jobs:read"),
        await created(served.member, "jobs:read"),
    )
    seen = (await owner.call("GET", "/api/v1/tokens")).json()["items"]
    assert [one["user"] for one in seen] == ["zoe"]
    assert (await served.stranger.call("GET", "/api/v1/tokens?user=ola")).json()["items"] == []
    assert (await owner.call("DELETE", f"/api/v1/tokens/{theirs['info']['id']}")).status == 200
    assert (await owner.call("DELETE", f"/api/v1/tokens/{foreign['info']['id']}")).status == 404
    assert (await ask(served, foreign["token"])).status == 200


async def test_a_token_makes_no_stronger_token(served: Served) -> None:
    made = await created(
        served.member, "tokens:write", "jobs:read", "models:predict:linear", expires_in_s=600
    )

    async def make(*scopes: str, expires_in_s: int = 60) -> Answer:
        token_request = {"scopes": list(scopes), "expires_in_s": expires_in_s}
        return await ask(served, made["token"], "POST", "/api/v1/tokens", token_request)

    for scope in (
        "jobs:write",
        "keys:write",
        "models:predict",
        "models:predict:other",
        "storage:read",
    ):
        answer = await make(scope)
        assert answer.status == 403, scope
        assert scope in answer.json()["message"]
    assert (await make("jobs:read", expires_in_s=601)).status == 403
    child = await make("jobs:read", "models:predict:linear/v1", expires_in_s=600)
    assert child.status == 201
    assert (await ask(served, child.json()["token"])).status == 200
    assert (
        await served.member.call("DELETE", f"/api/v1/tokens/{made['info']['id']}")
    ).status == 200
    refused(await ask(served, child.json()["token"]), "revoked")


@pytest.mark.parametrize(
    ("method", "target", "document"),
    [
        ("POST", "/api/v1/admin/keys", {}),
        ("POST", "/api/v1/tokens", {"scopes": ["jobs:read"], "expires_in_s": 60}),
        ("PATCH", "/api/v1/admin/users/mei", {"role": "owner"}),
        ("PUT", "/api/v1/admin/quota/default", {"storage": "1G"}),
    ],
)
async def test_a_token_changes_no_rights_unless_its_scope_says_so(
    served: Served, method: str, target: str, document: dict[str, Any]
) -> None:
    others = (
        "jobs:write",
        "models:write",
        "storage:write",
        "runtimes:write",
        "audit:read",
        "keys:read",
        "users:read",
    )
    made = await created(served.admin, *others, "tokens:read", "quota:read", "orgs:read")
    before = served.store.revision()
    assert (await ask(served, made["token"], method, target, document)).status == 403
    assert served.store.revision() == before


async def test_a_token_for_calls_learns_what_the_look_up_of_an_address_needs(
    served: Served,
) -> None:
    made = await created(served.member, "jobs:read", "models:predict:pkl/v1")
    answer = await ask(served, made["token"], target="/api/v1/models/pkl/v1")
    assert answer.status == 403
    hint = answer.json()["hint"]
    assert "`cloudml token create --scope models:read,models:predict:pkl/v1`" in hint
    assert "cloudml models predict NAME --server HOST:PORT" in hint


async def test_a_stronger_scope_replaces_the_weaker_one_in_a_hint(served: Served) -> None:
    made = await created(served.member, "jobs:read", "models:predict")
    answer = await ask(served, made["token"], "POST", document=served.job())
    assert "`cloudml token create --scope jobs:write`" in answer.json()["hint"]


async def test_a_token_of_another_organisation_sees_nothing_here(served: Served) -> None:
    await served.submitted(served.member, job_name="mine")
    made = await created(served.stranger, "jobs:read", "jobs:write")
    assert (await ask(served, made["token"], target="/api/v1/jobs/mine")).status == 404
    assert (await ask(served, made["token"], "DELETE", "/api/v1/jobs/mine")).status == 404
    assert (await ask(served, made["token"], target="/api/v1/jobs?org_id=-1")).status == 403


async def test_the_scheme_is_read_in_any_case_and_the_rest_to_the_letter(served: Served) -> None:
    token = (await created(served.member, "jobs:read"))["token"]
    for good in (f"bearer {token}", f"BEARER {token}", f"Bearer   {token}"):
        assert (
            await served.client.send("GET", "/api/v1/jobs", {"Authorization": good})
        ).status == 200
    other = "b" if token[-1] == "a" else "a"
    for bad in (
        f"Bearer{token}", f"Bearer\t{token}", f"Bearer {token} "
                                              f"{token}", f"Bearer {token},", f" Bearer {token}x",
        f"Bearer {token[:-1]}", f"Bearer {token[:-1]}{other}", f"Bearer {token.upper()}", "Bearer", "Bearer ",
        f'Bearer token="{token}"', "Bearer cloudml_tkaaaaaaaaaaaaaa_" + "a" * 43, f"Bearer {token}=",
    ):  # fmt: skip
        refused(await served.client.send("GET", "/api/v1/jobs", {"Authorization": bad}))


async def test_a_call_token_is_told_what_it_is_for(served: Served) -> None:
    refused(await ask(served, "cmt1.AK.1.abc"), "model services only")


async def test_two_proofs_are_refused(served: Served) -> None:
    token = (await created(served.member, "jobs:read"))["token"]
    signed = served.admin.sign("GET", "/api/v1/jobs")
    refused(
        await served.client.send(
            "GET", "/api/v1/jobs", signed | {"authorization": f"Bearer {token}"}
        )
    )
    mixed = {name: value for name, value in signed.items() if name != "Authorization"}
    refused(await served.client.send("GET", "/api/v1/jobs", mixed | bearer(token)), "signature")
    token = (await created(served.member, "storage:read"))["token"]
    link = "X-Cloudml-Key=AK&X-Cloudml-Expires=9999999999&X-Cloudml-Signature=" + "a" * 64
    refused(await ask(served, token, target=f"/api/v1/storage/cloudml/a?{link}"), "address")


@pytest.mark.parametrize(
    "form", ["access_token={0}", "token={0}", "limit=5&Authorization=Bearer%20{0}", "x={0}"]
)
async def test_a_token_in_the_address_is_refused_and_not_repeated(
    served: Served, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = (await created(served.member, "jobs:read"))["token"]
    answer = await served.client.send("GET", "/api/v1/jobs?" + form.format(token))
    refused(answer, "address")
    secret = token.rpartition("_")[2]
    assert secret not in answer.text
    assert secret not in caplog.text


async def test_a_tokens_text_named_as_its_id_goes_into_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    made = await created(served.member, "jobs:read")
    answer = await served.member.call("DELETE", f"/api/v1/tokens/{made['token']}")
    assert answer.status == 404
    entry = served.store.audit(AuditFilter()).items[0]
    assert entry.target == made["info"]["id"] + "…"
    secret = made["token"].rpartition("_")[2]
    assert secret not in answer.text + caplog.text + repr(entry)


@pytest.mark.parametrize("door", ["/cloud_ml/v1/train", "/cloud_ml/v1/org_ids", "/"])
async def test_the_original_doors_take_no_tokens(served: Served, door: str) -> None:
    token = (await created(served.admin, "jobs:write", "storage:write"))["token"]
    assert (await ask(served, token, target=door)).status in (200, 401, 404)
    if door != "/":
        refused(await ask(served, token, target=door), "/api/v1")


async def transported(
    served: Served, scheme: str, client: str, *, proxy: bool = False, **headers: str
) -> int:
    token = (await created(served.member, "jobs:read"))["token"]
    served.platform.behind_proxy = proxy
    try:
        return (
            await served.client.send(
                "GET",
                "/api/v1/jobs",
                bearer(token) | {n.replace("_", "-"): v for n, v in headers.items()},
                scheme=scheme,
                client=client,
            )
        ).status
    finally:
        served.platform.behind_proxy = False


async def test_it_is_believed_over_tls_and_on_loopback(served: Served) -> None:
    assert await transported(served, "https", "192.0.2.7") == 200
    assert await transported(served, "http", "127.0.0.1") == 200
    assert await transported(served, "http", "::1") == 200
    assert (
        await transported(served, "https", "192.0.2.7", proxy=True, X_Forwarded_Proto="https")
        == 200
    )


async def test_it_is_refused_over_plain_http_whatever_its_sender_says(served: Served) -> None:
    assert await transported(served, "http", "192.0.2.7") == 401
    assert await transported(served, "http", "192.0.2.7", X_Forwarded_Proto="https") == 401
    assert await transported(served, "http", "127.0.0.1", X_Forwarded_For="192.0.2.7") == 401
    assert await transported(served, "http", "127.0.0.1", X_Forwarded_Proto="https") == 401
    assert await transported(served, "http", "127.0.0.1", proxy=True) == 401
    assert (
        await transported(served, "http", "127.0.0.1", proxy=True, X_Forwarded_Proto="https") == 401
    )


async def test_a_proxy_is_believed_only_at_its_address_and_if_it_says_one_thing(
    served: Served,
) -> None:
    token = (await created(served.member, "jobs:read"))["token"]
    served.platform.behind_proxy = True
    behind = AsgiClient(ProxyHeadersMiddleware(served.client.app, ServerSettings().proxy_addresses))  # type: ignore[arg-type]

    async def status(client: str, *protocols: str, **headers: str) -> int:
        names = ("X-Forwarded-Proto", "x-forwarded-proto")  # two headers of one name
        sent = bearer(token) | dict(zip(names, protocols, strict=False)) | headers
        return (await behind.send("GET", "/api/v1/jobs", sent, client=client)).status

    try:
        for proxy in ("127.0.0.1", "::1"):
            assert await status(proxy, "https") == 200
            for protocols in (
                (),
                ("http",),
                ("https, http",),
                ("wss",),
                ("https", "http"),
                ("http", "https"),
            ):
                assert await status(proxy, *protocols) == 401
        assert await status("192.0.2.7", "https") == 401
        assert await status("192.0.2.7", "https", **{"X-Forwarded-For": "127.0.0.1"}) == 401
    finally:
        served.platform.behind_proxy = False


async def test_scopes_of_a_newer_version_open_nothing_and_harm_nobody(served: Served) -> None:
    made = await created(served.member, "jobs:read")
    record = served.store.find(ACCESS_TOKEN, SYSTEM, made["info"]["id"])
    assert record is not None
    served.store.change_spec(
        ACCESS_TOKEN,
        record.key.uid,
        lambda spec: replace(spec, scopes=("jobs:read", "studies:write", "models:fly")),
        now=served.clock(),
    )
    assert (await ask(served, made["token"])).status == 200
    assert (await ask(served, made["token"], target="/api/v1/models")).status == 403


async def test_two_changes_of_a_token_with_one_nonce_are_one(served: Served) -> None:
    token = (await created(served.member, "jobs:write"))["token"]
    nonce = {"X-Cloudml-Nonce": "n" * 16}
    assert (
        await ask(served, token, "POST", "/api/v1/jobs", served.job(job_name="one"), **nonce)
    ).status == 201
    again = await ask(served, token, "POST", "/api/v1/jobs", served.job(job_name="two"), **nonce)
    assert (again.status, again.json()["code"]) == (401, "seen_before")
    other = (await created(served.member, "jobs:write"))["token"]
    assert (
        await ask(served, other, "POST", "/api/v1/jobs", served.job(job_name="two"), **nonce)
    ).status == 201


@pytest.mark.parametrize("value", ["short", "n" * 65, "n" * 16 + " ", "ä" * 16])
async def test_a_nonce_beside_a_token_is_read_strictly(served: Served, value: str) -> None:
    token = (await created(served.member, "jobs:write"))["token"]
    refused(await ask(served, token, **{"X-Cloudml-Nonce": value}), "X-Cloudml-Nonce")


async def test_a_repeated_creation_at_the_limit_is_no_new_one(served: Served) -> None:
    served.platform.tokens._settings = KeySettings(tokens_per_user=1)
    token_request, key = (
        {"scopes": ["jobs:read"], "expires_in_s": DAY_S},
        {"Idempotency-Key": "once"},
    )
    answers = [
        await served.member.call("POST", "/api/v1/tokens", token_request, headers=key)
        for _ in range(2)
    ]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json()["info"]["id"] == answers[1].json()["info"]["id"]
    other = await served.member.call(
        "POST", "/api/v1/tokens", token_request, headers={"Idempotency-Key": "other"}
    )
    assert (other.status, "tokens that have not ended" in other.json()["message"]) == (409, True)


async def test_a_repeated_creation_gives_the_one_token_a_new_text(served: Served) -> None:
    token_request = {"scopes": ["jobs:read"], "expires_in_s": DAY_S}
    key = {"Idempotency-Key": "once"}
    first, second = [
        (await served.member.call("POST", "/api/v1/tokens", token_request, headers=key)).json()
        for _ in range(2)
    ]
    assert first["info"]["id"] == second["info"]["id"]
    assert (await ask(served, second["token"])).status == 200
    refused(await ask(served, first["token"]), "not valid")
    other = await served.member.call(
        "POST", "/api/v1/tokens", {**token_request, "note": "another"}, headers=key
    )
    assert other.status == 409
    await served.member.call("DELETE", f"/api/v1/tokens/{first['info']['id']}")
    assert (
        await served.member.call("POST", "/api/v1/tokens", token_request, headers=key)
    ).status == 409
