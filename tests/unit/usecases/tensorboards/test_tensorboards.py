"""TensorBoards without processes: what is refused, which folders are shown, and when one pauses."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.auth.application_tickets import (
    make_session,
    make_ticket,
    read_session,
    read_ticket,
)
from cloud_ml.domain.quotas import Amounts, QuotaSpec, excess
from cloud_ml.domain.services.routes import Figures
from cloud_ml.domain.tensorboards.activity import desired_for
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.workloads.outputs import StoredOutputs
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.gateway.used_tickets import UsedTickets
from cloud_ml.models.tracking.tensorboard import TENSORBOARDS
from cloud_ml.tensorboard.run_folders import RunFolder, RunFolders
from support.platform import TRAINER, Served

pytestmark = pytest.mark.anyio

JOB = {"module_name": "trainer.task", "trainer_uri": TRAINER}


@pytest.fixture
def served() -> Any:
    found = Served()
    yield found
    found.close()


async def made(served: Served, **fields: Any) -> Any:
    return await served.member.call("POST", TENSORBOARDS.path, {"name": "curves", **fields})


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 400, ["logdir", "none of them is given"]),
        ({"logdir": "fds://cloudml/a", "jobs": ["one"]}, 400, ["logdir and jobs are given"]),
        ({"logdir": "/etc"}, 400, ["logdir is '/etc'", "fds://bucket/path"]),
        ({"logdir": "fds://cloudml/../x"}, 400, ["logdir"]),
        ({"logdir": "hdfs://cloudml/x"}, 400, ["logdir"]),
        ({"logdir": "fds://nobodys/x"}, 404, ["there is no bucket nobodys"]),
        ({"jobs": ["absent"]}, 404, ["there is no job absent"]),
        ({"jobs": ["plain"]}, 400, ["the job plain writes to no folder of a bucket"]),
        ({"jobs": ["plain", "plain"]}, 400, ["at most 100, each once"]),
        ({"jobs": ["Upper"]}, 400, ["jobs is 'Upper'"]),
        ({"study": "absent"}, 404, ["there is no study absent"]),
        ({"logdir": "fds://cloudml/a", "memory_limit": "much"}, 400, ["memory_limit is 'much'"]),
        ({"log_dir": "fds://cloudml/a"}, 400, ["log_dir", "logdir"]),
        ({"logdir": "fds://cloudml/a", "memory_limit": "999G"}, 400,
         ["memory_limit is 999G, more than this server has: at most 8G"]),
        ({"logdir": "fds://cloudml/a", "cpu_limit": "999"}, 400,
         ["cpu_limit is 999, more than this server has: at most 4 cores"]),
    ],
)  # fmt: skip
async def test_what_cannot_be_shown_is_refused(
    served: Served, fields: dict[str, Any], status: int, words: list[str]
) -> None:
    await served.member.call("POST", "/api/v1/jobs", {"job_name": "plain", **JOB})
    answer = await made(served, **fields)
    assert answer.status == status, answer.text
    assert [word for word in words if word not in answer.text] == []
    assert (await served.member.call("GET", TENSORBOARDS.path)).json()["items"] == []


async def test_jobs_are_shown_under_their_names(served: Served) -> None:
    for name, folder in (("one", "fds://cloudml/runs/one"), ("two", "fds://cloudml/runs/two")):
        request = {"job_name": name, **JOB, "output_path": folder}
        assert (await served.member.call("POST", "/api/v1/jobs", request)).status == 201
    answer = await made(served, jobs=["one", "two"])
    assert answer.status == 201, answer.text
    assert answer.json()["address"].startswith("http://tb-")
    record = served.store.find(TENSORBOARD, "default", "curves")
    assert record is not None
    workload = record.spec.workload
    assert workload.reads_only == ("cloudml",)
    assert workload.program.arguments[1:] == (
        "--name=one", "--folder=fds://cloudml/runs/one",
        "--name=two", "--folder=fds://cloudml/runs/two",
    )  # fmt: skip
    assert len(bytes.fromhex(record.spec.key)) == 32
    assert record.spec.key not in answer.text


async def test_a_repeated_request_makes_one(served: Served) -> None:
    body = {"name": "curves", "logdir": "fds://cloudml/a"}
    headers = {"Idempotency-Key": "once"}
    answers = [
        await served.member.call("POST", TENSORBOARDS.path, body, headers=headers) for _ in range(2)
    ]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json()["uid"] == answers[1].json()["uid"]


async def test_a_ticket_names_the_callers_key(served: Served) -> None:
    uid = (await made(served, logdir="fds://cloudml/a")).json()["uid"]
    opened = (await served.member.call("POST", f"{TENSORBOARDS.path}/curves/open")).json()
    record = served.store.get(TENSORBOARD, uid)
    assert record is not None
    ticket = read_ticket(bytes.fromhex(record.spec.key), opened["url"].partition("ticket=")[2])
    assert ticket is not None
    assert ticket.holder == served.member.identity.access_key
    assert ticket.expires - ticket.issued_ms // 1000 == 60
    assert opened["local"] is True


async def test_a_job_brings_its_own(served: Served) -> None:
    request = {"job_name": "linear", **JOB, "tensorboard_logdir": "fds://cloudml/curves"}
    headers = {"Idempotency-Key": "one"}
    for _ in range(2):
        answer = await served.member.call("POST", "/api/v1/jobs", request, headers=headers)
        assert answer.status in (200, 201), answer.text
    (board,) = (await served.member.call("GET", TENSORBOARDS.path)).json()["items"]
    assert (board["name"], board["phase"]) == ("linear", "Paused")
    assert board["logdir"] == "fds://cloudml/curves"
    request = {"job_name": "other", **JOB, "tensorboard_logdir": "/logs"}
    answer = await served.member.call("POST", "/api/v1/jobs", request)
    assert (answer.status, answer.json()["field"]) == (400, "tensorboard_logdir")


@pytest.mark.parametrize(
    ("desired", "phase", "figures", "follows"),
    [
        (Desired.RUN, Phase.RUNNING, None, Desired.RUN),
        (Desired.RUN, Phase.RUNNING, Figures(quiet_s=59), Desired.RUN),
        (Desired.RUN, Phase.RUNNING, Figures(quiet_s=60), Desired.PAUSED),
        (Desired.RUN, Phase.RUNNING, Figures(quiet_s=60, in_flight=1), Desired.RUN),
        (Desired.RUN, Phase.STARTING, Figures(quiet_s=60), Desired.RUN),
        (Desired.RUN, Phase.QUEUED, Figures(quiet_s=60), Desired.RUN),
        (Desired.PAUSED, Phase.PAUSED, Figures(quiet_s=999), Desired.PAUSED),
        (Desired.PAUSED, Phase.PAUSED, Figures(waiting=1), Desired.RUN),
        (Desired.PAUSED, Phase.STOPPING, Figures(waiting=1), Desired.RUN),
        (Desired.STOPPED, Phase.RUNNING, Figures(quiet_s=60), Desired.STOPPED),
    ],
)
def test_when_one_pauses(
    desired: Desired, phase: Phase, figures: Figures | None, follows: Desired
) -> None:
    assert desired_for(desired, phase, figures, 60) is follows


def test_the_quota_counts_those_that_run() -> None:
    quota = QuotaSpec(tensorboards=2)
    one = Amounts(count=1)
    assert not excess(quota, one, Amounts(count=1), kind="tensorboard")
    (found,) = excess(quota, one, Amounts(count=2), kind="tensorboard")
    assert found.sentence() == "the quota of jobs at once for TensorBoards: 2 of 2 are running"


def test_tickets_and_sessions_are_of_one_key() -> None:
    key, other = bytes(32), bytes([1]) * 32
    ticket = make_ticket(key, "a.b.c", issued_ms=1, expires=2, session_until=3)
    read = read_ticket(key, ticket)
    assert read is not None
    assert (read.holder, read.issued_ms, read.expires, read.session_until) == ("a.b.c", 1, 2, 3)
    session = make_session(key, "a.b.c", 3)
    assert read_session(key, session) is not None
    for wrong in (ticket + "x", ticket[:-1], ticket.replace(".2.", ".9."), session, "", "cat1...."):
        assert read_ticket(key, wrong) is None, wrong
    assert read_ticket(other, ticket) is None
    assert read_session(other, session) is None
    assert read_session(key, ticket) is None


def test_a_ticket_does_not_open_again_in_a_gateway_that_began_within_the_second() -> None:
    key = bytes(32)
    made = make_ticket(key, "a", issued_ms=50_100, expires=110, session_until=200)
    ticket = read_ticket(key, made)
    assert ticket is not None
    assert UsedTickets(lambda: 50.05).use(ticket)
    assert not UsedTickets(lambda: 50.9).use(ticket)


def test_new_trials_are_linked(tmp_path: Any) -> None:
    (study := tmp_path / "study").mkdir()
    (study / "0").mkdir()
    (study / ("n" * 255)).mkdir()
    (study / "elsewhere").symlink_to("/etc")
    (study / "file").touch()
    one = RunFolder("one", tmp_path / "one")
    folders = RunFolders(tmp_path / "runs", [one, RunFolder("s-*", study, each_child=True)])
    folders.make()
    (study / "1").mkdir()
    folders.update()
    linked = {path.name: path.readlink() for path in (tmp_path / "runs").iterdir()}
    assert linked == {"one": tmp_path / "one", "s-0": study / "0", "s-1": study / "1"}
    folders.make()  # of another attempt
    assert len(list((tmp_path / "runs").iterdir())) == 3


async def test_a_job_without_a_folder_shows_its_outputs_when_it_has_ended(served: Served) -> None:
    uid = (await served.submitted(job_name="plain"))["uid"]
    early = await made(served, jobs=["plain"])
    assert (early.status, "when it has ended" in early.text) == (400, True)
    left = StoredOutputs("fds://cloudml/.outputs/plain-1", files=1)
    for phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING):
        served.move(uid, phase)
    served.move(uid, Phase.SUCCEEDED, outputs=left)
    assert (await made(served, jobs=["plain"])).status == 201
    record = served.store.find(TENSORBOARD, "default", "curves")
    assert record is not None
    assert record.spec.workload.program.arguments[1:] == ("--name=plain", f"--folder={left.uri}")


async def test_what_runs_counts_in_the_quota(served: Served) -> None:
    uid = (await made(served, logdir="fds://cloudml/a", memory_limit="1G")).json()["uid"]
    record = served.store.get(TENSORBOARD, uid)
    assert record is not None
    served.store.commit_status(
        TENSORBOARD,
        uid,
        record.status.moved(Phase.STARTING),
        expected_revision=record.revision,
        fence=None,
        now=served.clock(),
    )
    (row,) = (await served.member.original("GET", "/cloud_ml/v1/quota?org_id=1")).json()["data"]
    assert (row["tensorboard_used"], row["total_memory_used"]) == ("1", "1.0G")


@pytest.mark.parametrize(
    ("path", "phase"), [(TENSORBOARDS.path, "Queued"), ("/api/v1/studies", "Completed")]
)
async def test_lists_of_a_state_that_there_is_not_are_refused(
    served: Served, path: str, phase: str
) -> None:
    answer = await served.member.call("GET", f"{path}?phase={phase.upper()},paused")
    assert (answer.status, answer.json()["items"]) == (200, [])
    wrong = await served.member.call("GET", f"{path}?phase=bogus")
    assert (wrong.status, wrong.json()["field"]) == (400, "phase")
    assert phase in wrong.json()["allowed"]
