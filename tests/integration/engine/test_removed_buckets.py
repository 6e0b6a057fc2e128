"""A bucket that is removed while an attempt starts or runs fails no job, and its name opens no
other folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.gang import Gang, Mount
from cloud_ml.engines.local.engine import LocalEngine
from support.gangs import output, printed, shell, when

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("removed-buckets")]

HOLD = "echo holding; while ! test -e go; do sleep 0.02; done"
SHOW = "ls /storage; cat /storage/scratch/secret 2>/dev/null; echo done"


@pytest.fixture
def buckets(tmp_path: Path) -> tuple[Mount, ...]:
    """Two, of which one will be removed."""
    for name in ("kept", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    return tuple(Mount(name, f"/storage/{name}", writable=True) for name in ("kept", "scratch"))


@pytest.fixture(autouse=True)
def sandbox(engine: LocalEngine) -> None:
    if not engine._config.bwrap:
        pytest.skip("there is no sandbox here")


async def starting(engine: LocalEngine, mounts: tuple[Mount, ...]) -> Gang:
    """A gang whose prepare command waits to be told to go on."""
    gang = shell(SHOW, prepare_command=HOLD, mounts=mounts)
    await engine.ensure(gang)
    await printed(engine, gang.key, "holding")
    return gang


async def ended(engine: LocalEngine, gang: Gang) -> str:
    (Path(engine._config.root) / "jobs" / gang.key.job_uid / "work" / "go").touch()
    seen = await when(engine, gang.key, lambda g: g.state.over)
    log = await output(engine, gang.key)
    assert seen.succeeded, (seen, log)
    return log


async def test_a_bucket_that_is_removed_while_a_job_starts_is_left_out(
    engine: LocalEngine, tmp_path: Path, buckets: tuple[Mount, ...]
) -> None:
    gang = await starting(engine, mounts=buckets)
    (tmp_path / "scratch").rmdir()
    assert await ended(engine, gang) == (
        "holding\ncloudml: the bucket scratch was removed; the job does not see it\nkept\ndone\n"
    )


async def test_a_bucket_that_has_got_the_name_meanwhile_is_not_shown(
    engine: LocalEngine, tmp_path: Path, buckets: tuple[Mount, ...]
) -> None:
    gang = await starting(engine, mounts=buckets)
    (tmp_path / "scratch").rmdir()
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch").chmod(0o777)
    (tmp_path / "scratch" / "secret").write_text("of another organisation")
    assert "of another" not in await ended(engine, gang)


async def test_a_bucket_that_is_removed_while_a_job_runs_does_not_fail_its_finish_command(
    engine: LocalEngine, tmp_path: Path, buckets: tuple[Mount, ...]
) -> None:
    gang = shell(HOLD, finish_command=SHOW, mounts=buckets)
    await engine.ensure(gang)
    await printed(engine, gang.key, "holding")
    (tmp_path / "scratch").rmdir()
    assert (await ended(engine, gang)).endswith("kept\ndone\n")
