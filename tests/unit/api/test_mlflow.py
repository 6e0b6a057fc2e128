"""MLflow's API to who means ill: foreign runs, paths, huge batches, numbers that are none."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from cloud_ml.domain.tracking.registry import REGISTERED_MODEL
from cloud_ml.domain.tracking.runs import RUN
from support.asgi import Answer
from support.platform import Served

pytestmark = pytest.mark.anyio
API = "/mlflow/api/2.0/mlflow"
FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"


async def ask(served: Served, path: str, **fields: Any) -> Answer:
    return await served.admin.call("POST", API + path, fields)


@pytest.fixture
async def run(served: Served) -> str:
    answer = await ask(served, "/runs/create", experiment_id="0", run_name="one")
    return str(answer.json()["run"]["info"]["run_id"])


def basic(user: str, password: str) -> dict[str, str]:
    proof = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {proof}"}


async def test_a_key_is_a_user_and_a_password(served: Served) -> None:
    identity, client = served.admin.identity, served.client
    path = f"{API}/experiments/get?experiment_id=0"
    good = basic(identity.access_key, identity.secret)
    assert (await client.send("GET", path, good)).status == 200
    wrong = await client.send("GET", path, basic(identity.access_key, "wrong"))
    unknown = await client.send("GET", path, basic("AKNOBODY", identity.secret))
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.body == unknown.body
    assert wrong.json()["error_code"] == "UNAUTHENTICATED"
    page = await client.send("GET", path, {**good, "Origin": "http://evil.example"})
    assert page.status == 401
    elsewhere = await client.send("GET", "/api/v1/whoami", good)
    assert elsewhere.status == 401
    nobody = (await client.send("GET", path, {})).json()
    assert "MLFLOW_TRACKING_TOKEN=$(cloudml token create" in nobody["message"]
    mistyped = (await client.send("GET", path, {"Authorization": "Bearer cml_no_token"})).json()
    assert "Check that it was copied completely" in mistyped["message"]
    proxied = await client.send("GET", path, {**good, "X-Forwarded-For": "10.0.0.1"})
    assert proxied.status == 401
    assert "plain HTTP" in proxied.json()["message"]


@pytest.mark.parametrize(
    "path",
    [
        "../x", "%2e%2e/x", "%252e%252e/x", "a/%2e%2e%2f%2e%2e/x", "a\\..\\x", "..%5Cx", "a/..",
        "%00", "a%2500",
    ],
)  # fmt: skip
async def test_an_artifact_stays_below_its_run(served: Served, run: str, path: str) -> None:
    for method, body in (("PUT", b"x"), ("GET", None), ("DELETE", None)):
        answer = await served.admin.call(method, f"{FILES}/{run}/artifacts/{path}", body=body)
        assert answer.status == 400, (method, answer.text)
        assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert list(served.platform.objects.list("cloudml").objects) == []


@pytest.mark.parametrize(
    "path", ["", "x", "{run}", "{run}/other/x", "models/m-0/x", "0/artifacts/x"]
)
async def test_an_artifact_belongs_to_a_run(served: Served, run: str, path: str) -> None:
    answer = await served.admin.call("PUT", f"{FILES}/{path.format(run=run)}", body=b"x")
    assert answer.status in (400, 404, 405)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("log-metric", {"key": "x" * 10_000_000, "value": 1, "timestamp": 1}),
        ("log-metric", {"key": "x" * 251, "value": 1, "timestamp": 1}),
        ("log-metric", {"key": "a\nb", "value": 1, "timestamp": 1}),
        ("log-metric", {"key": "../a", "value": 1, "timestamp": 1}),
        ("log-metric", {"key": "a", "value": "one", "timestamp": 1}),
        ("log-metric", {"key": "a", "value": 10**400, "timestamp": 1}),
        ("log-metric", {"key": "a", "value": 1, "timestamp": 2**63}),
        ("log-metric", {"key": "a", "value": 1, "timestamp": -1}),
        ("log-metric", {"key": "a", "value": 1}),
        ("log-metric", {"key": "a", "value": 1, "timestamp": 1, "step": "1.5"}),
        ("log-metric", {"key": "a", "value": 1, "timestamp": 1, "step": 2**62}),
        ("log-parameter", {"key": "a", "value": "x" * 6001}),
        ("log-parameter", {"key": "a", "value": "\x00"}),
        ("set-tag", {"key": "a", "value": "x" * 8001}),
        ("set-tag", {"key": ["a"], "value": "x"}),
        ("log-batch", {"metrics": [{"key": "a", "value": 1, "timestamp": 1}] * 1001}),
        ("log-batch", {"params": [{"key": str(n), "value": "v"} for n in range(101)]}),
        ("log-batch", {"tags": [{"key": str(n), "value": "v"} for n in range(101)]}),
        ("log-batch", {"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}),
        ("log-batch", {"metrics": {"a": 1}}),
        ("log-inputs", {"datasets": [{"dataset": {"name": "x" * 2_000_000}}]}),
        ("log-inputs", {"datasets": [{"dataset": {"name": "d", "source": "\ud800"}}]}),
        (
            "log-inputs",
            {"datasets": [{"dataset": {"name": "d"}, "tags": [{"key": "a", "value": 1}]}]},
        ),
        ("log-inputs", {"datasets": [{"dataset": "d"}]}),
        ("log-inputs", {"models": [{"model_id": "\ud800"}]}),
        ("outputs", {"models": [{"model_id": "\ud800", "step": "1"}]}),
    ],
)
async def test_what_is_beyond_limits_is_refused_as_a_whole(
    served: Served, run: str, path: str, fields: dict[str, Any]
) -> None:
    good = {"metrics": [{"key": "ok", "value": 1, "timestamp": 1}]}
    answer = await ask(served, f"/runs/{path}", run_id=run, **{**good, **fields})
    assert answer.status in (400, 413), answer.text
    assert answer.json()["error_code"] == "INVALID_PARAMETER_VALUE"
    assert len(answer.body) < 5000
    data = (await served.admin.call("GET", f"{API}/runs/get?run_id={run}")).json()["run"]["data"]
    assert (data["metrics"], data["params"]) == ([], [])


async def test_a_data_set_has_no_names_of_entries_that_the_server_adds(
    served: Served, run: str
) -> None:
    """Lists of objects are the server's own: they are unpacked, and take memory."""
    sent = {"dataset": {"name": "d"}, "tags": [], "cloudml_objects": {}, "model_output": {}}
    answer = await ask(served, "/runs/log-inputs", run_id=run, datasets=[sent])
    assert answer.status == 200, answer.text
    found = (await served.admin.call("GET", f"{API}/runs/get?run_id={run}")).json()["run"]
    assert found["inputs"]["dataset_inputs"] == [{"dataset": {"name": "d"}, "tags": []}]
    assert found["outputs"]["model_outputs"] == []


async def test_numbers_that_are_none_are_texts(served: Served, run: str) -> None:
    for key, value in (("n", "NaN"), ("i", "Infinity"), ("m", "-Infinity"), ("t", "1.5")):
        answer = await ask(
            served, "/runs/log-metric", run_id=run, key=key, value=value, timestamp="1"
        )
        assert answer.status == 200, answer.text
    raw = b'{"run_id": "%b", "key": "x", "value": NaN, "timestamp": 1}' % run.encode()
    refused = await served.admin.call("POST", f"{API}/runs/log-metric", body=raw)
    assert refused.status == 400
    shown = await served.admin.call("GET", f"{API}/runs/get?run_id={run}")
    metrics = {one["key"]: one["value"] for one in shown.json()["run"]["data"]["metrics"]}
    assert metrics == {"n": "NaN", "i": "Infinity", "m": "-Infinity", "t": 1.5}
    json.loads(shown.body, parse_constant=pytest.fail)


async def test_a_filter_of_somebody_who_means_ill_finds_nothing(served: Served, run: str) -> None:
    for text in (
        "params.a = '1'' OR ''1''=''1'",
        "tags.`a` = '1'' UNION SELECT * FROM records --'",
    ):
        answer = await ask(served, "/runs/search", experiment_ids=["0"], filter=text)
        assert answer.json() == {"runs": []}
    for text in ("1=1", "params.a = 'x' OR 1=1", "params.a='x'; DROP TABLE runs", "a" * 70_000,
                 " AND ".join(["metrics.a < 1"] * 51), f"run_name LIKE '{'%' * 11}'"):  # fmt: skip
        answer = await ask(served, "/runs/search", experiment_ids=["0"], filter=text)
        assert answer.status == 400
        assert answer.json()["field"] == "filter"


async def test_pages_end_early_where_runs_hold_much(served: Served) -> None:
    for number in range(12):
        made = await ask(served, "/runs/create", experiment_id="0", run_name=f"r{number}")
        uid = made.json()["run"]["info"]["run_id"]
        for begin in range(0, 160, 80):
            tags = [{"key": f"t{begin + one}", "value": "x" * 5000} for one in range(80)]
            assert (await ask(served, "/runs/log-batch", run_id=uid, tags=tags)).status == 200
    names, token = [], None
    for _ in range(5):
        answer = await ask(
            served, "/runs/search", experiment_ids=["0"], max_results=1000, page_token=token
        )
        assert len(answer.body) < 20_000_000
        names += [one["info"]["run_name"] for one in answer.json()["runs"]]
        if (token := answer.json().get("next_page_token")) is None:
            break
    assert names == [f"r{number}" for number in reversed(range(12))]


async def test_texts_of_one_run_are_bounded(served: Served, run: str) -> None:
    statuses = []
    for begin in range(0, 200, 50):
        tags = [{"key": f"t{begin + one}", "value": "x" * 8000} for one in range(50)]
        statuses.append((await ask(served, "/runs/log-batch", run_id=run, tags=tags)).status)
    assert statuses == [200, 200, 400, 400]


async def test_a_deleted_run_takes_nothing(served: Served, run: str) -> None:
    await ask(served, "/runs/delete", run_id=run)
    refused = await ask(served, "/runs/set-tag", run_id=run, key="a", value="b")
    assert refused.status == 400
    assert "is deleted" in refused.json()["message"]
    await ask(served, "/runs/restore", run_id=run)
    assert (await ask(served, "/runs/set-tag", run_id=run, key="a", value="b")).status == 200


async def test_a_job_keeps_its_state(served: Served) -> None:
    job = await served.submitted()
    answer = await ask(served, "/runs/update", run_id=job["uid"], status="FAILED", end_time=5)
    assert answer.json()["run_info"]["status"] == "SCHEDULED"
    assert (await served.admin.call("DELETE", f"/api/v1/runs/{job['uid']}")).status == 409


async def test_history_comes_in_pages(served: Served, run: str) -> None:
    for begin in range(0, 3000, 1000):
        values = [
            {"key": "m", "value": n, "timestamp": n, "step": 0} for n in range(begin, begin + 1000)
        ]
        assert (await ask(served, "/runs/log-batch", run_id=run, metrics=values)).status == 200
    found, token = [], ""
    while True:
        query = f"run_id={run}&metric_key=m&max_results=700&page_token={token}"
        answer = (await served.admin.call("GET", f"{API}/metrics/get-history?{query}")).json()
        found += [one["value"] for one in answer["metrics"]]
        if not (token := answer.get("next_page_token", "")):
            break
    assert found == list(range(3000))
    for token in ("x", "0.1025", "0.999999999"):  # with the last, all chunks would be one page
        query = f"run_id={run}&metric_key=m&page_token={token}"
        wrong = await served.admin.call("GET", f"{API}/metrics/get-history?{query}")
        assert wrong.status == 400


async def test_what_is_not_there_says_so_in_their_form(served: Served) -> None:
    nothing = await ask(served, "/nothing")
    assert (nothing.status, nothing.json()["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
    assert (await served.client.send("GET", "/mlflow/health")).body == b"OK"


async def test_any_time_that_a_client_says_can_be_shown(served: Served) -> None:
    made = await ask(served, "/runs/create", experiment_id="0", start_time=10**15)
    run = made.json()["run"]["info"]["run_id"]
    await ask(served, "/runs/log-metric", run_id=run, key="m", value=1, timestamp=10**15)
    await ask(served, "/runs/update", run_id=run, status="FINISHED", end_time=10**15)
    for path in (f"/{run}", "", f"/{run}/series", f"/{run}/series/m"):
        answer = await served.admin.call("GET", f"/api/v1/runs{path}")
        assert answer.status == 200, answer.text
    for how in ("<", ">"):
        filter_ = f"end_time {how} 1e300"
        answer = await ask(served, "/runs/search", experiment_ids=["0"], filter=filter_)
        assert answer.status == 200


async def test_a_new_organisation_of_an_old_name_finds_no_runs(served: Served) -> None:
    organisation = served.platform.identities.organisation("other")
    caller = served.as_caller(served.platform.identities.create_key(organisation, "olga"))
    made = await caller.call("POST", f"{API}/experiments/create", {"name": "secret"})
    fields = {"experiment_id": made.json()["experiment_id"]}
    run = (await caller.call("POST", f"{API}/runs/create", fields)).json()["run"]["info"]["run_id"]
    served.platform.storage.delete_bucket(replace(organisation, default_bucket=""), "others")
    await served.admin.call("PATCH", "/api/v1/admin/orgs/other", {"enabled": False})
    refused = await served.admin.call("DELETE", "/api/v1/admin/orgs/other")
    assert (refused.status, "other has runs" in refused.text) == (409, True)
    served.store.delete(RUN, run, fence=None)
    gone = await served.admin.call("DELETE", "/api/v1/admin/orgs/other")
    assert gone.status < 300, gone.text
    assert served.store.tracking.experiments("other") == []


async def test_logged_models_are_searched_in_an_order(served: Served) -> None:
    for name, tag in (("b", "2"), ("a", "2"), ("c", "1")):
        made = await ask(
            served, "/logged-models", experiment_id="0", name=name,
            tags=[{"key": "rank", "value": tag + "x" * 400}],
        )  # fmt: skip
        assert made.status == 200, made.text

    async def names(**fields: Any) -> list[str]:
        answer = await ask(served, "/logged-models/search", experiment_ids=["0"], **fields)
        assert answer.status == 200, answer.text
        return [one["info"]["name"] for one in answer.json().get("models", [])]

    order = [{"field_name": "tags.rank"}, {"field_name": "name", "ascending": False}]
    assert await names(order_by=order) == ["c", "b", "a"]
    assert await names(order_by=order, max_results=2) == ["c", "b"]
    assert await names() == ["c", "a", "b"]
    assert await names(filter="name = 'a'") == ["a"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("create", {"name": ""}), ("create", {"name": "a/b"}), ("create", {"name": "a:b"}),
        ("create", {"name": "x" * 257}), ("create", {"name": "a", "description": "d" * 5001}),
        ("create", {"name": "a\x00"}), ("create", {"name": ["a"]}),
        ("create", {"name": "a", "tags": [{"key": "../x", "value": ""}]}),
        ("rename", {"name": "net", "new_name": "x/y"}),
        ("alias", {"name": "net", "alias": "v1", "version": "1"}),
        ("alias", {"name": "net", "alias": "a b", "version": "1"}),
    ],
)  # fmt: skip
async def test_a_wrong_name_of_a_model_is_refused(
    served: Served, path: str, fields: dict[str, Any]
) -> None:
    await ask(served, "/registered-models/create", name="net")
    answer = await ask(served, f"/registered-models/{path}", **fields)
    assert (answer.status, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    found = await served.admin.call("GET", f"{API}/registered-models/search")
    assert [one["name"] for one in found.json()["registered_models"]] == ["net"]


@pytest.mark.parametrize(
    "source",
    [
        "/etc/passwd", "file:///etc/passwd", "", "x", "s3://", "javascript:alert(1)",
        "mlflow-artifacts:/a/../b", "s3://a/%2e%2e/b", "s3://a/%252e%252e/b",
    ],
)  # fmt: skip
async def test_a_version_points_to_no_path_of_a_machine(served: Served, source: str) -> None:
    await ask(served, "/registered-models/create", name="net")
    answer = await ask(served, "/model-versions/create", name="net", source=source)
    assert (answer.status, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    after = await ask(served, "/model-versions/create", name="net", source="s3://bucket/a")
    assert after.json()["model_version"]["version"] == "1"


async def test_models_of_another_organisation_are_absent(served: Served, run: str) -> None:
    await ask(served, "/registered-models/create", name="net")
    await ask(served, "/model-versions/create", name="net", source="s3://bucket/a")
    stranger = served.stranger
    for path in ("registered-models/get?name=net", "model-versions/get?name=net&version=1"):
        assert (await stranger.call("GET", f"{API}/{path}")).status == 404
    found = await stranger.call("GET", f"{API}/model-versions/search")
    assert found.json() == {"model_versions": []}
    body = {"name": "net", "source": f"runs:/{run}/model", "run_id": run}
    await stranger.call("POST", f"{API}/registered-models/create", {"name": "net"})
    answer = await stranger.call("POST", f"{API}/model-versions/create", body)
    assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"


async def test_a_model_is_renamed_with_its_versions(served: Served) -> None:
    await ask(served, "/registered-models/create", name="net")
    await ask(served, "/model-versions/create", name="net", source="s3://bucket/a")
    answer = await ask(served, "/registered-models/rename", name="net", new_name="new")
    assert answer.status == 200, answer.text
    assert served.store.find(REGISTERED_MODEL, "default", "net") is None
    got = await served.admin.call("GET", f"{API}/model-versions/get?name=new&version=1")
    assert got.json()["model_version"]["source"] == "s3://bucket/a"
    taken = await ask(served, "/registered-models/create", name="net")
    assert taken.status == 200
    refused = await ask(served, "/registered-models/rename", name="net", new_name="new")
    assert (refused.status, refused.json()["error_code"]) == (409, "RESOURCE_ALREADY_EXISTS")


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"filter": "dataset.size = 'x'"}, "dataset.name, dataset.digest, dataset.context"),
        ({"filter": "dataset.name IS NULL"}, "one of =, !=, LIKE, ILIKE, IN, NOT IN"),
        ({"filter": "datasets.name > 'a'"}, "one of =, !=, LIKE, ILIKE, IN, NOT IN"),
        ({"order_by": ["dataset.name"]}, "metrics.NAME, params.NAME, tags.NAME"),
    ],
)
async def test_what_is_no_condition_on_a_data_set_is_named(
    served: Served, fields: dict[str, Any], allowed: str
) -> None:
    answer = await ask(served, "/runs/search", experiment_ids=["0"], **fields)
    assert answer.status == 400
    assert allowed in answer.json()["message"]


PARTS = FILES.removesuffix("/artifacts") + "/mpu"


async def begin(served: Served, run: str, count: int, name: str = "/tmp/a b.bin") -> Any:
    proof = basic(served.admin.identity.access_key, served.admin.identity.secret)
    sent = json.dumps({"path": name, "num_parts": count}).encode()
    path = f"{PARTS}/create/{run}/artifacts/deep"
    answer = await served.client.send("POST", path, proof, sent)
    assert answer.status == 200, answer.text
    return answer.json()


async def send_parts(served: Served, begun: Any, *content: bytes) -> list[dict[str, Any]]:
    """The parts, sent as MLflow's client does it: to the address, and with the headers given."""
    parts = []
    for credential, body in zip(begun["credentials"], content, strict=True):
        path = PARTS + credential["url"].partition(PARTS)[2]
        answer = await served.client.send("PUT", path, credential["headers"], body)
        assert answer.status == 200, answer.text
        etag = answer.headers["etag"]
        parts.append({"part_number": credential["part_number"], "etag": etag, "url": path})
    return parts


async def test_a_large_artifact_comes_in_parts(served: Served, run: str) -> None:
    begun = await begin(served, run, 3)
    parts = await send_parts(served, begun, b"one", b"two", b"three")
    path = f"{run}/artifacts/deep"
    assert (await served.admin.call("GET", f"{FILES}/{path}/a%20b.bin")).status == 404
    done = {"path": "C:\\files\\a b.bin", "upload_id": begun["upload_id"], "parts": parts}
    answer = await served.admin.call("POST", f"{PARTS}/complete/{path}", done)
    assert answer.status == 200, answer.text
    assert (await served.admin.call("GET", f"{FILES}/{path}/a%20b.bin")).body == b"onetwothree"


async def test_who_lost_the_answer_completes_an_upload_again(served: Served, run: str) -> None:
    """MLflow's client does so after 120 seconds, which the parts of a large file may take."""
    begun = await begin(served, run, 2)
    parts = await send_parts(served, begun, b"one", b"two")
    path = f"{run}/artifacts/deep"
    done = {"path": "a b.bin", "upload_id": begun["upload_id"], "parts": parts}
    for _ in range(2):
        answer = await served.admin.call("POST", f"{PARTS}/complete/{path}", done)
        assert (answer.status, answer.body) == (200, b"{}")
    assert (await served.stranger.call("POST", f"{PARTS}/complete/{path}", done)).status == 404
    for other in (b"onetw0", b"onetwo ", b"on", b""):
        await served.admin.call("PUT", f"{FILES}/{path}/a%20b.bin", body=other)
        answer = await served.admin.call("POST", f"{PARTS}/complete/{path}", done)
        assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    for etag in ("-", "x-3", parts[0]["etag"].partition("-")[0], "x-" + "9" * 5000):
        wrong = {**done, "parts": [{"part_number": 1, "etag": etag}]}
        answer = await served.admin.call("POST", f"{PARTS}/complete/{path}", wrong)
        assert answer.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"


async def test_parts_that_did_not_come_as_they_were_sent_make_no_artifact(
    served: Served, run: str
) -> None:
    begun = await begin(served, run, 2)
    parts = await send_parts(served, begun, b"one", b"two")
    path = f"{PARTS}/complete/{run}/artifacts/deep"
    for wrong in (
        [{**parts[0], "etag": parts[1]["etag"]}, parts[1]],
        [*parts, {"part_number": 3, "etag": parts[1]["etag"]}],
        [],
        [{"part_number": 1}],
        [7],
    ):
        done = {"path": "a b.bin", "upload_id": begun["upload_id"], "parts": wrong}
        answer = await served.admin.call("POST", path, done)
        assert answer.status in (400, 409), answer.text
    assert list(served.platform.objects.list("cloudml").objects) == []
    given_up = {"path": "a b.bin", "upload_id": begun["upload_id"]}
    answer = await served.admin.call("POST", path.replace("complete", "abort"), given_up)
    assert answer.status == 200
    assert served.platform.objects.multipart.count("cloudml") == 0


@pytest.mark.parametrize("name", ["..", ".", "", "/", "%2e%2e", "a/..", "\x00", 7])
async def test_the_name_of_a_large_artifact_stays_in_its_folder(
    served: Served, run: str, name: object
) -> None:
    path = f"{PARTS}/create/{run}/artifacts/deep"
    answer = await served.admin.call("POST", path, {"path": name, "num_parts": 1})
    assert answer.status == 400, answer.text


@pytest.mark.parametrize("count", [0, -1, 10_001, "x", 1.5])
async def test_the_number_of_parts_is_limited(served: Served, run: str, count: object) -> None:
    path = f"{PARTS}/create/{run}/artifacts"
    answer = await served.admin.call("POST", path, {"path": "a", "num_parts": count})
    assert answer.status == 400, answer.text
    assert "num_parts" in answer.json()["message"]


async def test_a_long_path_has_fewer_parts(served: Served, run: str) -> None:
    """The answer has the path once for each part."""
    path = f"{PARTS}/create/{run}/artifacts/" + "/".join(["%C3%A4" * 100] * 4)
    refused = await served.admin.call("POST", path, {"path": "a", "num_parts": 10_000})
    assert refused.status == 400
    assert served.platform.objects.multipart.count("cloudml") == 0
    taken = await served.admin.call("POST", path, {"path": "a", "num_parts": 1000})
    assert taken.status == 200, taken.text
    assert len(taken.body) < 8 * 2**20


async def test_an_upload_belongs_to_one_artifact_of_one_organisation(
    served: Served, run: str
) -> None:
    begun = await begin(served, run, 1)
    path = f"{PARTS}/parts/{begun['upload_id']}/1"
    other = await served.admin.call("PUT", f"{path}/{run}/artifacts/other", body=b"x")
    assert other.status == 404
    same = f"{path}/{run}/artifacts/deep/a%20b.bin"
    assert (await served.stranger.call("PUT", same, body=b"x")).status == 404
    assert (await served.admin.call("PUT", same, body=b"x")).status == 200


async def test_who_signs_gets_no_credential_for_parts(served: Served, run: str) -> None:
    """A signature is that of one request."""
    path = f"{PARTS}/create/{run}/artifacts"
    answer = await served.admin.call("POST", path, {"path": "a", "num_parts": 1})
    assert [one["headers"] for one in answer.json()["credentials"]] == [{}]


async def test_runs_without_a_job_are_compared_by_their_names(served: Served, run: str) -> None:
    other = await ask(served, "/runs/create", experiment_id="0", run_name="Two runs")
    await ask(served, "/runs/log-parameter", run_id=run, key="lr", value="0.1")
    uid = other.json()["run"]["info"]["run_id"]
    await ask(served, "/runs/log-parameter", run_id=uid, key="lr", value="0.2")
    answer = await served.admin.call("GET", "/api/v1/runs/compare?run=one&run=Two%20runs")
    (lr,) = answer.json()["differences"]
    assert (lr["name"], lr["values"]) == ("lr", ["0.1", "0.2"])
    absent = await served.admin.call("GET", "/api/v1/runs/compare?run=one&run=Three")
    assert (absent.status, "there is no job and no run Three" in absent.text) == (404, True)
    strange = await served.stranger.call("GET", f"/api/v1/runs/compare?run=one&run={uid}")
    assert strange.status == 404
    await ask(served, "/runs/create", experiment_id="0", run_name="one")
    several = await served.admin.call("GET", f"/api/v1/runs/compare?run=one&run={uid}")
    assert (several.status, run in several.text) == (400, True)
    assert "several runs have it" in several.text
