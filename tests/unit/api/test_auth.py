from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from cloud_ml.auth import legacy, signature
from cloud_ml.domain.tenancy import ACCESS_KEY, SYSTEM
from cloud_ml.settings import ApiSettings
from support.platform import Served

pytestmark = pytest.mark.anyio


async def test_both_schemes_convince(served: Served) -> None:
    assert (await served.member.call("GET", "/api/v1/whoami")).json()["user"] == "mei"
    assert (await served.member.original("GET", "/cloud_ml/v1/org_ids")).json() == {"org_id": "1"}


async def test_either_scheme_serves_either_surface(served: Served) -> None:
    assert (await served.member.original("GET", "/api/v1/whoami")).status == 200
    assert (await served.member.call("GET", "/cloud_ml/v1/org_ids")).status == 200


async def test_nothing_is_answered_without_a_signature(served: Served) -> None:
    for path in (
        "/api/v1/jobs",
        "/api/v1/whoami",
        "/api/v1/storage/cloudml",
        "/api/v1/server",
        "/cloud_ml/v1/train",
    ):
        answer = await served.client.send("GET", path)
        assert (answer.status, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == f'{signature.SCHEME}, Bearer realm="cloudml"'


async def test_a_wrong_secret_and_an_unknown_key_get_the_same_answer(served: Served) -> None:
    target = "/api/v1/whoami"
    wrong = replace(served.member, identity=replace(served.member.identity, secret="wrong"))
    unknown = replace(served.member, identity=replace(served.member.identity, access_key="unknown"))
    answers = [await caller.call("GET", target) for caller in (wrong, unknown)]
    assert [answer.status for answer in answers] == [401, 401]
    assert answers[0].body == answers[1].body


@pytest.mark.parametrize(
    ("signed_target", "sent_target"),
    [
        ("/api/v1/jobs?limit=1", "/api/v1/jobs?limit=2"),
        ("/api/v1/jobs", "/api/v1/jobs?limit=2"),
        ("/api/v1/jobs/a%2Db", "/api/v1/jobs/a-b"),
        ("/api/v1/whoami", "/api/v1/server"),
    ],
)
async def test_the_raw_request_line_is_what_counts(
    served: Served, signed_target: str, sent_target: str
) -> None:
    headers = served.member.sign("GET", signed_target)
    assert (await served.client.send("GET", sent_target, headers)).status == 401


async def test_the_order_of_query_pairs_does_not_count(served: Served) -> None:
    headers = served.member.sign("GET", "/api/v1/jobs?limit=1&state=Queued")
    assert (
        await served.client.send("GET", "/api/v1/jobs?state=Queued&limit=1", headers)
    ).status == 200


async def test_another_body_than_the_signed_one_is_refused(served: Served) -> None:
    headers = served.member.sign("POST", "/api/v1/jobs", b"{}")
    answer = await served.client.send("POST", "/api/v1/jobs", headers, b'{"a":1}')
    assert (answer.status, answer.json()["field"]) == (401, signature.CONTENT)


async def test_a_document_must_be_signed(served: Served) -> None:
    headers = served.member.sign("POST", "/api/v1/jobs", iter(()))
    assert headers[signature.CONTENT] == signature.UNSIGNED_PAYLOAD
    answer = await served.client.send("POST", "/api/v1/jobs", headers, b"{}")
    assert (answer.status, answer.json()["field"]) == (401, signature.CONTENT)


@pytest.mark.parametrize("seconds", [-301, 301])
async def test_a_clock_that_is_off_is_told_the_time(served: Served, seconds: int) -> None:
    headers = served.member.sign("GET", "/api/v1/whoami")
    old = served.member.sign_original("/cloud_ml/v1/org_ids")
    served.clock.advance(seconds)
    for answer in (
        await served.client.send("GET", "/api/v1/whoami", headers),
        await served.client.send("GET", "/cloud_ml/v1/org_ids", old),
    ):
        assert answer.status == 401
        assert str(int(served.clock().timestamp())) in answer.json()["message"]


async def test_a_mutation_happens_once_and_a_read_as_often_as_asked(served: Served) -> None:
    body = b'{"job_name":"linear","module_name":"a","trainer_uri":"fds://cloudml/t.tar.gz"}'
    headers = served.member.sign("POST", "/api/v1/jobs", body)
    assert (await served.client.send("POST", "/api/v1/jobs", headers, body)).status == 201
    await served.member.call("DELETE", "/api/v1/jobs/linear")
    replayed = await served.client.send("POST", "/api/v1/jobs", headers, body)
    assert replayed.status in (401, 409)
    read = served.member.sign("GET", "/api/v1/jobs")
    assert [(await served.client.send("GET", "/api/v1/jobs", read)).status for _ in range(2)] == [
        200,
        200,
    ]


async def test_a_replayed_cancel_is_refused(served: Served) -> None:
    await served.submitted(job_name="linear", save_mode=True)
    headers = served.member.sign("POST", "/api/v1/jobs/linear/start")
    assert (await served.client.send("POST", "/api/v1/jobs/linear/start", headers)).status == 200
    replayed = await served.client.send("POST", "/api/v1/jobs/linear/start", headers)
    assert (replayed.status, replayed.json()["code"]) == (401, "seen_before")


async def test_an_original_replay_is_refused_whatever_query_is_added(served: Served) -> None:
    await served.submitted(job_name="linear", save_mode=True)
    headers = served.member.sign_original("/cloud_ml/v1/train/linear/start")
    assert (
        await served.client.send("GET", "/cloud_ml/v1/train/linear/start", headers)
    ).status == 200
    replayed = await served.client.send("GET", "/cloud_ml/v1/train/linear/start?x=1", headers)
    assert replayed.status == 401


async def test_a_signed_read_does_not_delete_for_long(served: Served) -> None:
    """The original scheme signs no method: what was caught from a GET fits a DELETE while it is
    fresh.
    """
    await served.submitted(job_name="linear")
    caught = served.member.sign_original("/cloud_ml/v1/train/linear")
    served.clock.advance(11)
    assert (await served.client.send("GET", "/cloud_ml/v1/train/linear", caught)).status == 200
    assert (await served.client.send("DELETE", "/cloud_ml/v1/train/linear", caught)).status == 401


async def test_the_original_quota_question_may_be_asked_twice_in_a_second(served: Served) -> None:
    for _ in range(2):
        answer = await served.member.original(
            "POST", "/cloud_ml/v1/quota", {"org_mail": "a@example.com"}
        )
        assert answer.status == 200


async def test_the_operator_may_switch_the_original_scheme_off() -> None:
    served = Served(ApiSettings(legacy_signatures=False))
    answer = await served.admin.original("GET", "/cloud_ml/v1/org_ids")
    assert (answer.status, answer.json()["allowed"]) == (401, signature.SCHEME)
    assert (await served.admin.call("GET", "/cloud_ml/v1/org_ids")).status == 200
    served.close()


async def test_a_new_key_accepts_the_original_signature_only_where_that_was_said(
    served: Served,
) -> None:
    organisation = served.member.identity.organisation
    bot = served.as_caller(served.platform.identities.create_key(organisation, "bot"))
    refused = await bot.original("GET", "/cloud_ml/v1/org_ids")
    assert (refused.status, refused.json()["error"], refused.json()["code"]) == (
        401,
        True,
        "unauthenticated",
    )
    assert "cloudml admin keys create --legacy" in refused.json()["message"]
    assert "\n" not in refused.text, "the original client prints the answer as it is"
    assert (await bot.call("GET", "/cloud_ml/v1/org_ids")).status == 200
    own = f"/api/v1/admin/keys/{bot.identity.access_key}"
    allowed = await bot.call("PATCH", own, {"legacy_signatures": True})
    assert (allowed.json()["legacy_signatures"], allowed.json()["fds_signatures"]) == (True, True)
    assert (await bot.original("GET", "/cloud_ml/v1/org_ids")).status == 200


async def test_keys_that_were_there_before_and_their_successors_keep_what_they_have(
    served: Served,
) -> None:
    """Their stored form has one switch for both of the original schemes."""
    for had in (True, False):
        old = served.as_caller(
            served.platform.identities.create_key(served.member.identity.organisation, f"old-{had}")
        )
        path = f"/api/v1/admin/keys/{old.identity.access_key}"
        store = served.store
        record = store.find(ACCESS_KEY, SYSTEM, old.identity.access_key)
        assert record is not None
        store.change_spec(
            ACCESS_KEY,
            record.key.uid,
            lambda spec, had=had: replace(spec, legacy_signatures=had, fds_signatures=None),
            now=served.clock(),
        )
        served.platform.identities.clear()
        rotated = (await old.call("POST", f"{path}/rotate", {})).json()["key"]
        for key in ((await old.call("GET", path)).json(), rotated):
            assert (key["legacy_signatures"], key["fds_signatures"]) == (had, had)


async def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    limit = ApiSettings().body_limit_bytes
    body = b" " * (limit + 1)
    headers = served.member.sign("POST", "/api/v1/jobs", body)
    announced = await served.client.send(
        "POST", "/api/v1/jobs", {**headers, "Content-Length": str(len(body))}
    )
    streamed = await served.client.send(
        "POST", "/api/v1/jobs", headers, (body[i : i + 65536] for i in range(0, len(body), 65536))
    )
    assert [(one.status, one.json()["code"]) for one in (announced, streamed)] == [
        (413, "too_large")
    ] * 2


async def test_doubled_headers_are_refused(served: Served) -> None:
    """A proxy and we could otherwise mean different values."""
    headers = served.member.sign("GET", "/api/v1/whoami")
    doubled = {**headers, signature.KEY.upper() + "": headers[signature.KEY]}
    scope_headers = [(name.lower().encode(), value.encode()) for name, value in doubled.items()]
    assert len(scope_headers) == len({name for name, _ in scope_headers}) + 1
    assert (await served.client.send("GET", "/api/v1/whoami", doubled)).status == 401


@pytest.mark.parametrize("access_key", ["ä", "", "a b"])
async def test_odd_keys_are_refused_like_any_other(served: Served, access_key: str) -> None:
    headers = {**served.member.sign_original("/cloud_ml/v1/org_ids"), legacy.KEY: access_key}
    assert (await served.client.send("GET", "/cloud_ml/v1/org_ids", headers)).status == 401


async def test_an_organisation_can_be_named_only_within_ones_rights(served: Served) -> None:
    async def ask(caller: object, org_id: str) -> tuple[int, str]:
        answer = await caller.call("GET", f"/api/v1/jobs?org_id={org_id}")  # type: ignore[attr-defined]
        return answer.status, answer.text.replace(org_id, "N")

    assert (await ask(served.member, "1"))[0] == 200
    assert (await ask(served.member, "-1"))[0] == 403
    assert (await ask(served.admin, "-1"))[0] == 200
    assert (await ask(served.admin, "2"))[0] == 200
    foreign, missing = await ask(served.member, "2"), await ask(served.member, "9")
    assert foreign == missing
    assert foreign[0] == 404


async def test_no_tenant_has_all_connections() -> None:
    """Waits, streams and everything else of an organisation count, and what has ended does not."""
    served = Served(ApiSettings(requests_per_org=3))
    try:
        await served.submitted(job_name="linear")
        async with (
            served.admin.open("/api/v1/jobs/-/watch") as stream,
            served.member.open("/api/v1/jobs/linear/watch") as other,
        ):
            assert (stream.status, other.status) == (200, 200)
            waiting = asyncio.ensure_future(
                served.member.call("GET", "/api/v1/jobs/linear?wait=60")
            )
            while served.platform.under_way["default"] < 3:
                await asyncio.sleep(0)
            refused = await served.admin.original("GET", "/cloud_ml/v1/train")
            assert (refused.status, refused.json()["code"]) == (429, "too_many")
            assert (await served.stranger.call("GET", "/api/v1/whoami")).status == 200
            await served.member.client.send("GET", "/api/v1/whoami", {})
            assert served.platform.under_way == {"default": 3}
            served.platform.hub.close()
            assert (await waiting).status == 200
        assert (await served.admin.call("GET", "/api/v1/whoami")).status == 200
        assert served.platform.under_way == {}
    finally:
        served.close()
