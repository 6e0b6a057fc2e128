"""A request is repeated after its answer was lost, and somebody else acts in between: nothing of
theirs is undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import Conflict, NotFound, TransportError
from cloud_ml.models.admin.quota import LimitsChange
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService
from support.lost_answers import LostAnswers
from support.server import RealServer, eventually, serving

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("lost answers")]

URI = "fds://cloudml/shared"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def way(server: RealServer) -> Iterator[LostAnswers]:
    way = LostAnswers(server.port)
    yield way
    way.close()


@pytest.fixture
def client(server: RealServer, way: LostAnswers) -> Iterator[CloudMlClient]:
    key = server.credentials
    with CloudMlClient(key["access_key"], key["secret_key"], way.endpoint) as client:
        yield client


@pytest.fixture
def other(server: RealServer) -> Iterator[CloudMlClient]:
    """Somebody else, with a line that loses nothing."""
    key = server.credentials
    with CloudMlClient(key["access_key"], key["secret_key"], server.endpoint) as client:
        yield client


def content(client: CloudMlClient, uri: str = URI) -> bytes:
    with client.storage.open(uri) as answer:
        return answer.read()


def saved(name: str) -> TrainJob:
    return TrainJob(name, "trainer.task", "fds://cloudml/a.whl", save_mode=True)


def test_a_repeated_delete_keeps_what_another_wrote(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.storage.upload(b"old", URI)
    way.lose("DELETE", lambda: other.storage.upload(b"new", URI))
    client.storage.delete(URI)
    assert (way.lost, content(other)) == (1, b"new")
    assert len([line for line in way.requests if line.startswith("DELETE")]) == 2


def test_a_repeated_delete_of_what_is_gone_is_success(
    client: CloudMlClient, way: LostAnswers
) -> None:
    client.storage.upload(b"old", URI)
    way.lose("DELETE", lambda: None)
    client.storage.delete(URI)
    assert way.lost == 1
    with pytest.raises(NotFound, match="there is no object"):
        client.storage.delete(URI)


@pytest.mark.parametrize("from_file", [False, True])
def test_a_repeated_upload_keeps_what_another_wrote(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers, tmp_path: Path, from_file: bool
) -> None:
    (tmp_path / "x").write_bytes(b"mine")
    way.lose("PUT", lambda: other.storage.upload(b"theirs", URI))
    with pytest.raises(
        TransportError, match="the answer was lost, and the object is another one now"
    ):
        client.storage.upload(tmp_path / "x" if from_file else b"mine", URI)
    assert (way.lost, content(other)) == (1, b"theirs")


@pytest.mark.parametrize("only_if_absent", [False, True])
@pytest.mark.parametrize("from_file", [False, True])
def test_a_repeated_upload_knows_its_own(
    client: CloudMlClient, way: LostAnswers, tmp_path: Path, only_if_absent: bool, from_file: bool
) -> None:
    uri = f"fds://cloudml/own-{only_if_absent}-{from_file}"
    (tmp_path / "x").write_bytes(b"mine")
    way.lose("PUT", lambda: None)
    stored = client.storage.upload(
        tmp_path / "x" if from_file else b"mine", uri, only_if_absent=only_if_absent
    )
    assert (way.lost, stored.etag, content(client, uri)) == (
        1,
        client.storage.head(uri).etag,
        b"mine",
    )


def test_a_repeated_removal_keeps_a_bucket_that_another_made(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.storage.create_bucket("made-again")
    way.lose("DELETE", lambda: other.storage.create_bucket("made-again"))
    with pytest.raises(Conflict, match="made-again"):
        client.storage.delete_bucket("made-again")
    assert way.lost == 1
    assert "made-again" in [bucket.name for bucket in other.storage.list_buckets()]


def test_a_repeated_deletion_keeps_a_job_that_another_submitted(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    def again() -> None:
        handle.wait_until_gone()
        other.submit_train_job(saved("same-name"))

    handle = other.submit_train_job(saved("same-name"))
    way.lose("DELETE", again)
    assert client.delete_train_job("same-name").deleting
    assert way.lost == 1
    assert not other.describe_train_job("same-name").deleting
    other.delete_train_job("same-name")


def test_a_repeated_cancel_keeps_a_job_that_another_submitted(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    def again() -> None:
        handle.delete()
        handle.wait_until_gone()
        other.submit_train_job(saved("cancelled"))

    handle = other.submit_train_job(saved("cancelled"))
    way.lose("POST", again)
    client.cancel_train_job("cancelled")
    assert way.lost == 1
    assert other.describe_train_job("cancelled").phase == "Saved"


def test_a_repeated_quota_keeps_what_another_set(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    def limits(jobs: int) -> LimitsChange:
        return LimitsChange(count=str(jobs))

    way.lose("PUT", lambda: other.quota.set("default", train=limits(7)))
    client.quota.set("default", train=limits(3))
    assert way.lost == 1
    (found,) = other.quota.show(org="default")
    assert {line.count_limit for line in found.items if line.kind == "train"} == {7}


def service(name: str) -> ModelService:
    return ModelService(name, "v1", "fds://cloudml/model", save_mode=True)


def test_a_repeated_creation_of_a_service_makes_one(
    client: CloudMlClient, way: LostAnswers
) -> None:
    way.lose("POST", lambda: None)
    handle = client.create_model_service(service("created"))
    assert (way.lost, handle.service.phase) == (1, "Saved")
    assert [each.version for each in client.list_model_services(name="created")] == ["v1"]


def test_a_repeated_change_of_a_service_keeps_what_another_set(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.create_model_service(service("changed"))
    way.lose("PATCH", lambda: other.update_model_service("changed", "v1", replicas=5))
    changed_service = client.update_model_service("changed", "v1", replicas=3)
    assert (way.lost, changed_service.spec["replicas"]) == (1, 5)


def test_a_repeated_secret_keeps_the_value_of_another(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    way.lose("POST", lambda: other.secrets.create("shared", "a longer value", replace=True))
    assert client.secrets.create("shared", "mine").name == "shared"
    assert way.lost == 1
    assert other.secrets.describe("shared").size == len("a longer value")


def test_a_repeated_stop_keeps_a_service_that_another_started(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.create_model_service(service("started"))
    other.start_model_service("started", "v1")
    way.lose("POST", lambda: other.start_model_service("started", "v1"))
    client.stop_model_service("started", "v1")
    assert way.lost == 1
    stopped = ("Stopped", "Stopping", "Saved")
    eventually(
        lambda: other.describe_model_service("started", "v1").phase not in stopped, "it is started"
    )
    other.delete_model_service("started", "v1")


def test_a_repeated_deletion_keeps_a_service_that_another_made(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    def again() -> None:
        handle.wait_until_gone()
        other.create_model_service(service("made-again"))

    handle = other.create_model_service(service("made-again"))
    way.lose("DELETE", again)
    known = client.get_model_service("made-again", "v1")
    assert known.delete().deleting
    assert way.lost == 1
    assert not other.describe_model_service("made-again", "v1").deleting


def test_a_repeated_rotation_gives_the_one_new_key(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers, server: RealServer
) -> None:
    old = other.admin.create_key().key
    before = {key.access_key for key in other.admin.list_keys()}
    way.lose("POST", lambda: None)
    new = client.admin.rotate_key(old.access_key)
    assert way.lost == 1
    assert {key.access_key for key in other.admin.list_keys()} - before == {new.key.access_key}
    with CloudMlClient(new.key.access_key, new.secret_key, server.endpoint) as owner:
        assert owner.whoami().user


def test_a_repeated_creation_makes_one_organisation_and_one_user(
    client: CloudMlClient, way: LostAnswers
) -> None:
    way.lose("POST", lambda: None)
    assert client.admin.create_org("orchard").name == "orchard"
    way.lose("POST", lambda: None)
    assert client.admin.create_user("olga", role="viewer", org="orchard").role == "viewer"
    assert way.lost == 2
    assert [each.name for each in client.admin.list_users(org="orchard")] == ["olga"]


def test_a_repeated_change_of_a_user_keeps_what_another_set(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.admin.create_user("otto")
    way.lose("PATCH", lambda: other.admin.change_user("otto", role="viewer"))
    user = client.admin.change_user("otto", role="owner")
    assert (way.lost, user.role, other.admin.describe_user("otto").role) == (1, "viewer", "viewer")


def test_a_repeated_change_of_an_organisation_keeps_what_another_set(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    other.admin.create_org("meadow")
    way.lose("PATCH", lambda: other.admin.change_org("meadow", mail="theirs@example.org"))
    assert client.admin.change_org("meadow", mail="mine@example.org").mail == "theirs@example.org"
    assert way.lost == 1


def test_a_repeated_change_of_a_key_keeps_what_another_set(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers
) -> None:
    key = other.admin.create_key().key.access_key
    way.lose("PATCH", lambda: other.admin.change_key(key, enabled=True))
    assert client.admin.change_key(key, enabled=False).enabled
    assert way.lost == 1


def test_a_repeated_application_is_one_and_is_decided_once(
    client: CloudMlClient, way: LostAnswers
) -> None:
    way.lose("POST", lambda: None)
    application = client.quota.apply("jobs", cpu="7", mail="once@example.org")
    assert [each.id for each in client.quota.applications() if each.mail == "once@example.org"] == [
        application.id
    ]
    way.lose("POST", lambda: None)
    assert client.quota.decline(application.id).state == "declined"
    assert way.lost == 2
    with pytest.raises(Conflict, match="the application was declined by"):
        client.quota.approve(application.id)


def test_a_repeated_creation_of_a_token_makes_one_that_works(
    client: CloudMlClient, other: CloudMlClient, way: LostAnswers, server: RealServer
) -> None:
    way.lose("POST", lambda: None)
    made = client.tokens.create(["jobs:read"], expires_in_s=3600, note="lost")
    assert way.lost == 1
    assert [each.id for each in other.tokens.list_tokens() if each.note == "lost"] == [made.info.id]
    with CloudMlClient(token=made.token, endpoint=server.endpoint) as holder:
        assert list(holder.list_train_jobs(limit=1)) is not None


def test_a_repeated_delete_with_a_token_keeps_what_another_wrote(
    other: CloudMlClient, way: LostAnswers, server: RealServer
) -> None:
    other.storage.upload(b"old", URI)
    token = other.tokens.create(["storage:write"], expires_in_s=3600).token
    way.lose("DELETE", lambda: other.storage.upload(b"new", URI))
    with CloudMlClient(token=token, endpoint=way.endpoint) as holder:
        holder.storage.delete(URI)
    assert (way.lost, content(other)) == (1, b"new")
    assert len([line for line in way.requests if line.startswith("DELETE")]) == 2
