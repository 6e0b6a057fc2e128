"""The page of the original wire, rule by rule, against the whole API: what is sent, refused, and
answered.

What the documents look like in every state is in ``test_train_documents.py``, quotas are in
``tests/unit/api``, and the original client itself is in ``test_original_client.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloud_ml.domain.workloads.phases import Phase
from support.platform import Served

pytestmark = pytest.mark.anyio

V1 = "/cloud_ml/v1"
TRAIN = f"{V1}/train"


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


async def post(served: Served, **fields: Any) -> Any:
    """Submit as the original client does: without a Content-Type, with the two fields that are
    always there.
    """
    served.clock.advance(1)  # the same bytes in the same second would be a replay
    body = {**served.job(), "enable_rank": 0, "save_mode": False, **fields}
    return await served.member.original("POST", TRAIN, body)


# ---- 2.1 answers, and 2.3 the rules of values


GOOD: dict[str, list[Any]] = {
    "job_name": ["a", "0", "linear-2", "x" * 63],
    "cpu_limit": ["0.5", "2", "1.25"],
    "memory_limit": ["100M", "1.5G", "300000K"],
    "gpu_limit": [0, "0"],
    "enable_rank": [0, 1],
    "save_mode": [True, False],
    "job_args": ["--max_epochs 3 --name 'two words'", ["--max_epochs", "3"]],
    "fds_endpoint": ["http://127.0.0.1:8471"],
    "fds_bucket": ["cloudml"],
    "prepare_command": ["pip list"],
    "finish_command": ["ls"],
    "model_input_path": ["fds://cloudml/in"],
    "model_export_path": ["fds://cloudml/model"],
    "data_input_path": ["fds://cloudml/data"],
    "data_output_path": ["fds://cloudml/out"],
    "log_path": ["fds://cloudml/log"],
    "output_path": ["fds://cloudml/out"],
    "pipeline_id": ["7", 7],
    "mount_read_only": [False],
}
BAD: dict[str, list[Any]] = {
    "job_name": ["", "Linear", "a b", "-a", "a-", "a_b", "ünïcode", "x" * 64, 7, None],
    "module_name": ["", "trainer task", "trainer/task.py", 7, None],
    "trainer_uri": [
        "",
        "linear.tar.gz",
        "file:///etc/passwd",
        "fds://",
        "fds://cloudml",
        "fds://cloudml/../x",
        None,
    ],
    "cpu_limit": ["1.", ".5", "0", "0.125", "-1", "half", "1e3", ""],
    "memory_limit": ["100MB", "100", "0M", "100Mi", "1.234G", "-1M", "M", "", 100],
    "gpu_limit": [-1, "one", 0.5],
    "enable_rank": [2, -1, "high"],
    "save_mode": ["maybe", 3],
    "ps_count": [0, -1, "two"],
    "worker_count": [0, "x"],
    "hdfs_endpoint": ["http://hdfs"],
}


async def test_what_the_page_allows_is_taken(served: Served) -> None:
    cases = [(name, value) for name, values in GOOD.items() for value in values]
    for number, (field, value) in enumerate(cases):
        answer = await post(served, **{"job_name": f"good-{number}", field: value})
        assert answer.status == 200, (field, value, answer.text)
        described = await served.member.original("GET", f"{TRAIN}/{answer.json()['job_name']}")
        assert described.json() == answer.json()


async def test_what_the_page_forbids_is_refused_by_name_in_one_line(served: Served) -> None:
    for field, value in [(name, value) for name, values in BAD.items() for value in values]:
        answer = await post(served, **{field: value})
        document = answer.json()
        assert (answer.status, document["error"]) == (400, True), (field, value, answer.text)
        assert field in document["message"]
        assert "\n" not in answer.text
    assert (await served.member.original("GET", TRAIN)).json() == {"data": []}, (
        "nothing is half-created"
    )


async def test_what_is_always_there_must_be_there(served: Served) -> None:
    for missing in ("job_name", "module_name", "trainer_uri"):
        body = {name: value for name, value in served.job().items() if name != missing}
        answer = await served.member.original("POST", TRAIN, body)
        assert (answer.status, missing in answer.json()["message"]) == (400, True)


NOT_OFFERED: list[dict[str, Any]] = [
    {"docker_image": "tensorflow:1"},
    {"docker_command": "sleep 1"},
    {"hdfs_krb_account": "me", "hdfs_krb_password": "secret-word", "hdfs_endpoint": "hdfs://c"},
    {"volume_type": "ceph", "volume_path": "/x", "mount_path": "/y", "mount_read_only": True},
    {"node_selector_key": "zone", "node_selector_value": "a"},
]


async def test_what_this_server_does_not_offer_is_told_and_not_ignored(served: Served) -> None:
    for fields in NOT_OFFERED:
        answer = await post(served, **fields)
        assert (answer.status, answer.json()["error"]) == (400, True), fields
        assert "does not offer" in answer.json()["message"]
        assert "secret-word" not in answer.text


async def test_success_is_below_400_and_json_for_every_verb(served: Served) -> None:
    assert (await post(served, job_name="linear", save_mode=True)).json()["state"] == "initial"
    verbs = [
        ("GET", ""),
        ("GET", "/logs"),
        ("GET", "/metrics"),
        ("GET", "/events"),
        ("GET", "/start"),
        ("DELETE", ""),
    ]
    for method, rest in verbs:
        served.clock.advance(1)
        answer = await served.member.original(method, f"{TRAIN}/linear{rest}")
        assert answer.status < 400, (rest, answer.text)
        assert answer.headers["content-type"].startswith("application/json")
        assert isinstance(answer.json(), dict)


@pytest.mark.parametrize(
    "rest", ["", "/logs", "/logs?follow=True", "/metrics", "/events", "/start", "/hyperparameters"]
)
async def test_absent_is_404_in_json_also_for_logs(served: Served, rest: str) -> None:
    answer = await served.member.original("GET", f"{TRAIN}/nobody{rest}")
    assert answer.status == 404
    assert answer.json()["error"] is True
    assert "nobody" in answer.json()["message"]


async def test_a_wrong_signature_is_401_with_its_words(served: Served) -> None:
    headers = served.member.sign_original(TRAIN) | {"Authorization": "Galaxy V3 " + "A" * 27 + "="}
    answer = await served.member.client.send("GET", TRAIN, headers)
    assert (answer.status, answer.json()["error"]) == (401, True)
    assert "signature" in answer.json()["message"].lower()


# ---- 2.2 org_id


async def test_org_id_filters_within_what_the_key_may_see(served: Served) -> None:
    await post(served, job_name="linear")
    mine = await served.member.original("GET", f"{TRAIN}?org_id=1")
    assert [row["job_name"] for row in mine.json()["data"]] == ["linear"]
    foreign = await served.stranger.original("GET", f"{TRAIN}?org_id=1")
    missing = await served.stranger.original("GET", f"{TRAIN}?org_id=4711")
    assert (foreign.status, foreign.text) == (404, missing.text.replace("4711", "1"))
    assert (await served.stranger.original("GET", f"{TRAIN}?org_id=-1")).status == 403
    everyone = await served.admin.original("GET", f"{TRAIN}?org_id=-1")
    assert [row["job_name"] for row in everyone.json()["data"]] == ["linear"]


# ---- 2.4 and 2.6: lists and events


async def test_columns_of_lists_and_events_are_texts(served: Served) -> None:
    await post(served, job_name="linear")
    (row,) = (await served.member.original("GET", TRAIN)).json()["data"]
    assert {name for name, value in row.items() if not isinstance(value, str)} == set()
    (event, *_) = (await served.member.original("GET", f"{TRAIN}/linear/events")).json()["events"]
    assert isinstance(event.pop("count"), int)
    assert event.pop("involvedObject") == {"name": "linear"}
    event.pop("message")
    assert set(event) == {"firstTimestamp", "lastTimestamp", "type", "reason"}
    assert all(isinstance(value, str) for value in event.values())


async def test_whoever_waits_is_told_what_is_free(served: Served) -> None:
    await post(served, job_name="linear")
    waiting = (await served.member.original("GET", f"{TRAIN}/linear/events")).json()
    capacity = await served.engine.capacity()
    assert waiting["recommend"] == [
        [capacity.cpu_millis / 1000, capacity.memory_bytes, capacity.gpus]
    ]
    served.move(served.platform.jobs.find("default", "linear").key.uid, Phase.STARTING)
    started = (await served.member.original("GET", f"{TRAIN}/linear/events")).json()
    assert started["recommend"] == []


# ---- 3.1 the query of lists, logs and deletion


async def test_logs_are_a_text_in_json(served: Served) -> None:
    await post(served, job_name="linear")
    for query in ("", "?lines=5", "?lines=0", "?org_id=1", "?lines=5&org_id=1"):
        answer = await served.member.original("GET", f"{TRAIN}/linear/logs{query}")
        assert answer.json() == {"logs": ""}


async def test_deletion_answers_an_object(served: Served) -> None:
    for number, query in enumerate(
        ("", "?is_cluster_name=True", "?org_id=1", "?org_id=1&is_cluster_name=True")
    ):
        await post(served, job_name=f"linear-{number}")
        answer = await served.member.original("DELETE", f"{TRAIN}/linear-{number}{query}")
        assert (answer.status, isinstance(answer.json(), dict)) == (200, True)


# ---- 3.7 the small ones


async def test_frameworks_are_names_with_versions_and_need_no_signature(served: Served) -> None:
    answer = await served.member.client.send("GET", f"{V1}/framework", {})
    assert answer.status == 200
    assert answer.json()
    assert all(
        isinstance(version, str) for versions in answer.json().values() for version in versions
    )


async def test_everything_else_needs_one(served: Served) -> None:
    for target in ("/org_ids", "/authentication", "/quota", "/resources"):
        unsigned = await served.member.client.send("GET", f"{V1}{target}", {})
        assert (unsigned.status, unsigned.json()["error"]) == (401, True)
        assert (await served.member.original("GET", f"{V1}{target}")).status == 200


async def test_the_organisation_is_told(served: Served) -> None:
    assert (await served.member.original("GET", f"{V1}/org_ids")).json() == {"org_id": "1"}


async def test_free_resources_are_a_list_of_one(served: Served) -> None:
    (row,) = (await served.member.original("GET", f"{V1}/resources")).json()["data"]
    assert set(row) == {"available_cpu", "available_mem", "available_gpu"}
    assert isinstance(row["available_mem"], str)


@pytest.mark.parametrize("path", ["/dev", "/pipeline", "/schedule", "/ceph"])
async def test_rooms_that_are_not_built_answer_in_json(served: Served, path: str) -> None:
    answer = await served.member.original("GET", f"{V1}{path}")
    assert (answer.status, answer.json()["error"]) == (404, True)
