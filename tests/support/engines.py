"""Fixtures: a real local engine with every fence that this machine gives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.settings import EngineSettings
from support.machine import end_engine


@pytest.fixture
def engine_settings() -> EngineSettings:
    """What tests may override."""
    return EngineSettings(usage_period_s=0.3, thrash_s=5.0, log_limit_bytes=256 * 1024, max_processes=200)


@pytest.fixture
def findings(tmp_path: Path, engine_settings: EngineSettings) -> Findings:
    """What this machine gives."""
    root = tmp_path / "engine"
    Ledger(root).create()
    return probe(engine_settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=Path("uv"))


@pytest.fixture
async def engine(findings: Findings) -> AsyncIterator[LocalEngine]:
    """The engine, started; nothing of it is left afterwards."""
    engine = LocalEngine(findings)
    await engine.start()
    yield engine
    await engine.close()
    end_engine(findings.config)
