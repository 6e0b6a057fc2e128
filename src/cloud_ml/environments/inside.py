"""Running our own builder as a tenant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloud_ml.environments import interpreter, process
from cloud_ml.environments.base import EnvironmentFailed, Sandbox
from cloud_ml.environments.packages.uv import same_place

_PACKAGE = Path(__file__).resolve().parent.parent
_START = """
import importlib.util, sys
folder = sys.argv.pop(1)  # by its own name: where it lies may be closed, or full of other packages
found = importlib.util.spec_from_file_location("cloud_ml", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["cloud_ml"] = importlib.util.module_from_spec(found)
found.loader.exec_module(sys.modules["cloud_ml"])
from cloud_ml.environments.builder import stage
sys.exit(stage.main(sys.argv[1:]))
"""


def call(
    sandbox: Sandbox,
    task: str,
    arguments: Sequence[str],
    *,
    writes: Sequence[Path],
    timeout_s: float,
    output: process.Output,
    reads: Sequence[Path] = (),
) -> int:
    """Run ``builder.stage`` with ``task`` and ``arguments`` in the sandbox, without a network; its
    exit code.

    Raises:
        EnvironmentFailed: It did not end in time, or could not be started.
    """
    python = interpreter.own()
    home = str(writes[0])
    try:
        return sandbox.run(
            [str(python.path), "-I", "-S", "-B", "-c", _START, str(_PACKAGE), task, *arguments],
            read_only=same_place(_PACKAGE, *([python.prefix] if python.mounted else []), *reads),
            writable=same_place(*writes),
            environment={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": home,
                "TMPDIR": home,
                "LANG": "C.UTF-8",
            },
            network=False,
            timeout_s=timeout_s,
            output=output,
        )
    except TimeoutError as error:
        raise EnvironmentFailed(
            "EnvironmentFailed", f"the trainer's build took longer than {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise EnvironmentFailed(
            "EnvironmentFailed", f"the trainer's build cannot be started: {error}"
        ) from error
