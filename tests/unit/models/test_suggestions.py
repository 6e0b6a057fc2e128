"""What somebody may have meant by a value that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common, suggestions
from cloud_ml.models.admin.quota import limit_of


@pytest.mark.parametrize(
    ("suggest", "value", "suggestion"),
    [
        (suggestions.memory, "100MB", "100M"),
        (suggestions.memory, "100Mi", "100M"),
        (suggestions.memory, "1.5 gib", "1.5G"),
        (suggestions.memory, "512", "512M"),
        (suggestions.memory, 512, "512M"),
        (suggestions.memory, "2T", "2048G"),
        (suggestions.memory, "0M", ""),
        (suggestions.memory, "lots", ""),
        (suggestions.cpu, "500m", "0.5"),
        (suggestions.cpu, "1m", ""),
        (suggestions.cpu, "half", ""),
        (suggestions.name, "My_Job 2", "my-job-2"),
        (suggestions.name, "Übung", "ubung"),
        (suggestions.name, "日本", ""),
        (suggestions.name, "a" * 70, "a" * 63),
        (suggestions.name, 7, ""),
        (suggestions.module, "trainer/task.py", "trainer.task"),
        (suggestions.module, "./train.py", "train"),
        (suggestions.module, "a-b", ""),
        (suggestions.module, None, ""),
        (suggestions.duration, "2 hours", "2h"),
        (suggestions.duration, "90sec", "90s"),
        (suggestions.duration, "1-02:00:00", "1d2h"),
        (suggestions.duration, "0:30:00", "30m"),
        (suggestions.duration, "0:00:00", ""),
        (suggestions.duration, "soon", ""),
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
def test_refusals_carry_them(
    check: Callable[[str, Any], Any], value: str, words: str | None
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check("field", value)
    assert caught.value.hint == words


@pytest.mark.parametrize(
    ("suggest", "check", "values"),
    [
        (suggestions.memory, common.check_memory, ["1kb", "100MB", "3.25 GiB", "7", "1TB"]),
        (suggestions.cpu, common.check_cpu, ["10m", "250m", "500m", "1500m", "100000m"]),
        (suggestions.name, common.check_name, ["--A--", "x" * 90, "a b" * 40, "É!"]),
        (suggestions.duration, common.check_duration, ["1 day", "3mins", "07 hours"]),
    ],
)
def test_what_is_suggested_is_allowed(
    suggest: Callable[[Any], str], check: Callable[[str, Any], Any], values: list[str]
) -> None:
    for value in values:
        check("field", suggest(value))


@pytest.mark.parametrize(
    ("resource", "value", "suggestion"),
    [("memory", "1GB", "1G"), ("storage", "2 TB", "2048G"), ("cpu", "500m", "0.5")],
)
def test_a_limit_of_a_quota_has_suggestions_too(resource: str, value: str, suggestion: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        limit_of(resource, resource, value)
    assert refused.value.hint == f"Did you mean {suggestion}?"
