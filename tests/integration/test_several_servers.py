"""Two servers on one database: what is disabled at one is refused by the other soon, quotas
count at once, and who watches at one hears of changes at the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import QuotaExceeded, Unauthenticated
from cloud_ml.models.admin.quota import LimitsChange
from cloud_ml.models.jobs.train_job import TrainJob
from support.postgres import Postgres
from support.server import RealServer, eventually

pytestmark = pytest.mark.xdist_group("postgresql")

STALENESS_S = 1.0


def test_disabled_keys_and_quotas_hold_on_every_server(
    postgres: Postgres, serve: Callable[..., RealServer]
) -> None:
    settings = {
        "CLOUDML_SERVER_DATABASE_URL": postgres.emptied(),
        "CLOUDML_KEYS_STALENESS_S": STALENESS_S,
        "CLOUDML_SERVER_SEPARATE_DATA": "true",
    }
    here, there = serve(**settings), serve(**settings)
    admin = here.client().admin
    admin.create_user("max")
    made = admin.create_key("max")
    with CloudMlClient(made.key.access_key, made.secret_key, there.endpoint) as elsewhere:

        def refused() -> bool:
            try:
                elsewhere.whoami()
            except Unauthenticated:
                return True
            return False

        ways: tuple[Callable[[], object], ...] = (
            lambda: admin.change_key(made.key.access_key, enabled=False),
            lambda: admin.change_user("max", enabled=False),
        )
        for disable in ways:
            assert not refused()
            disable()
            eventually(
                refused, "the other server refuses the key"
            )  # when exactly: tests/unit/usecases/test_identities
            admin.change_key(made.key.access_key, enabled=True)
            admin.change_user("max", enabled=True)
            assert not refused(), "it is looked up again, since refusals are not kept"
        here.client().quota.set("default", train=LimitsChange(cpu="0.5"))
        with pytest.raises(QuotaExceeded):
            elsewhere.submit_train_job(
                TrainJob("big", "trainer.task", "fds://cloudml/none.tar.gz", cpu_limit="1")
            )
        outcomes = [
            line.outcome for line in here.client().admin.audit(operation="jobs.submit", limit=5)
        ]
        assert outcomes == ["quota_exceeded"]


def test_changes_and_ends_at_one_server_are_told_by_the_other(
    postgres: Postgres, serve: Callable[..., RealServer]
) -> None:
    settings = {
        "CLOUDML_SERVER_DATABASE_URL": postgres.emptied(),
        "CLOUDML_SERVER_SEPARATE_DATA": "true",
    }
    here, there = serve(**settings), serve(**settings)
    keys, client = here.credentials, here.client()
    with (
        CloudMlClient(keys["access_key"], keys["secret_key"], there.endpoint) as elsewhere,
        ThreadPoolExecutor(2) as pool,
        closing(
            elsewhere.experiments.watch(after=client.experiments.find("Default").revision)
        ) as changes,
    ):
        next_change = pool.submit(next, changes)
        sweep = client.runs.ensure_experiment("sweep")
        assert next_change.result(60).id == sweep.id
        uid = client.runs.create("one", sweep)
        assert [run.uid for run in elsewhere.experiments.active_runs(sweep.id).items] == [uid]
        waited = pool.submit(elsewhere.experiments.wait, "sweep", 60)
        next_change = pool.submit(next, changes)
        client.runs.create_experiment("later")
        assert next_change.result(60).experiment.name == "later"
        client.runs.finish(uid)
        assert waited.result(60).id == sweep.id
