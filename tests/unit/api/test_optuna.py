"""The storage service of Optuna's client, message by message."""

from __future__ import annotations

import json
import time

import pytest

from cloud_ml.api.optuna import wire
from cloud_ml.api.optuna.methods import trial_message, trial_of
from cloud_ml.api.optuna.wire import Message
from cloud_ml.domain.studies.optuna_trials import MOST_TRIAL
from cloud_ml.domain.studies.optuna_views import COMPLETE, FAIL, RUNNING, WAITING, OptunaTrialView
from support.asgi import Answer
from support.platform import Caller, Served

pytestmark = pytest.mark.anyio
FLOAT = json.dumps({"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0}})
CHOICES = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["a", None]}})


async def send(caller: Caller, method: str, message: bytes, key: str = "") -> Answer:
    headers = {"Idempotency-Key": key} if key else {}
    return await caller.call("POST", f"/api/v1/optuna/{method}", body=message, headers=headers)


async def call(caller: Caller, method: str, message: bytes, key: str = "") -> Message:
    answer = await send(caller, method, message, key)
    assert answer.status == 200, answer.text
    return Message(answer.body)


async def made(caller: Caller, name: str = "rates", directions: tuple[int, ...] = (0,)) -> int:
    message = wire.integers(1, directions) + wire.text(2, name)
    return (await call(caller, "CreateNewStudy", message)).integer(1)


async def begun(caller: Caller, study: int, key: str = "") -> int:
    message = wire.integer(1, study) + wire.integer(3, 1)
    return (await call(caller, "CreateNewTrial", message, key)).integer(1)


async def trials(
    caller: Caller, study: int, after: int = -1, *included: int
) -> list[OptunaTrialView]:
    message = wire.integer(1, study) + wire.integers(2, included) + wire.integer(3, after)
    answer = await call(caller, "GetTrials", message)
    return [trial_of(each) for each in answer.messages(1)]


def parameter(trial: int, name: str, value: float, distribution: str) -> bytes:
    return (
        wire.integer(1, trial)
        + wire.text(2, name)
        + wire.double(3, value)
        + wire.text(4, distribution)
    )


def state(trial: int, number: int, *values: float) -> bytes:
    return wire.integer(1, trial) + wire.integer(2, number) + wire.doubles(3, values)


def attribute(number: int, key: str, text: str) -> bytes:
    return wire.integer(1, number) + wire.text(2, key) + wire.text(3, text)


async def test_a_trial_from_its_begin_to_its_end(served: Served) -> None:
    caller = served.member
    study = await made(caller)
    trial = await begun(caller, study)
    await call(caller, "SetTrialParameter", parameter(trial, "lr", 0.25, FLOAT))
    await call(caller, "SetTrialParameter", parameter(trial, "kind", 1.0, CHOICES))
    for step, value in ((0, 3.0), (2, 1.0), (1, float("inf")), (2, 1.5)):
        message = wire.integer(1, trial) + wire.integer(2, step) + wire.double(3, value)
        await call(caller, "SetTrialIntermediateValue", message)
    await call(caller, "SetTrialUserAttribute", attribute(trial, "note", '{"a": 1}'))
    await call(caller, "SetTrialSystemAttribute", attribute(trial, "s", "1"))
    answer = await call(caller, "SetTrialStateValues", state(trial, COMPLETE, 0.5))
    assert answer.integer(1) == 1
    (found,) = await trials(caller, study)
    assert (found.state, found.values) == (COMPLETE, (0.5,))
    assert found.params == {"lr": 0.25, "kind": 1.0}
    assert found.intermediate == {0: 3.0, 1: float("inf"), 2: 1.5}
    assert (found.user, found.system) == ({"note": '{"a": 1}'}, {"s": "1"})
    shown = (await caller.call("GET", "/api/v1/studies/rates")).json()
    assert shown["best"]["parameters"] == {"lr": 0.25, "kind": None}
    assert shown["space"]["kind"] == ["a", None]
    assert (shown["ended"], shown["objective"]) == (1, "value:min")


@pytest.mark.parametrize("odd", ["inf", "-inf"])
async def test_a_value_that_is_not_finite_is_never_the_best_and_says_so(
    served: Served, odd: str
) -> None:
    caller = served.member
    study = await made(caller)
    for value in (float(odd), -1.0):
        message = state(await begun(caller, study), COMPLETE, value)
        await call(caller, "SetTrialStateValues", message)
    assert [each.values for each in await trials(caller, study)] == [(float(odd),), (-1.0,)]
    shown = (await caller.call("GET", "/api/v1/studies/rates")).json()
    first, second = shown["trials"]
    assert first["message"] == f"its value is {odd}, so it is never the best here"
    assert (second["message"], shown["best"]["number"]) == ("", 1)


async def test_a_call_that_is_sent_again_is_carried_out_once(served: Served) -> None:
    caller = served.member
    study = await made(caller)
    assert await begun(caller, study, "k1") == await begun(caller, study, "k1")
    waiting = wire.integer(1, study) + wire.message(
        2, trial_message(0, OptunaTrialView(state=WAITING))
    )
    trial = (await call(caller, "CreateNewTrial", waiting, "k2")).integer(1)
    begins = state(trial, RUNNING)
    answers = [await call(caller, "SetTrialStateValues", begins, key) for key in ("a", "a", "b")]
    assert [each.integer(1) for each in answers] == [1, 1, 0]  # another process has begun it
    ends = state(trial, COMPLETE, 1.0)
    for _ in range(2):
        assert (await call(caller, "SetTrialStateValues", ends, "c")).integer(1) == 1
    again = await send(caller, "SetTrialStateValues", ends, "d")
    assert (again.status, again.json()["code"]) == (409, "conflict")
    assert len(await trials(caller, study)) == 2


async def test_trials_are_read_behind_the_last_one_and_by_number(served: Served) -> None:
    caller = served.member
    study = await made(caller)
    numbers = [await begun(caller, study) for _ in range(4)]
    assert [one.number for one in await trials(caller, study, numbers[2])] == [3]
    assert [one.number for one in await trials(caller, study, numbers[2], numbers[0])] == [0, 3]
    message = wire.integer(1, study) + wire.integer(2, 2)
    found = await call(caller, "GetTrialIdFromStudyIdTrialNumber", message)
    assert found.integer(1) == numbers[2]
    missing = await send(caller, "GetTrial", wire.integer(1, numbers[3] + 1))
    assert missing.status == 404


@pytest.mark.parametrize(
    "method", ["GetTrials", "GetStudyDirections", "CreateNewTrial", "DeleteStudy"]
)
async def test_studies_of_others_are_as_missing(served: Served, method: str) -> None:
    study = await made(served.member)
    foreign = await send(served.stranger, method, wire.integer(1, study))
    missing = await send(served.stranger, method, wire.integer(1, study + 1))
    assert foreign.status == missing.status == 404
    assert foreign.text.replace(str(study), str(study + 1)) == missing.text
    trial = await begun(served.member, study)
    answer = await send(served.stranger, "SetTrialStateValues", state(trial, FAIL))
    assert answer.status == 404


async def test_names_are_those_that_were_given(served: Served) -> None:
    caller = served.member
    study = await made(caller, "My study (2)", (0, 1))
    found = await call(caller, "GetStudyIdFromName", wire.text(1, "My study (2)"))
    assert found.integer(1) == study
    name = await call(caller, "GetStudyNameFromId", wire.integer(1, study))
    assert name.text(1) == "My study (2)"
    directions = await call(caller, "GetStudyDirections", wire.integer(1, study))
    assert directions.integers(1) == [0, 1]
    taken = await send(
        caller, "CreateNewStudy", wire.integers(1, (0,)) + wire.text(2, "My study (2)")
    )
    assert (taken.status, taken.json()["code"]) == (409, "already_exists")
    await call(caller, "SetStudyUserAttribute", attribute(study, "team", '"vision"'))
    all_studies = await call(caller, "GetAllStudies", b"")
    assert [each.texts(4) for each in all_studies.messages(1)] == [{"team": '"vision"'}]


async def test_attributes_are_bounded(served: Served) -> None:
    caller = served.member
    study = await made(caller)
    trial = await begun(caller, study)
    large = json.dumps("x" * (MOST_TRIAL // 2))
    await call(caller, "SetTrialUserAttribute", attribute(trial, "a", large))
    answer = await send(caller, "SetTrialUserAttribute", attribute(trial, "b", large))
    assert answer.status == 400
    assert str(MOST_TRIAL) in answer.text
    for number in range(7):
        await call(caller, "SetStudySystemAttribute", attribute(study, f"{number}", large))
    answer = await send(caller, "SetStudySystemAttribute", attribute(study, "8", large))
    assert answer.status == 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (parameter(0, "lr", 0.5, CHOICES), "different distribution kind"),
        (parameter(0, "lr", float("nan"), FLOAT), "param_value_internal"),
        (parameter(0, "k", 2.0, CHOICES), "0 to 1"),
        (parameter(0, "k", 0.0, "{}"), "a distribution of Optuna"),
        (parameter(0, "", 0.0, FLOAT), "param_name"),
        (b"\x12\x01\xff", "UTF-8"),
        (b"\xff", "not a valid message"),
    ],
)
async def test_what_is_wrong_is_named(served: Served, change: bytes, message: str) -> None:
    caller = served.member
    study = await made(caller)
    first, second = await begun(caller, study), await begun(caller, study)
    await call(caller, "SetTrialParameter", parameter(first, "lr", 0.25, FLOAT))
    answer = await send(caller, "SetTrialParameter", wire.integer(1, second) + change)
    assert answer.status == 400, answer.text
    assert message in answer.text


async def test_studies_of_jobs_can_be_read_only(served: Served) -> None:
    caller = served.member
    space = {"lr": {"min": 0.001, "max": 1, "scale": "log"}, "kind": ["a", "b"]}
    new = {"name": "jobs", "local": True, "space": space, "max_trials": 3, "algorithm": "random"}
    assert (await caller.call("POST", "/api/v1/studies", new)).status == 201
    assert (await caller.call("POST", "/api/v1/studies/jobs/ask", {"key": "a"})).status == 200
    end = {"number": 0, "value": 0.5}
    assert (await caller.call("POST", "/api/v1/studies/jobs/tell", end)).status == 200
    study = (await call(caller, "GetStudyIdFromName", wire.text(1, "jobs"))).integer(1)
    (found,) = await trials(caller, study)
    assert (found.state, found.values, set(found.params)) == (COMPLETE, (0.5,), {"lr", "kind"})
    change = wire.integer(1, study)
    for method, message in (
        ("CreateNewTrial", change + wire.integer(3, 1)),
        ("DeleteStudy", change),
    ):
        answer = await send(caller, method, message)
        assert (answer.status, answer.json()["code"]) == (409, "conflict"), method
        assert "jobs was not made by Optuna: here it can only be read" in answer.json()["message"]
    assert (await caller.call("GET", "/api/v1/studies/jobs")).status == 200


@pytest.mark.parametrize("verb", ["pause", "stop"])
async def test_no_trial_begins_once_a_user_has_paused_or_stopped(served: Served, verb: str) -> None:
    caller = served.member
    study = await made(caller)
    await begun(caller, study)
    assert (await caller.call("POST", f"/api/v1/studies/rates/{verb}")).status == 200
    answer = await send(caller, "CreateNewTrial", wire.integer(1, study) + wire.integer(3, 1))
    assert (answer.status, answer.json()["code"]) == (409, "conflict")


async def test_choices_that_json_lacks_are_stored_as_their_names(served: Served) -> None:
    caller = served.member
    trial = await begun(caller, await made(caller))
    odd = '{"name": "CategoricalDistribution", "attributes": {"choices": [NaN, 1.0, Infinity]}}'
    await call(caller, "SetTrialParameter", parameter(trial, "k", 0.0, odd))
    study = (await caller.call("GET", "/api/v1/studies/rates")).json()
    assert study["trials"][0]["parameters"] == {"k": "nan"}
    for wrong in (
        '{"name": "CategoricalDistribution", "attributes": {"choices": ["\\ud800"]}}',
        '{"name": "FloatDistribution", "attributes": {"low": 0, "high": 1, "step": NaN}}',
    ):
        answer = await send(caller, "SetTrialParameter", parameter(trial, "x", 0.0, wrong))
        assert answer.status == 400


def template(study: int, *fields: bytes) -> bytes:
    return wire.integer(1, study) + wire.message(2, wire.integer(3, WAITING) + b"".join(fields))


async def test_a_template_is_bounded_and_costs_what_its_size_is(served: Served) -> None:
    caller = served.member
    study = await made(caller)
    for field in (5, 6):  # when it began and ended: a text
        answer = await send(
            caller, "CreateNewTrial", template(study, wire.text(field, "x" * 500_000))
        )
        assert answer.status == 400
    began = time.process_time()
    many = wire.texts(9, {f"{number:x}": "1" for number in range(20_000)})
    await call(caller, "CreateNewTrial", template(study, many))
    assert time.process_time() - began < 5  # one by one, 12 and more
    assert len((await trials(caller, study))[0].user) == 20_000
    assert (await send(caller, "CreateNewTrial", b"\x0a\x00" * 100_000)).status == 400


async def test_an_answer_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = served.member
    study = await made(caller)
    for _ in range(3):
        await begun(caller, study)
    monkeypatch.setattr(wire, "MOST_ANSWER", 50)
    assert (await send(caller, "GetTrials", wire.integer(1, study))).status == 413
    assert (await send(caller, "GetAllStudies", b"")).status == 200
