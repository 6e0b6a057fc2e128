"""Version 2 of control groups by the real kernel, as far as this machine's first version leaves
it something.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.cgroups import HierarchyV2


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A mount of version 2 of our own."""
    folder = tmp_path / "cgroup2"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "cgroup2", "none", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"version 2 cannot be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_joining_and_killing_in_version_2(mounted: Path) -> None:
    hierarchy = HierarchyV2(str(mounted / f"cloudml-test-{os.getpid()}"))
    group = hierarchy.make("task-1")
    try:
        code = "import os, time; os.fork(); os.write(1, b'up\\n'); time.sleep(600)"
        job = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            preexec_fn=group.join,  # noqa: PLW1509
        )
        assert job.stdout is not None
        assert [job.stdout.readline(), job.stdout.readline()] == [b"up\n", b"up\n"]
        assert job.pid in group.processes()
        assert group.kill() == 2
        assert job.wait() == -signal.SIGKILL
        assert job.stdout.read() == b"", "its child is gone too: nobody holds the pipe"
        job.stdout.close()
    finally:
        group.kill()
        while not group.remove():  # the kernel lets go of the killed in its own time
            os.sched_yield()
        hierarchy.remove()


def test_without_the_memory_controller_nothing_is_left_behind(mounted: Path) -> None:
    if "memory" in (mounted / "cgroup.controllers").read_text().split():
        pytest.skip(
            "the memory controller belongs to version 2 here, so limits are tested with the "
            "whole engine"
        )
    found, why = cgroups.find("cloudml-test-nothing", root=mounted, own="0::/\n")
    assert found is None
    assert "limits are not enforced" in why
    assert not (mounted / "cloudml-test-nothing").exists()
