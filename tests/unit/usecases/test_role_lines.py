"""The lines of one role among those of all tasks."""

from __future__ import annotations

import pytest

from cloud_ml.usecases.jobs.role_lines import RoleLines

LOG = (
    b"[ps-0] a\n[worker-0] [ps-0] not mine\n\ncloudml: [ps-0] no\n[ps-1] b\n[ps-x] no\n[pss-0] no\n"
    b"[ps-12] " + b"long" * 200 + b"\n[worker-1] " + b"x" * 999 + b"\n[ps-0] last"
)
PS = b"[ps-0] a\n[ps-1] b\n[ps-12] " + b"long" * 200 + b"\n[ps-0] last"


@pytest.mark.parametrize("size", [1, 2, 7, 300, 10_000])
def test_it_is_the_same_however_the_log_is_cut(size: int) -> None:
    lines = RoleLines("ps")
    found = [lines.feed(LOG[start : start + size]) for start in range(0, len(LOG), size)]
    assert b"".join(found) + lines.end() == PS


def test_a_time_may_stand_before_each_line() -> None:
    stamped = b"2026-01-01T00:00:00.000Z [ps-0] a\n2026-01-01T00:00:00.000Z [worker-0] b\n"
    assert RoleLines("ps", timestamps=True).feed(stamped) == stamped[: stamped.index(b"\n") + 1]
    assert RoleLines("ps").feed(stamped) == b""


def test_half_a_line_of_another_role_is_none() -> None:
    lines = RoleLines("ps")
    assert lines.feed(b"[worker-0] half") + lines.end() == b""
