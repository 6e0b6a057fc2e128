"""Quotas as tables."""

from __future__ import annotations

import pytest

from cloud_ml.cli.quota.tables import show
from cloud_ml.models.admin.quota import OrgQuota


@pytest.mark.parametrize(
    ("limit", "used", "line"),
    [
        (2**30, None, "Storage limit: 1G"),
        (None, None, "Storage limit: unlimited"),
        (0, None, "Storage limit: 0"),
        (2**30, 0, "Storage: 0 / 1G"),
    ],
)
def test_storage_has_a_line(
    limit: int | None, used: int | None, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(OrgQuota(org="lab", org_id="1", items=[], storage_limit=limit, storage_used=used))
    assert capsys.readouterr().out.splitlines()[-2] == line
