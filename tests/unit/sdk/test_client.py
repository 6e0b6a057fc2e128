from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, WaitTimedOut
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from support.fake_api import FakeApi, make_job
from support.fake_server import FakeServer, Reply, Seen, json_reply, refusal


def test_the_snippet_of_the_slide(client: CloudMlClient, server: FakeServer) -> None:
    train_job = TrainJob("face-recognition", "trainer.task", "fds://cloudml/trainer-1.0.tar.gz")
    train_job.job_args = []
    train_job.output_path = "fds://cloudml/face-model"
    train_job.master_spec = {"replica_count": 1}  # type: ignore[assignment]
    client.submit_train_job(train_job)
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/api/v1/jobs")
    assert seen.document["output_path"] == "fds://cloudml/face-model"
    assert seen.document["master_spec"]["replica_count"] == 1
    assert None not in seen.document.values()


def test_a_job_is_held_until_it_ends(client: CloudMlClient, api: FakeApi) -> None:
    job = client.submit_train_job(TrainJob("linear", "trainer.task", "fds://cloudml/a.tar.gz"))
    assert (job.name, job.phase, job.finished) == ("linear", "Queued", False)
    assert b"".join(job.logs(follow=True)) == api.log
    assert job.wait(timeout=10).exit_code == 0
    assert job.succeeded


def test_waiting_asks_for_what_is_newer(client: CloudMlClient, server: FakeServer) -> None:
    server.queued += [
        json_reply(codec.encode(make_job("a", phase=phase, revision=revision)))
        for revision, phase in enumerate(("Queued", "Queued", "Running", "Failed"), 1)
    ]
    assert client.get_train_job("a").wait().phase == "Failed"
    assert [seen.query for seen in server.seen[1:]] == [
        {"wait": "30", "revision": str(i)} for i in (1, 2, 3)
    ]
    assert {seen.path for seen in server.seen[1:]} == {"/api/v1/jobs/uid-a"}


def test_waiting_has_an_end(client: CloudMlClient, api: FakeApi) -> None:
    api.jobs["a"] = make_job("a", phase="Running")
    with pytest.raises(WaitTimedOut, match=r"a is still Running after 0\.01 s"):
        client.get_train_job("a").wait(timeout=0.01)


def test_a_submit_whose_answer_was_lost_makes_one_job(
    client: CloudMlClient, server: FakeServer, api: FakeApi
) -> None:
    def lose_the_first_answer(seen):  # type: ignore[no-untyped-def]
        reply = api(seen)
        return Reply(503, b"", {"retry-after": "0"}) if len(server.seen) == 1 else reply

    server.handler = lose_the_first_answer
    assert client.submit_train_job(TrainJob("a", "b", "fds://cloudml/c.tar.gz")).name == "a"
    assert len(server.seen) == 2
    assert len(api.jobs) == 1


def test_a_name_that_is_taken(client: CloudMlClient) -> None:
    job = TrainJob("a", "b", "fds://cloudml/c.tar.gz")
    client.submit_train_job(job)
    with pytest.raises(AlreadyExists) as caught:
        client.submit_train_job(job)
    assert caught.value.same_spec is True


def test_what_was_assigned_later_is_checked_before_it_is_sent(
    client: CloudMlClient, server: FakeServer
) -> None:
    job = TrainJob("a", "b", "fds://cloudml/c.tar.gz")
    job.memory_limit = "100"
    with pytest.raises(InvalidRequest, match="memory_limit"):
        client.submit_train_job(job)
    assert server.seen == []


def test_local_code_is_uploaded_once(
    client: CloudMlClient, api: FakeApi, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("print(1)")
    job = TrainJob("a", "trainer.task", str(tmp_path))
    client.submit_train_job(job)
    job.job_name = "b"
    client.submit_train_job(job)
    (uri,) = api.objects
    digest = uri.split("/")[5]
    assert uri == f"fds://cloudml/.trainers/{digest[:2]}/{digest}/{tmp_path.name}.tar.gz"
    assert [seen.method for seen in server.seen if "/storage/" in seen.path] == [
        "HEAD",
        "PUT",
        "HEAD",
    ]
    assert api.jobs["b"].spec["trainer_uri"] == uri
    assert job.trainer_uri == str(tmp_path)


def test_what_the_server_refuses_is_refused_before_the_code_is_uploaded(
    client: CloudMlClient, api: FakeApi, server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print(1)")

    def refuse(seen: Seen) -> Reply:
        if seen.path == "/api/v1/jobs/check":
            return refusal(InvalidRequest("job_args is wrong", field="job_args"), 400)
        return api(seen)

    server.handler = refuse
    with pytest.raises(InvalidRequest, match="job_args is wrong"):
        client.submit_train_job(
            TrainJob("a", "train", str(tmp_path), job_args=["--out=fds://nowhere/x"])
        )
    assert api.objects == {}
    request = server.seen[-1].document
    assert (request["trainer_uri"], request["job_args"]) == (
        "fds://cloudml/.trainers/new",
        ["--out=fds://nowhere/x"],
    )


@pytest.mark.parametrize(("code", "status"), [("not_found", 404), ("method_not_allowed", 405)])
def test_a_server_that_does_not_know_the_question_gets_the_job(
    client: CloudMlClient, api: FakeApi, server: FakeServer, tmp_path: Path, code: str, status: int
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    unknown = json_reply({"error": True, "code": code, "message": "no such route"}, status)
    server.handler = lambda seen: unknown if seen.path == "/api/v1/jobs/check" else api(seen)
    client.submit_train_job(TrainJob("a", "train", str(tmp_path)))
    assert list(api.jobs) == ["a"]


def test_lists_go_over_pages(client: CloudMlClient, api: FakeApi, server: FakeServer) -> None:
    api.jobs = {
        f"j{i}": make_job(f"j{i}", phase="Running" if i % 2 else "Failed") for i in range(450)
    }
    assert [job.name for job in client.list_train_jobs()] == list(api.jobs)
    assert len(server.seen) == 3
    assert len(list(client.list_train_jobs(state="running"))) == 225
    server.seen.clear()
    assert [job.name for job in client.list_train_jobs(limit=3)] == ["j0", "j1", "j2"]
    assert [seen.query["limit"] for seen in server.seen] == ["3"]


def test_the_other_verbs(client: CloudMlClient, api: FakeApi) -> None:
    client.submit_train_job(TrainJob("a", "b", "fds://cloudml/c.tar.gz", save_mode=True))
    assert client.start_train_job("a").phase == "Queued"
    assert [event.reason for event in client.train_job_events("a")] == ["Submitted"]
    assert b"".join(client.train_job_logs("a", lines=1)) == b"epoch 3\n"
    assert client.cancel_train_job("a").reason == "Cancelled"
    assert client.describe_train_job("a").phase == "Stopping"
    assert client.delete_train_job("a").deleting
    api.jobs["a"] = make_job("a", phase="Failed")
    with pytest.raises(Conflict):
        client.get_train_job("a").cancel()
    with pytest.raises(NotFound):
        client.describe_train_job("none")


def test_the_server(client: CloudMlClient) -> None:
    assert client.whoami().default_bucket == "cloudml"
    assert client.frameworks()["python"] == ["3.11"]
    assert client.server_info().version == "9.9"


def test_a_handle_means_the_job_it_was_made_for(client: CloudMlClient, server: FakeServer) -> None:
    handle = client.submit_train_job(TrainJob("a", "b", "fds://cloudml/c.tar.gz"))
    handle.refresh()
    assert server.seen[-1].path == "/api/v1/jobs/uid-a"


def test_secrets_are_not_shown(client: CloudMlClient) -> None:
    assert "test-secret" not in repr(client)


def test_filters_of_a_list_travel_as_parameters(client: CloudMlClient, server: FakeServer) -> None:
    since = datetime(2026, 1, 31, 20, 0, tzinfo=timezone(timedelta(hours=8)))
    list(
        client.list_train_jobs(
            name="a*", framework="x", user="mei", labels={"a": "b=c", "d": ""}, created_after=since
        )
    )
    (seen,) = server.seen
    assert parse_qsl(seen.target.partition("?")[2], keep_blank_values=True) == [
        ("limit", "200"),
        ("name", "a*"),
        ("framework", "x"),
        ("user", "mei"),
        ("label", "a=b=c"),
        ("label", "d="),
        ("created_after", "2026-01-31T12:00:00.000000Z"),
    ]
