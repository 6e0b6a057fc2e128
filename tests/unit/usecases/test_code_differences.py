"""Comparisons of code that take long, of several organisations."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.usecases.comparison.code import CodeDifferences
from support.jobs import job_in
from support.platform import Served


def of(org: str, digest: str) -> TrainJobRecord:
    record = job_in()
    return replace(
        record,
        key=replace(record.key, org=org),
        status=replace(record.status, trainer_digest=digest),
    )


def test_an_organisation_has_one_comparison_under_way(served: Served, monkeypatch: Any) -> None:
    """The others of it wait, and another organisation does not wait behind them."""
    begun, go_on, order = threading.Event(), threading.Event(), list[str]()

    def compare(first: bytes, _second: bytes) -> list[dict[str, Any]]:
        order.append(first.decode())
        if first == b"slow":
            begun.set()
            go_on.wait()
        return []

    platform = served.platform
    differences = CodeDifferences(platform.storage, platform.objects, compare)
    monkeypatch.setattr(differences, "_code", lambda job: job.key.org.encode())

    def ask(org: str) -> threading.Thread:
        thread = threading.Thread(target=differences.between, args=(of(org, "a"), of(org, "b")))
        thread.start()
        return thread

    first = ask("slow")
    begun.wait()
    second = ask("slow")
    ask("other").join()
    assert order == ["slow", "other"]
    go_on.set()
    first.join()
    second.join()
    assert order == ["slow", "other", "slow"]
