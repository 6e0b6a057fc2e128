"""Where a C compiler cannot link statically, the system's loader looks at the variables of the first
process in a sandbox, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local import init
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.probe import Findings
from cloud_ml.settings import EngineSettings
from support.attacks import attack
from support.engines import findings_in

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("job-listeners")]

LIBRARY = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void) {
    close(open(getpid() == 1 ? "/work/in-init" : "/work/in-job", O_CREAT | O_WRONLY, 0666));
}
"""


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    compile_program = init._compile

    def compile_dynamic(compiler: str, source: Path, made: Path, *options: str) -> str:
        return "no static library" if options else compile_program(compiler, source, made)

    monkeypatch.setattr(init, "_compile", compile_dynamic)
    return findings_in(tmp_path / "engine", EngineSettings(network="none"))


async def test_a_library_of_a_job_is_not_loaded_beside_the_socket(engine: LocalEngine) -> None:
    """With a copy of the socket it could have the server wait in accept(2), for all jobs."""
    if not engine.server_address():
        pytest.skip("no sandbox, or no C compiler: " + "; ".join(engine.missing()))
    outcomes = await attack(
        engine,
        "tell([outcome(os.stat, '/work/in-' + place) for place in ('job', 'init')])",
        network="none",
        prepare_command=f"cc -shared -fPIC -o /work/a.so -x c - << 'END'\n{LIBRARY}\nEND\n",
        variables={"LD_PRELOAD": "/work/a.so"},
    )
    assert outcomes == ["done", "ENOENT"]
