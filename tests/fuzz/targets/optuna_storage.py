"""What Optuna's client sends: messages, distributions, calls over gRPC; and whose connection it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, cast

from cloud_ml.api.optuna import wire
from cloud_ml.api.optuna.methods import trial_message, trial_of
from cloud_ml.api.optuna.wire import Message
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.studies import optuna_trials, optuna_views
from cloud_ml.domain.studies.optuna_trials import NewState
from cloud_ml.domain.studies.optuna_views import OptunaTrialView
from cloud_ml.domain.studies.spec import STUDY, StudyRecord, StudyStatus
from cloud_ml.errors import Conflict, InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.common import check_name
from cloud_ml.optuna_proxy.peers import find_peers
from cloud_ml.optuna_proxy.service import OptunaService
from cloud_ml.settings import StudySettings
from cloud_ml.usecases.studies.optuna_studies import NewOptunaStudy, optuna_spec, record_name
from fuzz.harness import target

_SPEC = optuna_spec(NewOptunaStudy(name="s", title="s", directions=("min", "max")), StudySettings())
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_FLOAT = '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0, "log": false}}'
_CHOICES = '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", null, 1]}}'
_INT = '{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 1, "high": 8}}'
_TRIAL = OptunaTrialView(
    state=1,
    values=(0.5, 2.0),
    started="2026-01-01 00:00:00.000000",
    params={"x": 0.5, "k": 1.0, "n": 3.0},
    distributions={"x": _FLOAT, "k": _CHOICES, "n": _INT},
    user={"note": '{"a": 1}'},
    system={"s": "NaN"},
    intermediate={0: 1.0, -3: float("inf")},
)


def _record(status: StudyStatus) -> StudyRecord:
    key = Key(STUDY.name, "org", "s", "uid")
    return Record(key, "me", 1, 1, _NOW, _NOW, _SPEC, status)


@target(
    "api.optuna.wire",
    "api.optuna.methods",
    "domain.studies.optuna_distributions",
    "domain.studies.optuna_trials",
    "domain.studies.optuna_views",
    seeds=[trial_message(7, _TRIAL), trial_message(1, OptunaTrialView(state=4))],
    words=[_FLOAT, _CHOICES, _INT, '"choices": []', '"log": 1', "1e999", "LogUniformDistribution"],
)
def optuna_trial(data: bytes) -> None:
    """A trial of a client is refused, or kept so that its client reads what it has sent."""
    try:
        sent = trial_of(Message(data))
        status = optuna_trials.with_new_trial(_record(StudyStatus()), sent, "key", _NOW)
    except (InvalidRequest, Conflict):
        return
    stored = codec.decode(StudyStatus, json.loads(json.dumps(codec.encode(status))))
    record = _record(stored)
    found = optuna_views.to_optuna(record, stored.trials[0])
    assert repr(found) == repr(OptunaTrialView(**{**vars(sent), "number": 0}))
    assert repr(trial_of(Message(trial_message(1, found)))) == repr(found)
    assert set(optuna_views.space_of(stored)) == set(found.params)
    if not stored.trials[0].over:
        try:
            new_state = NewState(1, (1.0, 2.0), "key")
            optuna_trials.with_state(record, stored.trials[0], new_state, _NOW)
        except InvalidRequest:
            raise AssertionError("a trial that runs cannot be completed") from None


@target("api.optuna.wire", seeds=[b"\x08\x01\x12\x03\x02\x04\x06\x19" + bytes(8)], words=[])
def optuna_message(data: bytes) -> None:
    """Lists and numbers that can be read are those that would be written."""
    try:
        found = Message(data)
        integers, doubles, text = found.integers(2), found.doubles(4), found.text(3)
    except InvalidRequest:
        return
    content = wire.integers(2, integers) + wire.doubles(4, doubles) + wire.text(3, text)
    again = Message(content + wire.integer(1, found.integer(1)))
    assert again.integers(2) == integers
    assert repr(again.doubles(4)) == repr(doubles)
    assert (again.text(3), again.integer(1)) == (text, found.integer(1))


@target(
    "optuna_proxy.peers",
    seeds=[
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        "   0: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000 0 1 1\n",
        "   0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:0050 01 0 0 0 7 0 9",
    ],
    words=["0100007F:1F90", "01", " 06 ", "-1", "1000"],
)
def connection_table(data: bytes) -> None:
    """A table of any form names a user by number, or none."""
    lines = data.decode("ascii", "replace").splitlines()
    (found,) = find_peers(lines, [(("127.0.0.1", 0x1F90), ("127.0.0.1", 0x50))])
    assert found is None or (found.user >= 0 and found.inode >= 0)


@target(
    "usecases.studies.optuna_studies",
    seeds=[b"rates", b"My study (2)", b"no-name-1", b"-"],
    words=["\u00e9", "A"],
)
def optuna_study_name(data: bytes) -> None:
    """Each study has a name that a record may have, and plain ones have their own."""
    title = data.decode("utf-8", "replace")
    name = record_name(title)
    assert check_name("name", name) == name
    assert record_name(name) == name


class _Stream:
    """A connection that notes what is answered."""

    def __init__(self) -> None:
        self.answers = 0

    def waits(self, _number: int) -> bool:
        return True

    def answer(self, _number: int, head: bytes, *_: object) -> None:
        assert head
        self.answers += 1


async def _echo(_method: str, message: bytes, _key: str) -> bytes:
    return message


class _Loop:
    """Runs a task at once."""

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        with_end = asyncio.Future[None](loop=_IDLE)
        try:
            coroutine.send(None)
        except StopIteration:
            return with_end
        raise AssertionError("it waits for something")


_IDLE = asyncio.new_event_loop()
_SERVICE = OptunaService(_echo, cast("asyncio.AbstractEventLoop", _Loop()))
_HEAD = b":method\0POST\n:path\0/optuna.StorageService/GetTrial\ncontent-type\0application/grpc\n\n"


@target(
    "optuna_proxy.service",
    seeds=[_HEAD + b"\0\0\0\0\x02\x08\x01", _HEAD.replace(b"POST", b"GET")],
    words=["/optuna.StorageService/", "grpc-encoding\0gzip", "application/grpc+proto"],
)
def optuna_call(data: bytes) -> None:
    """Each call has one answer."""
    head, _, body = data.partition(b"\n\n")
    fields = [
        (name, value) for name, _, value in (line.partition(b"\0") for line in head.split(b"\n"))
    ]
    stream = _Stream()
    _SERVICE.length(_SERVICE.understand(fields), memoryview(body))
    _SERVICE.serve(cast("Any", stream), 1, _SERVICE.understand(fields), body)
    assert stream.answers == 1
