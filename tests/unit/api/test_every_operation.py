"""The same questions to every operation of every door. One without a row in ``support.surface``
fails here.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.scopes import ACTIONS
from cloud_ml.domain.tenancy import ORGANISATION, SYSTEM, Role
from cloud_ml.engines.abilities import RuntimeState
from support.asgi import Answer
from support.platform import Caller, Served
from support.surface import ABSENT, ADMIN, MLFLOW, ROWS, STORAGE, Request, furnish, operations

pytestmark = pytest.mark.anyio

SIGNED = [name for name, row in ROWS.items() if row.least is not None]
CHANGES = [name for name, row in ROWS.items() if row.changes]
NAMED = [name for name, row in ROWS.items() if row.named and not row.taken]
ENDS = {
    name
    for name in CHANGES
    if name.startswith("DELETE")
    or (
        name.endswith(("/complete", "/approve", "/decline", "/{upload}", "/{folder}"))
        and "/create/" not in name
    )
} | {"fds complete", "fds abort", "fds delete", f"POST {MLFLOW}/registered-models/rename"}
"""What is over by them cannot be asked for again anyway, whoever asks."""


class Runtimes:
    """An engine that can do what runtimes take."""

    async def runtimes(self) -> Sequence[RuntimeState]:
        return [RuntimeState("python", "3.11", default=True)]

    async def prepare_runtime(self, name: str, version: str | None) -> AsyncIterator[str]:
        yield f"{name} {version}"

    async def remove_runtime(self, name: str, version: str | None) -> bool:
        return True


@pytest.fixture(autouse=True)
def runtimes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("runtimes", "prepare_runtime", "remove_runtime"):
        monkeypatch.setattr(served.engine, name, getattr(Runtimes(), name), raising=False)


def somebody(served: Served, role: Role, org: str = "default") -> Caller:
    identities = served.platform.identities
    organisation = identities.organisation(org)
    return served.as_caller(
        identities.create_key(organisation, f"some-{role.value}", role=role, legacy_signatures=True)
    )


async def call_operation(caller: Caller, name: str, names: dict[str, str]) -> Answer:
    return await Request.of(name, names).send(caller, whole=not ROWS[name].streams)


def audit(served: Served) -> list[AuditEntry]:
    return list(served.store.audit(AuditFilter()).items)


async def test_every_operation_has_a_row(served: Served) -> None:
    document = (await served.client.send("GET", "/api/v1/openapi.json")).json()
    assert operations(document) == set(ROWS)


@pytest.mark.parametrize("name", SIGNED)
async def test_nobody_gets_in_without_a_signature_that_fits(served: Served, name: str) -> None:
    request = Request.of(name, ABSENT)
    bare = (
        {"Authorization": "Galaxy-V2 AKNOBODY:bm8="} if request.door == "fds" else {}
    )  # else it is no door of theirs
    answers = [await request.send(served.admin, bare)]
    wrong = served.as_caller(replace(served.admin.identity, secret="wrong"))
    unknown = served.as_caller(replace(served.admin.identity, access_key="AKNOBODY"))
    answers += [await request.send(wrong), await request.send(unknown)]
    assert [answer.status for answer in answers] == [401, 401, 401]
    assert answers[1].body == answers[2].body
    assert audit(served) == []


@pytest.mark.parametrize("name", NAMED)
async def test_what_is_somebody_elses_is_answered_like_what_never_was(
    served: Served, name: str
) -> None:
    names = await furnish(served, name)
    absent = {
        **ABSENT,
        "upload": "0" * len(names["upload"]),
        "application": "0" * len(names["application"]),
    }
    own = {"own": "others"}
    for role in (Role.MEMBER, Role.OWNER):
        caller = somebody(served, role, "other")
        foreign = await call_operation(caller, name, names | own)
        missing = await call_operation(caller, name, absent | own)
        normalized = foreign.body
        for word, value in names.items():
            if word != "number":
                normalized = normalized.replace(value.encode(), absent.get(word, value).encode())
        if names["number"] != absent["number"]:
            normalized = normalized.replace(b"organisation 1", b"organisation 9").replace(
                b'"value":"1"', b'"value":"9"'
            )
        assert foreign.status == missing.status in (403, 404), (foreign.text, missing.text)
        assert normalized == missing.body
        assert foreign.headers.keys() == missing.headers.keys()


@pytest.mark.parametrize("name", CHANGES)
async def test_who_may_only_look_changes_nothing(served: Served, name: str) -> None:
    names = await furnish(served, name)
    viewer = somebody(served, Role.VIEWER)
    before = served.store.revision(), _stored(served)
    answer = await call_operation(viewer, name, names)
    assert answer.status == 403, answer.text
    assert (served.store.revision(), _stored(served)) == before
    assert audit(served)[0].outcome == "forbidden"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.least is Role.ADMIN])
async def test_an_owner_does_not_run_the_platform(served: Served, name: str) -> None:
    names = await furnish(served, name)
    for org in ("default", "other"):
        owner = somebody(served, Role.OWNER, org)
        before = served.store.revision()
        assert (await call_operation(owner, name, names)).status in (403, 404)
        assert served.store.revision() == before


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_happens_once_and_leaves_its_trace(served: Served, name: str) -> None:
    names = await furnish(served, name)
    known = len(audit(served))
    request = Request.of(name, names)
    if name == "fds complete":
        part = (await Request.of("fds put_part", names).send(served.admin)).json()
        request = replace(request, content=json.dumps({"uploadPartResultList": [part]}).encode())
        known += 1
    headers = request.signed(served.admin)
    first = await request.send(served.admin, headers)
    assert first.status < 300, first.text
    if ROWS[name].traced:
        entry, *others = audit(served)
        assert len(others) == known
        assert (entry.outcome, entry.user) == ("done", served.admin.identity.user)
        assert entry.operation.partition(".")[2]
    else:
        assert len(audit(served)) == known
    after = served.store.revision(), _stored(served)
    again = await request.send(served.admin, headers)
    assert again.status == 401 or (again.status in (404, 409) and name in ENDS), again.text
    assert (served.store.revision(), _stored(served)) == after
    secrets = {served.admin.identity.secret}
    if "secret_key" in first.text:
        secrets.add(first.json()["secret_key"])
    assert not [secret for secret in secrets for one in audit(served) if secret in repr(one)]


STOPS = [
    "POST /api/v1/jobs/{name}/cancel",
    "DELETE /api/v1/jobs/{name}",
    "POST /api/v1/models/{name}/{version}/stop",
    "DELETE /api/v1/models/{name}/{version}",
    "POST /api/v1/studies/{name}/stop",
    "DELETE /api/v1/studies/{name}",
    "DELETE /api/v1/tensorboards/{name}",
]
"""What an admin may stop and remove in other organisations, also in disabled ones."""


@pytest.mark.parametrize("name", STOPS)
async def test_an_admin_and_nobody_else_stops_what_is_of_another_organisation(
    served: Served, name: str
) -> None:
    names = await furnish(served, name)
    request = Request.of(name, names)
    for role in (Role.MEMBER, Role.OWNER):
        caller = somebody(served, role, "other")
        before = served.store.revision(), _stored(served)
        answers = [
            await replace(request, target=f"{request.target}?org_id={org}").send(caller)
            for org in ("1", "-1", "9", "2")
        ]
        assert [answer.status for answer in answers] == [404, 403, 404, 404], answers[0].text
        assert (served.store.revision(), _stored(served)) == before
    organisation = served.store.find(ORGANISATION, SYSTEM, "default")
    assert organisation is not None
    served.store.change_spec(
        ORGANISATION,
        organisation.key.uid,
        lambda spec: replace(spec, enabled=False),
        now=served.clock(),
    )
    admin = somebody(served, Role.ADMIN, "other")
    assert (await request.send(admin)).status == 404
    answer = await replace(request, target=f"{request.target}?org_id=1").send(admin)
    assert answer.status in (200, 202), answer.text
    entry = audit(served)[0]
    assert (entry.org, entry.user, entry.outcome) == ("other", "some-admin", "done")
    assert entry.target.endswith("@1")


TOKENS = {
    "/api/v1/whoami": "",
    "/api/v1/frameworks": "",
    "/api/v1/server": "",
    "/api/v1/runtimes": "runtimes",
    "/api/v1/jobs": "jobs",
    "/api/v1/models": "models",
    STORAGE: "storage",
    "/api/v1/tokens": "tokens",
    "/api/v1/secrets": "secrets",
    "/api/v1/studies": "studies",
    "/api/v1/optuna": "studies",
    "/api/v1/tensorboards": "tensorboards",
    "/mlflow/": "runs",
    "/api/v1/runs": "runs",
    "/api/v1/experiments": "runs",
    f"{ADMIN}/orgs": "orgs",
    f"{ADMIN}/users": "users",
    f"{ADMIN}/keys": "keys",
    f"{ADMIN}/audit": "audit",
    f"{ADMIN}/quota": "quota",
}
"""What a token needs a scope of, by the beginning of a path; empty where any token may ask."""
MODERN = [
    name
    for name, row in ROWS.items()
    if row.least is not None and re.search(" /(api/v1|mlflow)/", name)
]


def scope_of(name: str) -> str:
    """The scope that an operation needs."""
    path = name.partition(" ")[2]
    resource = next(scope for beginning, scope in TOKENS.items() if path.startswith(beginning))
    writes = (
        ROWS[name].changes or path == "/api/v1/jobs/check"
    )  # it asks whether a change would be refused
    return f"{resource}:{'write' if writes else 'read'}" if resource else ""


async def with_token(served: Served, name: str, names: dict[str, str], scopes: list[str]) -> Answer:
    token_request = {"scopes": scopes, "expires_in_s": 3600}
    made = (await served.admin.call("POST", "/api/v1/tokens", token_request)).json()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    answer = await Request.of(name, names).send(served.admin, bearer, whole=not ROWS[name].streams)
    # A user has only so many, and there are more operations.
    await served.admin.call("DELETE", f"/api/v1/tokens/{made['info']['id']}")
    return answer


async def check_scope(served: Served, name: str, names: dict[str, str]) -> None:
    """Ask with every scope but the needed one, then with that one alone."""
    needed = scope_of(name)
    if needed:
        others = [
            f"{resource}:{action}" for resource, actions in ACTIONS.items() for action in actions
        ]
        covering = {needed, needed.replace(":read", ":write")}
        refused = await with_token(
            served, name, names, [scope for scope in others if scope not in covering]
        )
        assert (refused.status, refused.json()["code"], refused.json()["allowed"]) == (
            403,
            "forbidden",
            needed,
        ), name
    answer = await with_token(served, name, names, [needed or "jobs:read"])
    if answer.status >= 300:
        signed = await Request.of(name, names).send(served.admin, whole=not ROWS[name].streams)
        assert answer.status == signed.status >= 400, (name, answer.text)
        assert answer.status not in (401, 403), (name, answer.text)


@pytest.mark.parametrize("name", [name for name in MODERN if name in CHANGES])
async def test_a_token_opens_a_change_with_its_scope_and_no_other(
    served: Served, name: str
) -> None:
    names = await furnish(served, name)
    await check_scope(served, name, names)


async def test_a_token_opens_a_question_with_its_scope_and_no_other(served: Served) -> None:
    names = await furnish(served, "")
    for name in MODERN:
        if name not in CHANGES:
            await check_scope(served, name, names)


async def test_no_token_opens_an_operation_of_the_original_doors(served: Served) -> None:
    scopes = [f"{resource}:{action}" for resource, actions in ACTIONS.items() for action in actions]
    names = await furnish(served, "")
    for name, row in ROWS.items():
        if row.least is not None and name not in MODERN:
            answer = await with_token(served, name, names, scopes)
            if (
                name == "fds list_buckets"
            ):  # without a signature of the storage client, `/` is the open page about us
                assert answer.body == (await served.client.send("GET", "/")).body
                continue
            assert answer.status in (401, 404, 405), name
    assert not [line for line in audit(served) if line.key.startswith("tk")]


def _stored(served: Served) -> dict[str, list[object]]:
    objects = served.platform.objects
    return {
        bucket: [objects.list(bucket).objects, objects.multipart.all(bucket)]
        for bucket in objects.buckets()
    }
