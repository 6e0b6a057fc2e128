"""What an attempt sees, and where it is reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from cloud_ml.domain.addresses import Address
from cloud_ml.domain.observed import GangState
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import Engine
from cloud_ml.engines.gang import (
    EnvironmentPlan,
    Mount,
    TrainerSource,
)
from cloud_ml.errors import Unavailable
from cloud_ml.testing.engine.looking import (
    endpoints_of,
    gang_of,
    log_of,
    new_key,
    read_answer,
    send_address,
    until_over,
    until_reached,
)
from cloud_ml.testing.engine.programs import Programs


@pytest.mark.anyio
class PlaceContract(Programs):
    """What an attempt sees, and where it is reached."""

    @pytest.mark.parametrize("reason", [Reason.TRAINER_NOT_FOUND, Reason.MODEL_NOT_FOUND])
    async def test_a_missing_trainer_ends_the_attempt_with_that_reason(
        self, engine: Engine, reason: Reason
    ) -> None:
        problem = "fds://b/none.tar.gz does not exist"
        plan = EnvironmentPlan(
            trainer=TrainerSource("", "none.tar.gz", problem, reason), module="trainer.task"
        )
        gang = gang_of(self.printing("never"), environment=plan)
        await engine.ensure(gang)
        seen = await until_over(engine, gang.key)
        assert (seen.reason, seen.message) == (reason, problem)

    async def test_a_gang_sees_the_bucket_that_it_mounts(self, engine: Engine, bucket: str) -> None:
        key = new_key()
        target = f"{engine.places(key.job_uid).storage}/{bucket}"
        mounts = (Mount(bucket, target, writable=True),)
        gang = gang_of(self.showing(f"{target}/greeting"), key=key, mounts=mounts)
        await engine.ensure(gang)
        seen = await until_over(engine, key)
        assert (seen.reason, await log_of(engine, key)) == (Reason.COMPLETED, b"hello\n")

    async def test_a_gang_with_a_bucket_that_is_gone_is_not_taken(
        self, engine: Engine, bucket: str
    ) -> None:
        """It was removed after the gang was planned: the next plan knows of that."""
        key = new_key()
        storage = engine.places(key.job_uid).storage
        mounts = [Mount(name, f"{storage}/{name}", writable=True) for name in (bucket, "absent")]
        gang = gang_of(self.printing("planned again"), key=key, mounts=tuple(mounts))
        with pytest.raises(Unavailable, match="bucket absent"):
            await engine.ensure(gang)
        assert await engine.observed(key.job_uid) == []
        await engine.ensure(replace(gang, mounts=gang.mounts[:1]))
        assert (await until_over(engine, key)).reason is Reason.COMPLETED
        assert await log_of(engine, key) == b"planned again\n"

    async def test_no_gang_runs_without_the_file_of_its_trainer(self, engine: Engine) -> None:
        plan = EnvironmentPlan(
            trainer=TrainerSource("0" * 64, "none.tar.gz"), module="trainer.task"
        )
        gang = gang_of(self.printing("never"), environment=plan)
        await engine.ensure(gang)
        seen = await until_over(engine, gang.key)
        assert seen.reason is Reason.TRAINER_NOT_FOUND
        assert "none.tar.gz" in seen.message
        assert b"never" not in await log_of(engine, gang.key)

    async def test_a_process_that_listens_is_reached_at_its_address(
        self,
        engine: Engine,
        reopen: Callable[[], Awaitable[Engine]],
        dial: Callable[[Address], Awaitable[bytes]],
    ) -> None:
        endpoints = endpoints_of(engine)
        gang, neighbour = gang_of(self.listening("a.sock", "hello")), gang_of(self.waiting())
        for each in (gang, neighbour):
            await engine.ensure(each)
            await until_reached(engine, each.key, GangState.RUNNING)
        uid = gang.key.job_uid
        assert await read_answer(endpoints, uid, "a.sock") == b"hello"
        address = endpoints.address(uid, "a.sock")
        assert await dial(send_address(address)) == b"hello"
        later = endpoints_of(await reopen())
        assert later.address(uid, "a.sock") == address
        assert await read_answer(later, uid, "a.sock") == b"hello"
        for other in ((neighbour.key.job_uid, "a.sock"), (uid, "b.sock")):
            with pytest.raises(Unavailable):
                await endpoints.open_connection(*other)
        for each in (gang, neighbour):
            await engine.stop(each.key, grace_s=0.0)
            await until_over(engine, each.key)
        with pytest.raises(Unavailable):
            await endpoints.open_connection(uid, "a.sock")

    @pytest.mark.parametrize("name", ["", ".", "..", "../a.sock", "/a.sock", "a/b.sock", "a\0b"])
    async def test_nobody_is_reached_by_the_name_of_a_path(self, engine: Engine, name: str) -> None:
        endpoints, gang = endpoints_of(engine), gang_of(self.listening("a.sock", "hello"))
        await engine.ensure(gang)
        await until_reached(engine, gang.key, GangState.RUNNING)
        uid = gang.key.job_uid
        assert await read_answer(endpoints, uid, "a.sock") == b"hello"
        for wrong in ((uid, name), (name, "a.sock"), (f"x/../{uid}", "a.sock")):
            with pytest.raises(Unavailable):
                await endpoints.open_connection(*wrong)
        await engine.stop(gang.key, grace_s=0.0)
        await until_over(engine, gang.key)
