"""What a tuner is sent of a study: what is new, and everything where it knows nothing."""

from __future__ import annotations

import json
import random
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.spec import (
    STUDY,
    Goal,
    PriorTrial,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
)
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.tuning.base import Problem, problem_of
from cloud_ml.tuning.history import Histories
from cloud_ml.tuning.known_studies import MOST_STUDIES, ReceivedStudies, SentStudies
from cloud_ml.tuning.program import answer

_NOW = datetime(2026, 1, 31, tzinfo=UTC)


def _record(uid: str = "u1") -> StudyRecord:
    spec = StudySpec(
        job=TrainJob("rates", "local", "local"),
        space=parse_space({"x": {"min": 0.0, "max": 1.0}, "o": ["a", "b"]}),
        metric="loss", goal=Goal.MINIMIZE, algorithm="tpe", max_trials=100, parallel=1,
        max_failed=0, seed=1, local=True,
    )  # fmt: skip
    return Record(
        Key(STUDY.name, "red", "rates", uid), "ann", 1, 1, _NOW, _NOW, spec, StudyStatus()
    )


def _warm(record: StudyRecord) -> StudyRecord:
    """The study, which begins with trials of an earlier one."""
    prior = tuple(PriorTrial(parameters={"x": n / 10, "o": "a"}, costs=(n / 3,)) for n in range(10))
    return replace(record, spec=replace(record.spec, prior=prior))


def _with(record: StudyRecord, *trials: TrialStatus) -> StudyRecord:
    return replace(record, status=StudyStatus(trials=trials))


def _grown(record: StudyRecord, luck: random.Random) -> StudyRecord:
    """The study with one more trial, or with one that has ended."""
    trials = list(record.status.trials)
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    if running and luck.random() < 0.5:
        one = luck.choice(running)
        state = luck.choice((TrialState.COMPLETED, TrialState.FAILED))
        trials[one.number] = replace(one, state=state, value=luck.random())
    else:
        parameters = {"x": luck.random(), "o": luck.choice("ab")}
        trials.append(TrialStatus(number=len(trials), parameters=parameters))
    return _with(record, *trials)


def _sent(question: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(question))
    return read


def _whole(record: StudyRecord) -> Problem:
    return problem_of(record.spec, record.status.trials, len(record.status.trials))


def test_what_is_put_together_is_the_whole_problem() -> None:
    luck, histories = random.Random(1), Histories()
    sent, received = SentStudies(), ReceivedStudies()
    records = {uid: _record(uid) for uid in ("u1", "u2")} | {"u3": _warm(_record("u3"))}
    for _ in range(200):
        uid = luck.choice(list(records))
        records[uid] = record = _grown(records[uid], luck)
        question = sent.question(uid, histories.problem(record))
        assert received.problem(_sent(question)) == _whole(record)
        if luck.random() < 0.03:  # the tuner was replaced
            sent, received = SentStudies(), ReceivedStudies()


def test_a_question_carries_what_is_new_only() -> None:
    luck, histories, sent = random.Random(1), Histories(), SentStudies()
    record = _warm(_record())
    for _ in range(150):
        record = _grown(record, luck)
        question = sent.question("u1", histories.problem(record))
    assert len(question["problem"]["trials"]) == 1
    assert len(json.dumps(question)) < 400


def test_a_tuner_that_lacks_a_study_says_so_and_is_sent_it() -> None:
    histories, sent, received = Histories(), SentStudies(), ReceivedStudies()
    record = _grown(_record(), random.Random(1))
    sent.question("u1", histories.problem(record))
    record = _grown(record, random.Random(2))
    request = {"algorithm": "tpe", **_sent(sent.question("u1", histories.problem(record)))}
    assert answer(request, received) == {"unknown": True}
    sent.forget("u1")
    request = {"algorithm": "tpe", **_sent(sent.question("u1", histories.problem(record)))}
    assert answer(request, received)["parameters"].keys() == {"x", "o"}


def test_few_studies_are_kept_and_the_others_are_sent_again() -> None:
    luck, histories = random.Random(1), Histories()
    sent, received = SentStudies(), ReceivedStudies()
    records = [_grown(_record(f"u{number}"), luck) for number in range(MOST_STUDIES + 3)]
    for _ in range(3):
        for record in records:
            question = sent.question(record.key.uid, histories.problem(record))
            assert "places" not in question
            assert received.problem(_sent(question)) == _whole(record)
    assert len(received._known) == len(sent._sent) == MOST_STUDIES


def test_studies_of_long_values_are_kept_up_to_a_bound_of_bytes() -> None:
    histories, sent = Histories(), SentStudies()
    tracemalloc.start()
    try:
        for number in range(30):
            trials = [
                TrialStatus(number=each, parameters={str(n): chr(0x1F600 + n) * 1000 for n in range(100)})
                for each in range(13)
            ]  # fmt: skip
            uid = f"u{number}"
            sent.question(uid, histories.problem(_with(_record(uid), *trials)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100 << 20  # all of them are 150
