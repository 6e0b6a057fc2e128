"""All jobs together leave processes to the rest of the machine."""

from __future__ import annotations

import pytest

from cloud_ml.engines.local.processes import process_share
from cloud_ml.engines.local.processes.process_share import process_limit


@pytest.mark.parametrize(
    ("kernel", "requested", "places", "limit"),
    [
        (32_768, 4096, 8, 2048),  # eight times 4096 are all that such a kernel can have
        (32_768, 100, 8, 100),
        (32_768, 4096, 1000, 256),
        (4_194_304, 4096, 64, 4096),
    ],
)
def test_jobs_together_take_half_at_most(
    monkeypatch: pytest.MonkeyPatch, kernel: int, requested: int, places: int, limit: int
) -> None:
    monkeypatch.setattr(process_share, "kernel_limit", lambda: kernel)
    assert process_limit(requested, places) == limit


def test_the_kernel_tells_how_many_there_can_be() -> None:
    assert process_share.kernel_limit() > 300
