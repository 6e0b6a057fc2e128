"""Two servers on one database answer one study."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.studies.spec import STUDY, TrialState
from cloud_ml.domain.tenancy import Role
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import CloudMlError, Conflict
from cloud_ml.models.studies.ask_tell import AskTrial, ReportTrial, TellTrial
from cloud_ml.models.studies.study import NewStudy
from cloud_ml.settings.studies import StudySettings
from cloud_ml.state import rules
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.verify import verify
from cloud_ml.testing.state.samples import once
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identity, Organisation
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.resources import Resources
from cloud_ml.usecases.studies.ask_tell import AskTell
from cloud_ml.usecases.studies.studies import StudyResources, study_resource
from support.postgres import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("postgresql")]
_TRIALS = 24
_CALLER = Identity("key", "", Organisation("red", 7), "ann", Role.MEMBER)
_NO_STORAGE: Any = None
_NO_CAPACITY: Any = None


class AnsweringServer:
    """The part of a server that answers loops, on a store of its own."""

    def __init__(self, url: str, settings: StudySettings | None = None) -> None:
        settings = settings or StudySettings()
        self.store = SqlStateStore.open(url)
        self.tuner = Tuner()
        self.offload = Offload()
        resource = study_resource(lambda *_: None, _NO_STORAGE, settings, self.store)
        limits = RecordLimits(self.store, rules.utc_now, 0)
        self.studies: StudyResources = Resources(resource, self.store, rules.utc_now, limits)
        self.ask_tell = AskTell(
            self.store, self.studies, self.tuner, rules.utc_now, self.offload, settings=settings
        )

    def create(self, name: str, **fields: Any) -> None:
        new = NewStudy(
            name=name, space={"x": {"min": 0.0, "max": 1.0}}, objective="loss:min", local=True, **fields
        )  # fmt: skip
        capacity: Capacity = _NO_CAPACITY
        self.studies.create(_CALLER, new, capacity)

    async def close(self) -> None:
        await self.tuner.close()
        self.offload.close()
        self.store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        yield postgres.emptied()


async def _loop(
    server: AnsweringServer, other: AnsweringServer, own: str, *, together: bool = False
) -> dict[int, float]:
    """Run trials until there is none; each request is sent again, to the other server. One that
    asks tells the end of the trial before, too, if they go ``together``.
    """
    values: dict[int, float] = {}
    end: TellTrial | None = None
    while True:
        question = AskTrial(key=f"{own}-{len(values)}", tell=end)
        answer = await server.ask_tell.ask(_CALLER, "shared", question, None)
        again = await other.ask_tell.ask(_CALLER, "shared", question, None)
        if answer.trial is None:
            return values
        assert again.trial is not None
        number, x = answer.trial.number, answer.trial.parameters["x"]
        assert (again.trial.number, again.trial.parameters) == (number, answer.trial.parameters)
        for step in (1, 2):
            report = ReportTrial(number=number, step=step, value=x + 1 / step)
            await server.ask_tell.report(_CALLER, "shared", report, None)
            await other.ask_tell.report(_CALLER, "shared", report, None)
        end = TellTrial(number=number, value=x)
        values[number] = x
        if together:
            continue
        await server.ask_tell.tell(_CALLER, "shared", end, None)
        await other.ask_tell.tell(_CALLER, "shared", end, None)
        end = None


@pytest.mark.parametrize("algorithm", ["random", "tpe"])
async def test_two_servers_answer_one_study(url: str, algorithm: str) -> None:
    first, second = AnsweringServer(url), AnsweringServer(url)
    try:
        first.create("shared", algorithm=algorithm, max_trials=_TRIALS, seed=1)
        found = await asyncio.gather(
            _loop(first, second, "a"),
            _loop(first, second, "b", together=True),
            _loop(second, first, "c", together=True),
        )
        values = {number: x for part in found for number, x in part.items()}
        assert sum(map(len, found)) == len(values) == _TRIALS
        assert len(set(values.values())) == _TRIALS
        for server in (first, second):
            record = server.store.find(STUDY, "red", "shared")
            assert record is not None
            assert {trial.number: trial.value for trial in record.status.trials} == values
            assert {trial.state for trial in record.status.trials} == {TrialState.COMPLETED}
            for trial in record.status.trials:
                assert [(one.step, one.value) for one in trial.points] == [
                    (step, values[trial.number] + 1 / step) for step in (1, 2)
                ]
        if url.startswith("sqlite"):  # the cluster of tests does not wait for its disk
            list(verify(url, {STUDY.name: STUDY}))
    finally:
        await first.close()
        await second.close()


async def test_reports_are_kept_up_to_a_limit_and_a_token_is_used_once(url: str) -> None:
    server = AnsweringServer(url, StudySettings(reports_per_study=3))
    try:
        server.create("shared", algorithm="random", max_trials=2)
        question = await server.ask_tell.ask(_CALLER, "shared", AskTrial(key="a"), once("first"))
        assert question.trial is not None
        with pytest.raises(CloudMlError, match="made before"):
            await server.ask_tell.ask(_CALLER, "shared", AskTrial(key="b"), once("first"))
        with pytest.raises(CloudMlError, match="made before"):
            await server.ask_tell.ask(_CALLER, "shared", AskTrial(key="a"), once("first"))
        for step in range(3):
            report = ReportTrial(number=0, step=step, value=0.5)
            await server.ask_tell.report(_CALLER, "shared", report, once(f"report {step}"))
        with pytest.raises(Conflict, match="has 3 reports already"):
            await server.ask_tell.report(
                _CALLER, "shared", ReportTrial(number=0, step=3, value=0.5), None
            )
        await server.ask_tell.tell(_CALLER, "shared", TellTrial(number=0), None)
        record = server.store.find(STUDY, "red", "shared")
        assert record is not None
        assert [trial.value for trial in record.status.trials] == [0.5]
    finally:
        await server.close()
