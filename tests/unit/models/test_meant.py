"""What somebody may have meant by a value that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common, meant


@pytest.mark.parametrize(
    ("suggest", "value", "suggestion"),
    [
        (meant.memory, "100MB", "100M"),
        (meant.memory, "100Mi", "100M"),
        (meant.memory, "1.5 gib", "1.5G"),
        (meant.memory, "512", "512M"),
        (meant.memory, 512, "512M"),
        (meant.memory, "2T", "2048G"),
        (meant.memory, "0M", ""),
        (meant.memory, "lots", ""),
        (meant.cpu, "500m", "0.5"),
        (meant.cpu, "1m", ""),
        (meant.cpu, "half", ""),
        (meant.name, "My_Job 2", "my-job-2"),
        (meant.name, "Übung", "ubung"),
        (meant.name, "日本", ""),
        (meant.name, "a" * 70, "a" * 63),
        (meant.name, 7, ""),
        (meant.module, "trainer/task.py", "trainer.task"),
        (meant.module, "./train.py", "train"),
        (meant.module, "a-b", ""),
        (meant.module, None, ""),
        (meant.duration, "2 hours", "2h"),
        (meant.duration, "90sec", "90s"),
        (meant.duration, "1-02:00:00", "1d2h"),
        (meant.duration, "0:30:00", "30m"),
        (meant.duration, "0:00:00", ""),
        (meant.duration, "soon", ""),
    ],
)
def test_suggestions(suggest: Callable[[Any], str], value: Any, suggestion: str) -> None:
    assert suggest(value) == suggestion


@pytest.mark.parametrize(
    ("check", "value", "words"),
    [
        (common.check_memory, "100MB", "Did you mean 100M?"),
        (common.check_cpu, "500m", "Did you mean 0.5?"),
        (common.check_name, "my job", "Did you mean my-job?"),
        (common.check_module, "train/task.py", "Did you mean train.task?"),
        (common.check_duration, "2hours", "Did you mean 2h?"),
        (common.check_memory, "lots", None),
    ],
)
def test_refusals_carry_them(check: Callable[[str, Any], Any], value: str, words: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check("field", value)
    assert caught.value.hint == words


@pytest.mark.parametrize(
    ("suggest", "check", "values"),
    [
        (meant.memory, common.check_memory, ["1kb", "100MB", "3.25 GiB", "7", "1TB"]),
        (meant.cpu, common.check_cpu, ["10m", "250m", "500m", "1500m", "100000m"]),
        (meant.name, common.check_name, ["--A--", "x" * 90, "a b" * 40, "É!"]),
        (meant.duration, common.check_duration, ["1 day", "3mins", "07 hours"]),
    ],
)
def test_what_is_suggested_is_allowed(
    suggest: Callable[[Any], str], check: Callable[[str, Any], Any], values: list[str]
) -> None:
    for value in values:
        check("field", suggest(value))
