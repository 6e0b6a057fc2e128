from __future__ import annotations

import subprocess
import sys

_QUESTION = """
import sys
before = set(sys.modules)
import cloud_ml.environments.build
print(*(set(sys.modules) - before))
"""

_MAY_BE_LOADED = ("cloud_ml.environments", "cloud_ml.launcher", "cloud_ml.text_encoding")


def test_the_package_is_cheap_to_import_and_stands_alone() -> None:
    """It is imported into a resident process from which every supervisor is forked.

    What few preparations need stays out; what all of them need must not be imported by each
    supervisor anew.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _QUESTION], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"subprocess", "difflib", "asyncio", "urllib.request", "compileall"}
    assert {"tomllib", "configparser"} <= loaded
    ours = {name for name in loaded if name.startswith("cloud_ml.")}
    assert all(name.startswith(_MAY_BE_LOADED) for name in ours), ours
    assert {name for name in ours if name.startswith("cloud_ml.launcher.")} == {
        "cloud_ml.launcher.archives"
    }
    assert {name.partition(".")[0] for name in loaded} - {"cloud_ml"} <= sys.stdlib_module_names
