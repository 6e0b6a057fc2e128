"""The samples of an attempt: as many as were asked for, from a file that stays small."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.engines.abilities import UsagePoint
from cloud_ml.engines.local.processes import usage_samples


def point(number: int) -> UsagePoint:
    return UsagePoint(datetime(2026, 1, 1, tzinfo=UTC), f"worker-{number}", 0.5, 1 << 40, number)


def numbers(folder: Path, most: int) -> list[int]:
    return [one.processes for one in usage_samples.latest(folder, most)]


def test_there_may_be_none(tmp_path: Path) -> None:
    assert numbers(tmp_path, 5) == []


def test_the_last_ones_are_found(tmp_path: Path) -> None:
    for number in range(50):
        usage_samples.add(tmp_path, point(number))
    assert usage_samples.latest(tmp_path, 1) == [point(49)]
    assert numbers(tmp_path, 3) == [47, 48, 49]
    assert numbers(tmp_path, 500) == list(range(50))


def test_an_attempt_of_weeks_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_samples, "MOST_BYTES", 2000)
    for number in range(200):
        usage_samples.add(tmp_path, point(number))
        assert numbers(tmp_path, 5) == list(range(number + 1))[-5:]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 5000


@pytest.mark.parametrize("torn", [b'{"at": "20', b"{}", b"[]", b"7", b"\xff\xfe", b""])
def test_a_torn_line_is_left_out(torn: bytes, tmp_path: Path) -> None:
    usage_samples.add(tmp_path, point(1))
    with (tmp_path / "usage.jsonl").open("ab") as file:
        file.write(torn + b"\n")
    usage_samples.add(tmp_path, point(2))
    assert numbers(tmp_path, 5) == [1, 2]
