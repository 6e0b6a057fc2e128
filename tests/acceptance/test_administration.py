"""Organisations, keys, quotas and the audit log as those meet them who manage a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest, NotFound, QuotaExceeded, Unauthenticated
from cloud_ml.models.admin.quota import LimitsChange
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer, eventually, trainer

UNTIL_GO = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""


@pytest.fixture
def olga(server: RealServer, client: CloudMlClient) -> Iterator[CloudMlClient]:
    """The owner of vision, an organisation that is made once."""
    if "vision" not in [org.name for org in client.admin.list_orgs()]:
        server.cli("admin", "orgs", "create", "vision").good()
        server.cli("admin", "users", "create", "olga", "--role", "owner", "--org", "vision").good()
    made = client.admin.create_key("olga", org="vision")
    with CloudMlClient(made.key.access_key, made.secret_key, server.endpoint) as owner:
        yield owner
    client.admin.revoke_key(made.key.access_key)


def test_from_an_empty_organisation_to_a_key_that_works(
    server: RealServer, olga: CloudMlClient
) -> None:
    assert (olga.whoami().org, olga.whoami().role) == ("vision", "owner")
    olga.admin.create_user("max", role="viewer")
    keys = {
        "CLOUDML_ACCESS_KEY": (made := olga.admin.create_key("max")).key.access_key,
        "CLOUDML_SECRET_KEY": made.secret_key,
    }
    assert "viewer" in server.cli("whoami", **keys).good().out
    refused = server.cli("storage", "mb", "scratch", **keys)
    assert refused.code == 1
    assert "max is a viewer and may look, but change nothing\n" in refused.err
    assert "allowed: admin or owner or member (code: forbidden)" in refused.err
    assert server.cli("admin", "users", "list", **keys).code == 1
    listed = server.cli("admin", "keys", "list", **keys)
    assert made.key.access_key in listed.good().out
    assert made.secret_key not in listed.out
    olga.admin.delete_user("max")
    assert server.cli("whoami", **keys).code == 1


def test_an_admin_ends_the_jobs_of_a_disabled_organisation(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    source = str(trainer(tmp_path / "source", "import time; time.sleep(300)"))
    server.cli("admin", "orgs", "create", "robotics").good()
    server.cli("admin", "users", "create", "ada", "--role", "owner", "--org", "robotics").good()
    made = client.admin.create_key("ada", org="robotics")
    keys = {"CLOUDML_ACCESS_KEY": made.key.access_key, "CLOUDML_SECRET_KEY": made.secret_key}
    with CloudMlClient(made.key.access_key, made.secret_key, server.endpoint) as ada:
        for name in ("first", "second"):
            ada.submit_train_job(TrainJob(name, "trainer.task", source))
        other = server.cli("jobs", "cancel", "first", "--org", "default", **keys)
        assert (other.code, "there is no organisation default" in other.err) == (1, True)
    server.cli("admin", "orgs", "disable", "robotics").good()
    assert "first" in server.cli("jobs", "list", "--org", "robotics").good().out
    assert server.cli("jobs", "cancel", "first").code == 1
    server.cli("jobs", "cancel", "first", "--org", "robotics").good()
    described = server.cli("jobs", "describe", "first", "--org", "robotics").good().out
    assert "ada of robotics" in described
    server.cli("jobs", "logs", "first", "--org", "robotics").good()
    asks = server.cli("jobs", "delete", "--all", "--org", "robotics")
    assert "all 2 jobs of the organisation robotics" in asks.err
    server.cli("jobs", "delete", "--all", "--org", "robotics", "--yes", "--wait").good()
    robotics = client.for_org("robotics")
    assert list(robotics.list_train_jobs()) == []
    with pytest.raises(InvalidRequest, match="reads, cancels, stops and deletes"):
        robotics.submit_train_job(TrainJob("third", "trainer.task", source))
    assert client.whoami().org == "default"
    with pytest.raises(NotFound, match="there is no organisation nowhere"):
        client.for_org("nowhere")
    server.cli("admin", "orgs", "enable", "robotics").good()
    with (
        CloudMlClient(made.key.access_key, made.secret_key, server.endpoint) as ada,
        pytest.raises(NotFound, match="only an administrator may name another"),
    ):
        ada.for_org("default")


def test_a_program_with_a_narrow_token_runs_a_script(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("print('trained')\n")
    made = server.cli(
        "token", "create", "--scope", "jobs:write,storage:write", "--for", "1h"
    ).good()
    token = {"CLOUDML_ENDPOINT": server.endpoint, "CLOUDML_TOKEN": made.out}
    home = tmp_path / "home"
    home.mkdir()
    ran = server.cli("run", "task.py", "--name", "from-ci", folder=tmp_path, home=home, **token)
    assert "trained" in ran.good().out
    refused = server.cli("models", "list", home=home, **token)
    assert (refused.code, "models:read" in refused.err) == (1, True)
    server.cli("token", "revoke", made.out.split("_")[1]).good()
    ended = server.cli("jobs", "list", home=home, **token)
    assert (ended.code, "was revoked" in ended.err) == (1, True)
    assert made.out.strip().rpartition("_")[2] not in ran.err + refused.err + ended.err


@pytest.mark.slow
def test_a_rotated_key_and_its_successor_work_until_one_is_revoked(
    server: RealServer, olga: CloudMlClient
) -> None:
    first = olga.admin.create_key()
    old = {"CLOUDML_ACCESS_KEY": first.key.access_key, "CLOUDML_SECRET_KEY": first.secret_key}
    ran = server.cli(
        "admin", "keys", "rotate", first.key.access_key, "--overlap", "1h", "-o", "json", **old
    ).good()
    made = ran.json()
    new = {
        "CLOUDML_ACCESS_KEY": made["key"]["access_key"],
        "CLOUDML_SECRET_KEY": made["secret_key"],
    }
    for keys in (old, new):
        server.cli("whoami", **keys).good()
    assert olga.admin.describe_key(first.key.access_key).expires_at is not None
    server.cli("admin", "keys", "disable", first.key.access_key, **new).good()
    refused = server.cli("whoami", **old)
    assert (refused.code, "unauthenticated" in refused.err) == (1, True)
    server.cli("whoami", **new).good()
    server.cli(
        "admin", "keys", "revoke", first.key.access_key, new["CLOUDML_ACCESS_KEY"], **new
    ).good()
    assert server.cli("whoami", **new).code == 1


def test_what_is_disabled_is_out_and_runs_on(
    client: CloudMlClient, olga: CloudMlClient, code: Callable[..., str], tmp_path: Path
) -> None:
    job = olga.submit_train_job(
        TrainJob("goes-on", "trainer.task", code(UNTIL_GO), job_args=[str(tmp_path / "go")])
    )
    client.admin.change_org("vision", enabled=False)
    with pytest.raises(Unauthenticated):
        olga.whoami()
    client.admin.change_org("vision", enabled=True)
    assert not olga.describe_train_job("goes-on").finished
    olga.cancel_train_job("goes-on")
    assert job.wait(60).reason == "Cancelled"


def test_foreign_names_are_as_absent_as_missing_ones(
    server: RealServer, olga: CloudMlClient
) -> None:
    keys = {
        "CLOUDML_ACCESS_KEY": (made := olga.admin.create_key()).key.access_key,
        "CLOUDML_SECRET_KEY": made.secret_key,
    }
    for words in (
        ("orgs", "describe", "{org}"),
        ("users", "list", "--org", "{org}"),
        ("users", "disable", "admin", "--org", "{org}"),
        ("quota", "list", "{org}"),
        ("audit", "--org", "{org}"),
    ):
        messages = []
        for org in ("default", "nowhere"):
            ran = server.cli("admin", *(word.format(org=org) for word in words), **keys)
            assert ran.code == 1
            messages.append(ran.err.replace(org, "<org>"))
        assert messages[0] == messages[1]
        assert "there is no organisation" in messages[0]
    with pytest.raises(NotFound):
        olga.admin.describe_key(server.credentials["access_key"])
    olga.admin.revoke_key(made.key.access_key)


def test_a_job_over_its_quota_says_so_waits_and_starts_when_the_quota_is_raised(
    server: RealServer,
    client: CloudMlClient,
    olga: CloudMlClient,
    code: Callable[..., str],
    tmp_path: Path,
) -> None:
    go = str(tmp_path / "go")
    limits = LimitsChange(count="1", cpu="1")
    client.quota.set("vision", train=limits)
    with pytest.raises(QuotaExceeded) as caught:
        olga.submit_train_job(TrainJob("never", "trainer.task", code("pass"), cpu_limit="1.5"))
    assert (caught.value.field, caught.value.value, caught.value.allowed) == (
        "cpu_limit",
        "1.5",
        "at most 1 core",
    )
    first, second = (
        olga.submit_train_job(
            TrainJob(name, "trainer.task", code(UNTIL_GO), job_args=[go], cpu_limit="0.1")
        )
        for name in ("has-room", "waits")
    )
    eventually(lambda: olga.describe_train_job("has-room").phase == "Running", "the first job runs")
    eventually(
        lambda: olga.describe_train_job("waits").reason == "QuotaExceeded",
        "the second says why it waits",
    )
    waiting = olga.describe_train_job("waits")
    assert (waiting.phase, waiting.message) == (
        "Queued",
        "the quota of jobs at once for train jobs: 1 of 1 are running",
    )
    shown = server.cli("admin", "quota", "list", "vision").good().out
    assert "1 / 1" in shown
    assert "0.1 / 1" in shown
    server.cli("admin", "quota", "set", "vision", "--count", "unlimited").good()
    eventually(lambda: olga.describe_train_job("waits").phase == "Running", "the second runs")
    for job in (first, second):
        olga.cancel_train_job(job.name)
        job.wait(60)
    client.quota.set("vision", train=LimitsChange(cpu="default", count="default"))


def test_a_job_that_a_lowered_quota_can_never_hold_is_told_so_and_holds_up_nobody(
    server: RealServer,
    client: CloudMlClient,
    olga: CloudMlClient,
    code: Callable[..., str],
    tmp_path: Path,
) -> None:
    source = code(UNTIL_GO)

    def submit(name: str, cpu: str) -> None:
        arguments = [str(tmp_path / "go")]
        olga.submit_train_job(
            TrainJob(name, "trainer.task", source, job_args=arguments, cpu_limit=cpu)
        )

    def phase(name: str) -> str:
        return str(olga.describe_train_job(name).phase)

    server.cli("admin", "quota", "set", "vision", "--cpu", "2", "--count", "1").good()
    submit("runs", "0.5")
    eventually(lambda: phase("runs") == "Running", "the first job runs")
    submit("too-large", "1.5")
    submit("behind", "0.1")
    eventually(
        lambda: olga.describe_train_job("behind").reason == "QuotaExceeded", "the last one waits"
    )
    server.cli("admin", "quota", "set", "vision", "--cpu", "1", "--count", "4").good()
    eventually(lambda: phase("behind") == "Running", "the last one runs")
    eventually(
        lambda: (
            olga.describe_train_job("too-large").message
            == "the job can never start while the quota stays as it is: the quota of cpu for train "
            "jobs is 1 core, and the job asks for 1.5 cores"
        ),
        "the one between is told that it cannot start",
    )
    assert phase("too-large") == "Queued"
    olga.cancel_train_job("runs")
    server.cli("admin", "quota", "set", "vision", "--cpu", "2").good()
    eventually(lambda: phase("too-large") == "Running", "the quota grew again")
    olga.cancel_train_job("too-large")
    olga.cancel_train_job("behind")
    eventually(lambda: phase("too-large") == phase("behind") == "Stopped", "both have ended")
    client.quota.set("vision", train=LimitsChange(cpu="default", count="default"))


def test_an_application_is_sent_listed_and_approved(
    server: RealServer, olga: CloudMlClient
) -> None:
    made = olga.quota.apply("jobs", cpu="16", memory="64G", gpu="0")
    assert made.id in server.cli("admin", "quota", "applications").good().out
    server.cli("admin", "quota", "approve", made.id).good()
    assert olga.quota.show()[0].items[0].cpu_limit == 16
    server.cli(
        "admin", "quota", "set", "vision", "-c", "default", "-M", "default", "-g", "default"
    ).good()


def test_the_audit_log_tells_who_did_it_and_what_was_refused(
    server: RealServer, olga: CloudMlClient
) -> None:
    server.cli("admin", "users", "create", "eve", "--org", "vision").good()
    server.cli("admin", "users", "delete", "eve", "--org", "vision").good()
    assert server.cli("admin", "users", "delete", "eve", "--org", "vision").code == 1
    ran = server.cli("admin", "audit", "--target", "eve", "--limit", "3", "-o", "json").good()
    assert [(one["operation"], one["outcome"]) for one in ran.json()] == [
        ("admin.delete_user", "not_found"),
        ("admin.delete_user", "done"),
        ("admin.create_user", "done"),
    ]
    assert {(one["user"], one["address"], one["target"]) for one in ran.json()} == {
        ("admin", "127.0.0.1", "eve@vision")
    }
    assert "eve@vision" in server.cli("admin", "audit", "--operation", "admin.").good().out
    assert all(line.org == "vision" for line in olga.admin.audit(limit=20))
    empty = server.cli("admin", "audit", "--operation", "studies.").good()
    assert "No entry meets these conditions." in empty.err
    misspelt = server.cli("admin", "audit", "--operation", "job.")
    assert (misspelt.code, "Did you mean jobs.?" in misspelt.err) == (1, True)
    wrong = server.cli("admin", "audit", "--outcome", "forbiden")
    assert (wrong.code, "Did you mean forbidden?" in wrong.err) == (1, True)


def test_the_audit_log_tells_from_what_to_what(server: RealServer, olga: CloudMlClient) -> None:
    del olga  # it has made the organisation
    server.cli("admin", "users", "create", "ida", "--org", "vision").good()
    server.cli("admin", "users", "update", "ida", "--role", "owner", "--org", "vision").good()
    server.cli("admin", "quota", "set", "vision", "--type", "models", "--cpus", "3").good()
    server.cli("admin", "quota", "set", "vision", "-t", "model", "-c", "default").good()
    found = (
        server.cli("admin", "audit", "--operation", "quota.update", "--limit", "2", "-o", "json")
        .good()
        .json()
    )
    assert [one["change"] for one in found] == ["model.cpu: 3 → not set", "model.cpu: not set → 3"]
    assert "role: member → owner" in server.cli("admin", "audit", "--target", "ida").good().out


def test_one_value_of_an_application_may_be_given_alone(
    server: RealServer, olga: CloudMlClient
) -> None:
    server.cli(
        "admin", "quota", "set", "vision", "--type", "jobs", "--cpu", "2", "--memory", "8G"
    ).good()
    made = olga.quota.apply("jobs", memory="16G")
    assert (made.cpu, made.memory, made.gpu) == (None, 16 << 30, None)
    server.cli("admin", "quota", "approve", made.id).good()
    line = next(one for one in olga.quota.show()[0].items if one.kind == "train")
    assert (line.cpu_limit, line.memory_limit) == (2.0, 16 << 30)
    with pytest.raises(InvalidRequest, match="no limit is given"):
        olga.quota.apply("jobs")
    nothing = server.cli("quota", "update", "-t", "models")
    assert (nothing.code, "--cpu, --memory or --gpu" in nothing.err) == (2, True)
    listed = server.cli("quota", "list").good().out
    assert re.search(r"^KIND .*\njobs .*\nmodels .*\ndev .*\ntotal ", listed)
    server.cli("admin", "quota", "set", "vision", "-c", "default", "-M", "default").good()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("users", "create", "Bad Name"), ["name", "'Bad Name'", "lower-case"]),
        (("users", "create", "eve", "--role", "boss"), ["boss", "viewer"]),
        (("keys", "rotate", "AK0", "--overlap", "soon"), ["soon", "30m"]),
        (("keys", "create", "nobody"), ["there is no user nobody"]),
        (("quota", "set", "default", "-M", "100MB"), ["cloudml: memory is '100MB'", "16G"]),
        (("quota", "set", "default"), ["nothing to change"]),
        (("orgs", "delete", "default"), ["default", "disable it first"]),
        (("users", "delete", "admin"), ["last one"]),
        (("audit", "--since", "yesterday"), ["yesterday"]),
    ],
)
def test_wrong_words_are_answered_with_what_is_right(
    server: RealServer, words: tuple[str, ...], expected: list[str]
) -> None:
    ran = server.cli("admin", *words)
    assert ran.code in (1, 2)
    assert [word for word in expected if word not in ran.err] == [], ran.err
    assert "Traceback" not in ran.err
