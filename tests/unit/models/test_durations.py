"""Durations as users write them, there and back."""

import pytest

from cloud_ml.models.common import duration_seconds, duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1, "1s"), (60, "1m"), (90, "1m30s"), (3600.0, "1h"), (129_600, "1d12h")],
)
def test_seconds_are_told_in_the_form_that_users_write(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert duration_seconds(text) == seconds


def test_parts_of_a_second_are_kept() -> None:
    assert duration_text(0.5) == "0.5s"
