"""Fixtures: a real local engine with every fence that this machine gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import Findings, probe
from cloud_ml.objects.base import LocalFolders
from cloud_ml.settings import EngineSettings
from support.buckets_below import BucketsBelow
from support.machine import end_engine
from support.paths_as_digests import PathsAsDigests

SETTINGS = EngineSettings(
    usage_period_s=0.3, thrash_s=5.0, log_limit_bytes=256 * 1024, max_processes=200
)


def findings_in(root: Path, settings: EngineSettings) -> Findings:
    """What this machine gives to an engine whose folder is ``root``."""
    Ledger(root).create()
    return probe(
        settings, root=root, environments_home=root / "e", runtimes_dir=root / "r", uv=Path("uv")
    )


@contextlib.asynccontextmanager
async def running(
    findings: Findings, folders: LocalFolders | None = None
) -> AsyncIterator[LocalEngine]:
    """An engine, started; nothing of it is left afterwards."""
    engine = LocalEngine(findings, folders=folders, packages=PathsAsDigests())
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()
        end_engine(findings.config)


@pytest.fixture
def engine_settings() -> EngineSettings:
    """What tests may override."""
    return SETTINGS


@pytest.fixture
def findings(tmp_path: Path, engine_settings: EngineSettings) -> Findings:
    """What this machine gives."""
    return findings_in(tmp_path / "engine", engine_settings)


@pytest.fixture
async def engine(findings: Findings, tmp_path: Path) -> AsyncIterator[LocalEngine]:
    """An engine of one test alone. Folders of the test are its buckets."""
    async with running(findings, BucketsBelow(tmp_path)) as engine:
        yield engine


@pytest.fixture(scope="module")
def shared_findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What this machine gives to the engine that the tests of a module share."""
    return findings_in(tmp_path_factory.mktemp("shared") / "engine", SETTINGS)


@pytest.fixture(scope="module")
async def shared_engine(shared_findings: Findings) -> AsyncIterator[LocalEngine]:
    """An engine for tests of a module that look only at gangs of their own."""
    async with running(shared_findings) as engine:
        yield engine
