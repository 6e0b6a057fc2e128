"""What a job is left with that it was never given: descriptors and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.settings import EngineSettings
from support.attacks import attack
from support.machine import spawner_pid

pytestmark = pytest.mark.anyio

SECRET = "do-not-tell-5120"
_DESCRIPTORS = """
found = {}
for name in os.listdir("/proc/self/fd"):
    with contextlib.suppress(FileNotFoundError):  # the one that lists
        found[name] = os.readlink("/proc/self/fd/" + name).partition(":")[0]
tell(found)
"""


@pytest.fixture(params=["auto", "landlock", "none"])
def engine_settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> EngineSettings:
    monkeypatch.setenv("CLOUDML_BOOTSTRAP_SECRET_KEY", SECRET)
    return EngineSettings(sandbox=request.param)


async def test_a_job_is_left_with_nothing_that_it_was_not_given(engine: LocalEngine) -> None:
    assert await attack(engine, _DESCRIPTORS) == {"0": "/dev/null", "1": "pipe", "2": "pipe"}
    names = set(await attack(engine, "tell(sorted(os.environ))"))
    expected = {"PATH", "LANG", "USER", "HOME", "TMPDIR", "PYTHONUNBUFFERED"}
    expected |= {"CLOUDML_GANG", "CLOUDML_METRICS", "CLOUDML_NOTICE", "CLOUDML_PROGRESS"}
    assert names - {"PWD", "LC_CTYPE"} == expected
    environment = Path(f"/proc/{spawner_pid(engine._root)}/environ").read_text()
    assert SECRET in environment, "it was there to be leaked"
