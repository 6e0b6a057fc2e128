"""Helpers of the environment tests: a sandbox that is none, and ways to pack trainers."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.engines.local.processes import confined_call
from cloud_ml.engines.local.processes.launch import Fence
from cloud_ml.environments.base import Bind
from cloud_ml.environments.process import run

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
OPEN_FENCE = Fence(bwrap="", init="", seat="", filter=None, user=None)


def environment_home() -> Path:
    """Where environments of tests live, so that big packages are downloaded once."""
    return Path(os.environ.get("CLOUDML_TEST_CACHE") or REPOSITORY / ".cache" / "test-environments")


@dataclass
class OpenSandbox:
    """A `Sandbox` without any fence, which counts what it ran."""

    commands: list[list[str]] = field(default_factory=list)
    isolated: bool = False
    objection: str | None = None
    forks: bool = True

    def run(
        self,
        command: Sequence[str],
        *,
        read_only: Sequence[Bind],
        writable: Sequence[Bind],
        environment: Mapping[str, str],
        network: bool,
        timeout_s: float,
        output: Callable[[bytes], None],
    ) -> int:
        self.commands.append(list(command))
        assert all(Path(bind.source).exists() for bind in (*read_only, *writable))
        return run(
            command,
            environment=environment,
            timeout_s=timeout_s,
            output=output,
            folder=writable[0].source,
        )

    def call(
        self,
        function: Callable[[], None],
        *,
        folder: Path,
        inputs: Sequence[int],
        timeout_s: float,
        small: bool,
    ) -> int | None:
        if not self.forks:
            return None
        return confined_call.run(
            OPEN_FENCE, function, folder=folder, inputs=inputs, group=None, timeout_s=timeout_s
        )

    def guard(self, folders: Sequence[Path]) -> Callable[[], str | None]:
        return lambda: self.objection if folders else None


def pack(folder: Path, target: Path, top: str = "trainer-1.0") -> Path:
    """A ``.tar.gz`` of ``folder`` with everything below ``top``, as an sdist has it."""
    with tarfile.open(target, "w:gz") as archive:
        archive.add(
            folder, top, filter=lambda member: None if "__pycache__" in member.name else member
        )
    return target


def python(
    python: str, environment: Mapping[str, str], *arguments: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the prepared interpreter as a job would."""
    return subprocess.run(
        [python, *arguments],
        env=dict(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
