"""What follows for a study: its trials begin once each, and their ends end it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.studies.decide import (
    AskTuner,
    ObservedTrials,
    StartTrial,
    StopTrial,
    TrialJob,
    decide,
)
from cloud_ml.domain.studies.ranking import best_of
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.domain.studies.spec import (
    Goal,
    StudyPhase,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialState,
    TrialStatus,
    seeded,
)
from cloud_ml.domain.studies.stopping import Stopper
from cloud_ml.domain.studies.values import Suggestion
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.tuning.algorithms import suggest

NOW = datetime(2026, 11, 25, tzinfo=UTC)
_JOB = TrainJob("linear", "trainer.task", "fds://bucket/trainer.whl")


def study_record(**changes: object) -> StudyRecord:
    fields: dict[str, object] = {
        "job": _JOB, "space": parse_space({"lr": {"min": 0.0, "max": 1.0}}), "metric": "loss",
        "goal": Goal.MINIMIZE, "algorithm": "random", "max_trials": 4, "parallel": 2,
        "max_failed": 1, "seed": 0,
    }  # fmt: skip
    spec = StudySpec(**{**fields, **changes})  # type: ignore[arg-type]
    key = Key("study", "org", "linear", "u1")
    return Record(key, "mei", 1, 1, NOW, NOW, spec, StudyStatus())


def _settled(record: StudyRecord, jobs: Mapping[int, TrialJob]) -> tuple[StudyRecord, list[object]]:
    """The study when it has nothing more to commit, and what it does then."""
    while (decision := decide(record, ObservedTrials(jobs), NOW, suggest)).status is not None:
        record = dataclasses.replace(record, status=decision.status)
    return record, list(decision.actions)


def _done(value: float | None, *, ok: bool = True) -> TrialJob:
    return TrialJob(over=True, succeeded=ok, message="" if ok else "exit 1", value=value, step=9)


def _started(actions: Sequence[object]) -> list[int]:
    return [action.trial.number for action in actions if isinstance(action, StartTrial)]


def test_as_many_trials_begin_as_may_run_at_a_time() -> None:
    jobs: dict[int, TrialJob] = {}
    record = study_record(max_trials=4, parallel=2)
    for number in range(2):
        record, actions = _settled(record, jobs)
        assert _started(actions) == [number]
        again, repeated = _settled(record, jobs)
        assert (again, repeated) == (record, actions), "a server that was killed says the same"
        jobs[number] = TrialJob()
    record, actions = _settled(record, jobs)
    assert (len(record.status.trials), _started(actions)) == (2, [])


def test_only_one_trial_at_a_time_waits_for_room() -> None:
    running, queued = TrialJob(), TrialJob(waits=True)
    record, _ = _settled(study_record(max_trials=9, parallel=8), {})
    record, actions = _settled(record, {0: queued})
    assert (len(record.status.trials), _started(actions)) == (1, [])
    record, actions = _settled(record, {0: running})
    assert _started(actions) == [1]
    record, actions = _settled(record, {0: running, 1: queued})
    assert (len(record.status.trials), _started(actions)) == (2, [])
    record, actions = _settled(record, {0: _done(0.5), 1: running})
    assert _started(actions) == [2]


def test_the_trials_of_an_original_tuning_begin_all_at_once() -> None:
    _, actions = _settled(study_record(parallel=4, original=True), {})
    assert _started(actions) == [0, 1, 2, 3]


def test_the_tuner_is_asked_where_it_takes_more_than_a_function() -> None:
    record, jobs = study_record(algorithm="gp", max_trials=9, parallel=1), {}
    for number in range(4):
        jobs[number] = _done(float(number))
        record, actions = _settled(record, jobs)
    assert actions == [AskTuner(4)]
    seen = ObservedTrials(jobs, suggested={4: Suggestion({"lr": 0.5}, "it ended")})
    decision = decide(record, seen, NOW, suggest)
    assert decision.status is not None
    assert decision.status.trials[4].parameters == {"lr": 0.5}
    assert [(event.reason, event.message) for event in decision.events] == [
        ("TunerFailed", "it ended")
    ]
    stale = ObservedTrials(jobs, suggested={3: Suggestion({"lr": 0.5})})
    assert decide(record, stale, NOW, suggest).actions == [AskTuner(4)]


def test_the_tuner_is_asked_ahead_while_all_places_are_taken() -> None:
    record, jobs = study_record(algorithm="gp", max_trials=6, parallel=2), {}
    for number in range(4):
        jobs[number] = _done(float(number))
        record, _ = _settled(record, jobs)
    seen = ObservedTrials(jobs, suggested={4: Suggestion({"lr": 0.5})})
    begun = decide(record, seen, NOW, suggest)
    assert begun.status is not None
    record = dataclasses.replace(record, status=begun.status)
    jobs[4] = TrialJob()
    record, actions = _settled(record, jobs)
    assert actions == [AskTuner(5)]
    waiting = {**jobs, 4: TrialJob(waits=True)}
    assert _settled(record, waiting)[1] == [AskTuner(5, ahead=True)]
    only = dataclasses.replace(record, spec=dataclasses.replace(record.spec, parallel=1))
    actions = decide(only, ObservedTrials(jobs), NOW, suggest).actions
    assert AskTuner(5, ahead=True) in actions
    known = ObservedTrials(jobs, suggested={5: Suggestion({"lr": 0.6})})
    assert decide(only, known, NOW, suggest).status is None, "there is no place for it yet"


def test_a_study_ends_with_its_best_trial() -> None:
    record, jobs = study_record(), {}
    for number, value in enumerate([3.0, 1.0, 2.0, 1.0]):
        jobs[number] = _done(value)
        record, _ = _settled(record, jobs)
    assert record.status.phase is StudyPhase.COMPLETED
    best = best_of(record.spec, record.status.trials)
    assert best is not None
    assert (best.number, best.value, best.step) == (1, 1.0, 9)
    assert "1" in record.status.message
    most = dataclasses.replace(record.spec, goal=Goal.MAXIMIZE)
    largest = best_of(most, record.status.trials)
    assert largest is not None
    assert largest.number == 0


def test_each_end_has_a_state() -> None:
    jobs = {0: _done(None), 1: _done(float("nan")), 2: TrialJob(over=True, stopped=True)}
    record, _ = _settled(study_record(max_failed=4, parallel=4), jobs)
    record, actions = _settled(record, {**jobs, 3: TrialJob()})
    assert actions == []
    record, _ = _settled(record, jobs)  # somebody deleted the job of the last one
    assert [trial.state for trial in record.status.trials] == [
        TrialState.METRIC_MISSING,
        TrialState.INFEASIBLE,
        TrialState.STOPPED,
        TrialState.DELETED,
    ]
    assert (record.status.phase, record.status.reason) == (StudyPhase.FAILED, "NoTrialCompleted")


def test_a_missing_metric_is_told_beside_what_was_reported() -> None:
    reported = TrialJob(
        over=True, succeeded=True, reported={"accuracy": "report", "val_loss": "event_file"}
    )
    jobs = {0: reported, 1: _done(None)}
    record, _ = _settled(study_record(max_failed=4), jobs)
    assert [trial.message for trial in record.status.trials[:2]] == [
        "its job reported no loss, but val_loss (event files), accuracy (job.report); name one of "
        "them as the objective, find it by --metric-pattern, or print lines such as loss=0.25",
        "its job reported no loss, nor any other metric: name as the objective what it prints, find it "
        "by --metric-pattern (job.metric_patterns), print loss=0.25, call cloud_ml.job.report, or "
        "write TensorBoard event files",
    ]


def test_a_metric_that_the_log_lacks_is_told_beside_its_patterns() -> None:
    record = study_record(max_failed=4, job=TrainJob("rates", "m", "t", metric_patterns=["keras"]))
    record, _ = _settled(record, {0: _done(None)})
    message = record.status.trials[0].message
    assert ": no line of the log matches metric_patterns, there was no call of" in message


def test_a_job_without_any_metric_is_told_what_it_printed_last() -> None:
    printed = dataclasses.replace(_done(None), last_line="acc 0.5")
    record, _ = _settled(study_record(max_failed=4), {0: printed})
    message = "nor any other metric (its log ends with 'acc 0.5'): name as the objective what it"
    assert message in record.status.trials[0].message


def test_too_many_failures_stop_what_runs_and_fail_the_study() -> None:
    record = _begun(study_record(max_failed=0), 2)
    jobs = {0: _done(None, ok=False), 1: TrialJob()}
    record, actions = _settled(record, jobs)
    assert record.status.phase is StudyPhase.STOPPING
    assert actions == [StopTrial(1)]
    record, actions = _settled(record, {**jobs, 1: TrialJob(over=True, stopped=True)})
    assert (record.status.phase, actions) == (StudyPhase.FAILED, [])
    assert "exit 1" in record.status.message


def test_a_study_that_is_stopped_stops_its_trials_and_begins_none() -> None:
    record, _ = _settled(study_record(), {0: TrialJob()})
    assert len(record.status.trials) == 2
    record = dataclasses.replace(record, spec=dataclasses.replace(record.spec, stopped=True))
    record, actions = _settled(record, {0: TrialJob()})
    assert record.status.phase is StudyPhase.STOPPING
    assert actions == [StopTrial(0)]
    assert record.status.trials[1].state is TrialState.STOPPED, "its job was not there yet"
    record, actions = _settled(record, {0: TrialJob(over=True, stopped=True)})
    assert (record.status.phase, actions) == (StudyPhase.STOPPED, [])
    assert len(record.status.trials) == 2


def test_a_refused_job_is_a_failed_trial() -> None:
    record, _ = _settled(study_record(max_failed=0, parallel=1), {})
    decision = decide(record, ObservedTrials({}, {0: "the quota has no room"}), NOW, suggest)
    assert decision.status is not None
    assert decision.status.trials[0].state is TrialState.FAILED
    assert [event.message for event in decision.events] == [
        "linear-hp-0 is Failed: the quota has no room"
    ]


@given(
    values=st.lists(st.one_of(st.none(), st.floats()), min_size=6, max_size=6),
    order=st.permutations(range(6)),
    parallel=st.integers(1, 6),
)
def test_whatever_ends_in_whatever_order_each_trial_begins_once(
    values: list[float | None], order: list[int], parallel: int
) -> None:
    record, jobs = (
        study_record(max_trials=6, parallel=parallel, max_failed=6),
        dict[int, TrialJob](),
    )
    begun: list[int] = []
    while True:
        record, actions = _settled(record, jobs)
        for action in actions:
            assert isinstance(action, StartTrial)
            begun.append(action.trial.number)
            jobs[action.trial.number] = TrialJob()
        running = [number for number in order if number in jobs and not jobs[number].over]
        if not running:
            break
        assert len(running) <= parallel
        jobs[running[0]] = _done(values[running[0]])
    assert begun == list(range(6))
    assert record.status.phase.over


def test_chance_repeats_no_trial_while_there_is_another() -> None:
    space = parse_space({"layers": {"min": 1, "max": 3, "type": "int"}, "o": ["a", "b"]})
    spec, history = study_record(space=space, max_trials=6).spec, list[TrialStatus]()
    for number in range(6):
        drawn = suggest(spec, history, number)
        assert drawn is not None
        history.append(TrialStatus(number=number, parameters=dict(drawn.parameters)))
    assert len({tuple(trial.parameters.values()) for trial in history}) == 6


def test_studies_without_a_seed_differ() -> None:
    one = study_record(seed=None)
    other = dataclasses.replace(one, key=dataclasses.replace(one.key, uid="u2"))
    assert suggest(seeded(one), (), 0) == suggest(seeded(one), (), 0)
    assert suggest(seeded(one), (), 0) != suggest(seeded(other), (), 0)


def test_the_same_seed_and_number_give_the_same_trial() -> None:
    one, other = study_record(seed=1).spec, study_record(seed=2).spec
    assert suggest(one, (), 3) == suggest(one, (), 3)
    assert suggest(one, (), 3) != suggest(one, (), 4)
    assert suggest(one, (), 3) != suggest(other, (), 3)


def _begun(record: StudyRecord, count: int) -> StudyRecord:
    """The study with so many trials whose jobs run."""
    record, _ = _settled(record, {})
    return _settled(record, {number: TrialJob() for number in range(count)})[0]


def test_a_trial_that_does_badly_is_stopped_and_counts() -> None:
    record = _begun(study_record(stopper=Stopper(name="threshold", above=1.0), max_trials=2), 2)
    jobs = {0: TrialJob(), 1: TrialJob()}
    seen = ObservedTrials(jobs, curves={0: [Point(1, 1, 0.5)], 1: [Point(1, 1, 2.0)]})
    decision = decide(record, seen, NOW, suggest)
    assert decision.status is not None, "the wish is committed first"
    record = dataclasses.replace(record, status=decision.status)
    for _ in range(2):  # also a server that starts again stops it
        assert decide(record, ObservedTrials(jobs), NOW, suggest).actions == [StopTrial(1)]
    stopped = TrialJob(over=True, stopped=True, value=2.0, step=1)
    record, _ = _settled(record, {0: _done(0.5), 1: stopped})
    first, second = record.status.trials
    assert (second.state, second.value) == (TrialState.EARLY_STOPPED, 2.0)
    assert "threshold" in second.message
    assert (record.status.phase, record.status.reason) == (StudyPhase.COMPLETED, "Completed")
    best = best_of(record.spec, record.status.trials)
    assert best == first


def test_one_that_ends_well_before_it_is_stopped_has_completed() -> None:
    record = _begun(study_record(stopper=Stopper(name="threshold", above=1.0)), 2)
    seen = ObservedTrials({0: TrialJob(), 1: TrialJob()}, curves={1: [Point(1, 1, 2.0)]})
    decision = decide(record, seen, NOW, suggest)
    assert decision.status is not None
    record, _ = _settled(
        dataclasses.replace(record, status=decision.status), {0: TrialJob(), 1: _done(2.0)}
    )
    assert record.status.trials[1].state is TrialState.COMPLETED


def test_more_is_better_turns_curves() -> None:
    stopper = Stopper(name="threshold", below=0.5)
    record = _begun(study_record(stopper=stopper, goal=Goal.MAXIMIZE), 2)
    seen = ObservedTrials(
        {0: TrialJob(), 1: TrialJob()}, curves={0: [Point(1, 1, -0.9)], 1: [Point(1, 1, -0.1)]}
    )
    decision = decide(record, seen, NOW, suggest)
    assert decision.status is not None
    assert [bool(trial.stopping) for trial in decision.status.trials] == [False, True]


def test_a_target_ends_the_study_and_what_runs() -> None:
    record = _begun(study_record(target=0.5), 2)
    record, actions = _settled(record, {0: _done(0.4), 1: TrialJob()})
    assert (record.status.phase, actions) == (StudyPhase.STOPPING, [StopTrial(1)])
    record, _ = _settled(record, {1: TrialJob(over=True, stopped=True)})
    assert (record.status.phase, record.status.reason) == (StudyPhase.COMPLETED, "TargetReached")


def test_a_study_ends_when_its_time_is_over() -> None:
    record = _begun(study_record(max_time_s=60.0), 2)
    jobs = {0: TrialJob(), 1: TrialJob()}
    waiting = decide(record, ObservedTrials(jobs), NOW, suggest)
    assert waiting.requeue_at == NOW + timedelta(seconds=60)
    late = decide(record, ObservedTrials(jobs), NOW + timedelta(seconds=61), suggest)
    assert late.status is not None
    assert (late.status.phase, late.status.reason) == (StudyPhase.STOPPING, "MaxTimeReached")
    assert late.status.message.startswith("max_time of 1m is over, and no trial completed with")


def test_trials_that_fail_alike_end_the_study_with_their_words() -> None:
    failing = {
        number: dataclasses.replace(_done(None, ok=False), message=f"exit {number}")
        for number in range(3)
    }
    record = study_record(max_failed=9, max_trials=9, same_failures=3, parallel=1)
    for _ in range(4):
        record, _ = _settled(record, failing)
    assert (record.status.phase, record.status.reason) == (StudyPhase.FAILED, "SameFailure")
    assert "exit 2" in record.status.message
    assert len(record.status.trials) == 3
    failing[1] = dataclasses.replace(failing[1], message="killed")
    record, _ = _settled(
        study_record(max_failed=9, max_trials=9, same_failures=3, parallel=1), failing
    )
    assert record.status.phase is StudyPhase.RUNNING


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_failed": 0, "same_failures": 0}, "1 trial failed: exit 1"),
        ({"max_failed": 1, "same_failures": 0}, "2 trials failed, the last: exit 1"),
        ({"max_failed": 9, "same_failures": 1}, "the last trial failed: exit 1"),
        ({"max_failed": 9, "same_failures": 2}, "the last 2 trials failed alike: exit 1"),
    ],
)
def test_a_study_that_fails_counts_in_plain_words(limits: dict[str, int], message: str) -> None:
    failing = {
        number: dataclasses.replace(_done(None, ok=False), message="exit 1") for number in range(2)
    }
    record = study_record(max_trials=9, parallel=1, **limits)
    for _ in range(3):
        record, _ = _settled(record, failing)
    assert (record.status.phase, record.status.message) == (StudyPhase.FAILED, message)


def test_a_study_that_fails_says_why_also_after_its_other_trials_are_stopped() -> None:
    record = _begun(study_record(max_failed=9, max_trials=4, same_failures=3, parallel=2), 2)
    jobs = {0: _done(None), 1: _done(None), 2: TrialJob(), 3: TrialJob()}
    record, _ = _settled(record, jobs)
    jobs[2] = _done(None)
    record, actions = _settled(record, jobs)
    assert (record.status.phase, actions) == (StudyPhase.STOPPING, [StopTrial(3)])
    jobs[3] = TrialJob(over=True, stopped=True, message="cancelled")
    record, _ = _settled(record, jobs)
    assert (record.status.phase, record.status.reason) == (StudyPhase.FAILED, "SameFailure")
    assert "reported no loss" in record.status.message


def test_a_study_without_a_completed_trial_says_why_of_the_last_one() -> None:
    for value, message in ((None, "name as the objective what it prints"),
                        (float("nan"), "its last value is nan")):  # fmt: skip
        study = study_record(max_failed=9, max_trials=2)
        record, _ = _settled(study, dict.fromkeys(range(2), _done(value)))
        assert record.status.reason == "NoTrialCompleted"
        assert "of the last one: " in record.status.message
        assert message in record.status.message


def test_a_message_that_is_cut_is_marked() -> None:
    long = dataclasses.replace(_done(None, ok=False), message="word " * 100)
    record, _ = _settled(study_record(max_failed=0, max_trials=1), {0: long})
    message = record.status.trials[0].message
    assert (len(message) <= 300, message[-5:], record.status.message[-1]) == (True, "word…", "…")


def test_a_pause_lets_trials_end_and_none_begin() -> None:
    record = _begun(study_record(), 2)
    paused = dataclasses.replace(record.spec, paused=True)
    record, actions = _settled(
        dataclasses.replace(record, spec=paused), {0: _done(1.0), 1: TrialJob()}
    )
    assert (record.status.phase, actions) == (StudyPhase.PAUSED, [])
    assert [trial.state for trial in record.status.trials] == [
        TrialState.COMPLETED,
        TrialState.RUNNING,
    ]
    resumed = dataclasses.replace(record.spec, paused=False)
    record, actions = _settled(dataclasses.replace(record, spec=resumed), {1: TrialJob()})
    assert (record.status.phase, len(actions)) == (StudyPhase.RUNNING, 1)


def test_a_study_that_has_ended_goes_on_when_it_is_extended() -> None:
    record, jobs = study_record(max_trials=1), {0: _done(1.0)}
    record, _ = _settled(record, jobs)
    assert record.status.phase is StudyPhase.COMPLETED
    more = dataclasses.replace(record.spec, max_trials=2, extended=1)
    record, actions = _settled(dataclasses.replace(record, spec=more), jobs)
    assert record.status.phase is StudyPhase.RUNNING
    assert [action.trial.number for action in actions if isinstance(action, StartTrial)] == [1]
    record, _ = _settled(record, {1: _done(0.5)})
    assert record.status.phase is StudyPhase.COMPLETED, "it goes on once"


def test_queued_trials_come_next_and_a_grid_misses_no_point() -> None:
    record = study_record(
        space=parse_space({"lr": [0.1, 0.2, 0.3]}), algorithm="grid", max_trials=4, parallel=1
    )
    jobs = {0: _done(1.0)}
    record, _ = _settled(record, {})
    queued = dataclasses.replace(record.spec, queued=({"lr": 0.25},))
    record = dataclasses.replace(record, spec=queued)
    for number in range(4):
        jobs[number] = _done(1.0)
        record, _ = _settled(record, jobs)
    assert [trial.parameters["lr"] for trial in record.status.trials] == [0.1, 0.25, 0.2, 0.3]
    assert record.status.phase is StudyPhase.COMPLETED
