"""What stands in folders around the platform's own says nothing about what jobs get."""

from __future__ import annotations

import sys
from pathlib import Path

from cloud_ml.bootstrap.programs import find_uv
from cloud_ml.environments import interpreter as interpreters
from cloud_ml.environments.packages import pipconfig
from cloud_ml.environments.packages.uv import Uv
from cloud_ml.environments.process import OutputTail
from support.environments import OpenSandbox


def test_a_configuration_of_uv_above_the_folder_is_not_read(tmp_path: Path) -> None:
    """Without a mount table of its own, a tool sees all folders above the one that it runs in."""
    (tmp_path / "uv.toml").write_text("this is [no TOML")
    (below := tmp_path / "below").mkdir()
    (requirements := below / "requirements.txt").write_text("")
    python, words = Path(sys.executable), OutputTail()
    uv = Uv(find_uv(), pipconfig.read({}, []), below / "cache", 60.0, OpenSandbox())
    code = uv.run(
        ["compile", str(requirements), "--output-file", str(below / "lock.txt")],
        output=words,
        interpreter=interpreters.from_answer(python, interpreters.ask(python)),
        reads=[requirements],
        writes=[below],
        offline=True,
    )
    assert code == 0, words.kept
