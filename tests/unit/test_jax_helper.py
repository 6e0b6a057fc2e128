"""``cloud_ml_jax``: a task of JAX that fails does not wait for the others at its end.

``tests/faults/test_frameworks.py`` has the same with JAX itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cloud_ml.environments
from support.server import made

HOOKS = Path(cloud_ml.environments.__file__).parent / "compat" / "job"
CLIENT = """
import atexit

class Client:
    def __del__(self):
        print("closed")

class State:
    client = Client()

global_state = State()
atexit.register(lambda: print("known", global_state.client is not None))
"""


@pytest.mark.parametrize(
    ("end", "code", "waits"),
    [
        ("", 0, True),
        ("sys.exit()", 0, True),
        ("sys.exit(0)", 0, True),
        ("sys.exit(3)", 3, False),
        ("sys.exit('why')", 1, False),
        ("raise KeyError('lost')", 1, False),
    ],
)
@pytest.mark.parametrize("has_jax", [True, False])
def test_only_a_good_end_closes_the_connection(
    end: str, code: int, waits: bool, has_jax: bool, tmp_path: Path
) -> None:
    files = {"jax/__init__.py": "", "jax/_src/__init__.py": "", "jax/_src/distributed.py": CLIENT}
    used = "import jax._src.distributed" if has_jax else ""
    made(tmp_path, {**files, "trained.py": f"import sys\n{used}\n{end}\n"})
    start = f"import runpy, site; site.addsitedir({str(HOOKS)!r}); "
    start += "runpy._run_module_as_main('trained')"
    ran = subprocess.run(
        [sys.executable, "-c", start],
        env={"JAX_COORDINATOR_ADDRESS": "worker-0:20000", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stdout == ("known True\nclosed\n" if waits else "known False\n") * has_jax
    assert ("KeyError: 'lost'" in ran.stderr) == end.startswith("raise")
