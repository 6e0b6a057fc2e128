"""Secrets of a gang: files in its sandbox's memory and variables, on no disk, in no argument
list, and gone with it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey, JobSecret
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.settings import EngineSettings
from support.attacks import attack
from support.gangs import printed, run, shell, when

pytestmark = pytest.mark.anyio

FILE, VARIABLE = "in-a-file-7731", "in-a-variable-7732"
_LOOK = """
path = "/run/secrets/db"
tell({
    "file": open(path).read(), "mode": os.stat(path).st_mode & 0o777, "owner": os.stat(path).st_uid == os.getuid(),
    "write": outcome(lambda: open(path, "r+")), "remove": outcome(os.unlink, path),
    "add": outcome(lambda: open("/run/secrets/more", "w")), "all": sorted(os.listdir("/run/secrets")),
    "variable": os.environ["TOKEN"], "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
})
"""


def secret(name: str, value: bytes, variable: str = "") -> JobSecret:
    return JobSecret(name, variable, base64.b64encode(value).decode())


SECRETS = (secret("db", FILE.encode()), secret("token", f"{VARIABLE}\r\n".encode(), "TOKEN"))


def lies_about(root: Path) -> list[str]:
    """Where one of the values, or its base64, is to be seen: files of the engine, arguments of
    any process.
    """
    values = [
        form
        for one in (FILE, VARIABLE)
        for form in (one.encode(), base64.b64encode(one.encode())[:-4])
    ]
    found = []
    for path in root.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and any(value in path.read_bytes() for value in values):
                found.append(str(path))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(value in " ".join(process.cmdline()).encode() for value in values):
                found.append(f"process {process.pid}")
    return found


def sandboxed(engine: LocalEngine) -> None:
    if not engine._config.bwrap:
        pytest.skip("no sandbox here: " + "; ".join(engine.missing()))


async def test_a_job_has_its_secrets_and_cannot_change_them(engine: LocalEngine) -> None:
    sandboxed(engine)
    large = os.urandom(
        1 << 20
    )  # more than a pipe holds, and than one line of the spawner's used to
    found: dict[str, Any] = await attack(engine, _LOOK, secrets=(*SECRETS, secret("large", large)))
    refused = ("EROFS", "EACCES", "EPERM", "EBUSY")
    assert found.pop("write") in refused
    assert found.pop("remove") in refused
    assert found.pop("add") in refused
    assert found == {
        "file": FILE, "mode": 0o600, "owner": True, "all": ["db", "large"], "variable": VARIABLE,
        "descriptors": ["0", "1", "2"],
    }  # fmt: skip


async def test_every_command_of_an_attempt_has_them_and_its_neighbour_has_not(
    engine: LocalEngine,
) -> None:
    sandboxed(engine)
    line = "cat /run/secrets/db; echo; echo $TOKEN | wc -c"
    _, log = await run(
        engine, shell(line, prepare_command=line, finish_command=line, secrets=SECRETS)
    )
    assert log.splitlines() == [FILE, str(len(VARIABLE) + 1)] * 3
    seen, log = await run(engine, shell("ls /run/secrets; test -z $TOKEN"))
    assert FILE not in log
    assert "No such file" in log
    assert seen.succeeded


async def test_a_secret_is_on_no_disk_and_a_killed_supervisor_leaves_nothing(
    engine: LocalEngine,
) -> None:
    sandboxed(engine)
    gang = shell("cat /run/secrets/db > /dev/null; echo up; exec sleep 600", secrets=SECRETS)
    await engine.ensure(gang)
    await printed(engine, gang.key, "up")
    assert lies_about(engine._root) == []
    gate = engine._ledger.gate(gang.key)
    assert gate is not None
    os.kill(gate.pid, signal.SIGKILL)
    seen = await when(engine, GangKey(gang.key.job_uid, 1), lambda one: one.state.over)
    assert seen.reason is Reason.SUPERVISOR_LOST
    assert lies_about(engine._root) == []
    assert FILE not in repr(gang)


class TestWithoutSandbox:
    @pytest.fixture
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(sandbox="none", cgroups="none")

    async def test_files_are_refused_and_variables_work(self, engine: LocalEngine) -> None:
        seen, log = await run(engine, shell("echo $TOKEN | wc -c", secrets=SECRETS[1:]))
        assert (seen.succeeded, log.strip()) == (True, str(len(VARIABLE) + 1))
        seen, _ = await run(engine, shell("true", secrets=SECRETS))
        assert seen.reason is Reason.START_FAILED
        assert "NAME=VARIABLE" in seen.message
