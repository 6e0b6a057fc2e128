"""The gates of the ledger: one answer for good, and who is still alive behind it."""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import ledger as ledgers
from cloud_ml.engines.local.cleanup import stale_processes
from cloud_ml.engines.local.ledger import Ledger

KEY = GangKey("a1", 1)
DAY_S = 86_400


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path)
    made.create()
    return made


def running() -> ObservedGang:
    return ObservedGang(
        KEY.job_uid,
        KEY.attempt,
        GangState.RUNNING,
        processes=(ObservedProcess("master", 0, running=True),),
    )


def test_an_attempt_is_claimed_once(ledger: Ledger) -> None:
    assert ledger.claim(KEY)
    assert not ledger.claim(KEY)
    assert not ledger.bury(KEY), "a claimed attempt cannot be kept from starting any more"
    assert ledger.observe(KEY) == ObservedGang("a1", 1, GangState.STAGING)


@pytest.mark.parametrize("left", [b"", b"\0" * 110, b'{"pid": 12, "star'])
def test_a_claim_of_which_a_power_cut_left_the_name_only_is_lost_and_bars_the_gang(
    ledger: Ledger, left: bytes
) -> None:
    assert ledger.claim(KEY)
    (ledger.gates / str(KEY)).write_bytes(left)
    assert not ledger.claim(KEY)
    assert not ledger.bury(KEY)
    seen = ledger.observe(KEY)
    assert seen is not None
    assert (seen.state, seen.reason) == (GangState.LOST, Reason.NODE_LOST)


def test_the_words_of_a_tombstone_are_on_the_disk_and_those_of_a_claim_need_not_be(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(os.fstat(descriptor).st_mode))
    assert ledger.claim(KEY)
    assert [stat.S_ISDIR(mode) for mode in forced] == [True]
    assert ledger.bury(GangKey("a1", 2))
    assert [stat.S_ISDIR(mode) for mode in forced] == [True, False, True]


def test_a_claim_names_the_groups_and_so_does_the_file_of_an_older_version(ledger: Ledger) -> None:
    assert ledger.claim(KEY, ["task-1", "task-2"])
    assert stale_processes.group_names(ledger, KEY) == ["task-1", "task-2"]
    older = GangKey("a1", 2)
    assert ledger.claim(older)
    assert stale_processes.group_names(ledger, older) == []
    ledger.attempt_folder(older).mkdir(parents=True)
    (ledger.attempt_folder(older) / "groups").write_text('["task-3"]')
    assert stale_processes.group_names(ledger, older) == ["task-3"]


def test_what_is_buried_never_starts(ledger: Ledger) -> None:
    assert ledger.bury(KEY)
    assert ledger.bury(KEY)
    assert not ledger.claim(KEY)
    assert ledger.observe(KEY) == ObservedGang("a1", 1, GangState.TOMBSTONED)


def test_claim_and_tombstone_race_for_one_gate(ledger: Ledger) -> None:
    for attempt in range(1, 40):
        key, start, won = GangKey("a1", attempt), threading.Barrier(4), []

        def run(
            number: int, key: GangKey = key, start: threading.Barrier = start, won: list[str] = won
        ) -> None:
            start.wait()
            if number % 2 and ledger.claim(key):
                won.append("claim")
            if not number % 2 and ledger.bury(key):
                won.append("tombstone")

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won in (["claim"], ["tombstone", "tombstone"])
        assert ledger.gate(key).claimed is (won == ["claim"])  # type: ignore[union-attr]
    assert ledger.attempts("a1") == list(range(1, 40))


def test_a_machine_that_restarted_has_lost_what_it_ran(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.claim(KEY)
    ledger.report(running())
    assert ledger.observe(KEY) == running()
    monkeypatch.setattr(ledgers, "boot_id", lambda: "another boot")
    found = ledger.observe(KEY)
    assert found is not None
    assert (found.state, found.reason) == (GangState.LOST, Reason.NODE_LOST)
    assert [(one.running, one.reason) for one in found.processes] == [(False, Reason.NODE_LOST)]


def test_another_process_of_the_same_number_is_not_the_supervisor(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.claim(KEY)
    ledger.report(running())
    started = ledgers.process_start(os.getpid()) or 0
    monkeypatch.setattr(ledgers, "process_start", lambda _: started + 1)
    found = ledger.observe(KEY)
    assert found is not None
    assert (found.state, found.reason) == (GangState.LOST, Reason.SUPERVISOR_LOST)


def test_the_report_of_an_older_supervisor_says_less_of_a_restart(ledger: Ledger) -> None:
    again = ObservedProcess("worker", 1, running=True, restarts=1, last_end="code 3")
    ledger.claim(KEY)
    ledger.report(replace(running(), processes=(again,)))
    path = ledger.reports / f"{KEY}.json"
    document = json.loads(path.read_text())
    for name in ("last_reason", "last_exit_code", "last_signal"):
        document["processes"][0].pop(name, None)
    path.write_text(json.dumps(document))
    found = ledger.observe(KEY)
    assert found is not None
    assert found.processes == (again,)


def test_an_end_on_record_stands_whatever_became_of_the_machine(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.claim(KEY)
    ended = ObservedGang("a1", 1, GangState.EXITED, Reason.COMPLETED, "the job completed")
    ledger.report(ended)
    monkeypatch.setattr(ledgers, "boot_id", lambda: "another boot")
    assert ledger.observe(KEY) == ended


@pytest.mark.parametrize(
    "point", ["ledger.write.before", "ledger.forget.begun", "ledger.forget.between"]
)
def test_who_dies_while_forgetting_leaves_no_gang_that_seems_to_live(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Its supervisor lives on, for another gang: without the report it would have seemed to be
    staging for ever.
    """
    assert ledger.claim(KEY)
    ledger.report(replace(running(), state=GangState.EXITED))
    ledger.attempt_folder(KEY).mkdir(parents=True)

    def die(passed: str) -> None:
        if passed == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cloud_ml.engines.local.ledger.failpoints.here", die)
        with pytest.raises(KeyboardInterrupt):
            ledger.forget(KEY.job_uid)
    seen = ledger.observe(KEY)
    assert seen is not None
    assert seen.state.over
    ledger.forget(KEY.job_uid)
    assert ledger.read_report(KEY) is None
    assert not (ledger.jobs / KEY.job_uid).exists()


def test_what_is_forgotten_stays_closed_for_a_week(ledger: Ledger) -> None:
    ledger.claim(KEY)
    ledger.work_folder("a1").mkdir(parents=True)
    gate = ledger.gates / str(KEY)

    def age(days: float) -> None:
        then = gate.stat().st_mtime - days * DAY_S
        os.utime(gate, (then, then))

    age(8)
    ledger.prune()
    assert ledger.attempts("a1") == [1], "the job is not forgotten yet"
    ledger.forget("a1")
    assert not ledger.work_folder("a1").exists()
    age(6)
    ledger.prune()
    assert not ledger.claim(KEY)
    age(2)
    ledger.prune()
    assert ledger.attempts("a1") == []


def test_a_wish_that_takes_the_place_of_one_that_is_read_is_not_lost(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, read = GangKey("job", 1), ledgers.content
    ledger.request_restart(key, "worker-1", 1, 60.0)

    def content(path: str) -> str:
        found = read(path)
        if not ledger.restarts.joinpath(f"{key}.worker-1.seen").exists():
            ledger.restarts.joinpath(f"{key}.worker-1.seen").touch()
            ledger.request_restart(key, "worker-1", 2, 0.1)
        return found

    monkeypatch.setattr(ledgers, "content", content)
    assert ledger.take_restart_requests(key, ["worker-1"]) == [("worker-1", 1, 60.0)]
    assert ledger.take_restart_requests(key, ["worker-1"]) == [("worker-1", 2, 0.1)]
    assert ledger.take_restart_requests(key, ["worker-1"]) == []
    assert [file.name for file in ledger.restarts.glob(".*")] == []
