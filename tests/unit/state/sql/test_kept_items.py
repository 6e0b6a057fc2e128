"""Records with long lists that are kept in memory: they are bounded in bytes."""

from __future__ import annotations

import gc
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from cloud_ml.settings.sizes import MIB
from cloud_ml.state.sql.items import ItemRecords
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.items import PLAN, Plan, Step
from cloud_ml.testing.state.samples import NOW, SampleSpec

MANY = 60


@pytest.mark.parametrize("where", ["spec", "items"])
def test_few_large_records_do_not_fill_the_memory(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud_ml.state.sql.store.ItemRecords", partial(ItemRecords, 4 * MIB))
    store = SqlStateStore.open(f"sqlite:///{tmp_path}/state.db")
    tracemalloc.start()
    try:
        for number in range(MANY):
            text = str(number % 10) * (MIB // 10)
            record = store.create(
                PLAN, org="red", name=f"p{number}", owner="ann",
                spec=SampleSpec(text if where == "spec" else "a bike"),
                status=Plan(steps=(Step(text if where == "items" else "ride"),)), now=NOW,
            )  # fmt: skip
            assert store.get(PLAN, record.key.uid) == record
        gc.collect()  # what is garbage is not kept
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()
    assert kept < 3 * MIB  # all of them are 6
