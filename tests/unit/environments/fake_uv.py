"""A ``uv`` for tests: resolves every name to 1.0, installs empty packages, and can be told to
fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python} -IS
import json, pathlib, re, sys
place = pathlib.Path({place!r})
arguments = sys.argv[1:]
with (place / "calls").open("a") as file:
    file.write(json.dumps(arguments) + "\\n")
refused = (place / "refused").read_text().split() if (place / "refused").exists() else []
unknown = (place / "unknown").read_text().split() if (place / "unknown").exists() else []
needs_new = (place / "needs_new").read_text().split() if (place / "needs_new").exists() else []
excluded = (place / "excluded").read_text().split() if (place / "excluded").exists() else []
needs_build = (place / "needs_build").read_text().split() if (place / "needs_build").exists() else []

def after(option):
    return pathlib.Path(arguments[arguments.index(option) + 1])

def names(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith((" ", "#"))]
    return sorted(set(re.split("[^A-Za-z0-9-]", line)[0] for line in lines))

if arguments[1] == "compile":
    wanted = names(pathlib.Path(arguments[arguments.index("--output-file") + 2]))
    for name in wanted:
        if name in unknown:
            sys.exit("error: No solution found when resolving dependencies\\n  cause: Because "
                + name + " was not found in the package registry and you require " + name
                + "==9, we can conclude that your requirements are unsatisfiable.")
        if name in refused or (name in needs_build and "--only-binary" in arguments):
            sys.exit("  x No solution found: there is no " + name)
    def version(name):
        alone = "--no-deps" in arguments
        held_back = name in excluded or (name in needs_new and "--only-binary" in arguments)
        return "0.1" if held_back and not alone else "1.0"
    entry = "{{}}=={{}} \\\\\\n    --hash=sha256:00\\n"
    lock = "".join(entry.format(name, version(name)) for name in wanted)
    after("--output-file").write_text(lock)
elif (place / "offline").exists() and int((place / "offline").read_text()) > 0:
    (place / "offline").write_text(str(int((place / "offline").read_text()) - 1))
    target = after("--target")
    target.mkdir(parents=True, exist_ok=True)
    (target / "half.py").write_text("")
    sys.exit("error: Failed to fetch: https://h/x.whl\\n  Caused by: dns error: failed to lookup address")
elif (place / "broken").exists():
    sys.exit("error: Failed to install: disk of glass")
else:
    target = after("--target")
    for name in names(after("--requirement")):
        (target / name).mkdir(parents=True)
        (target / name / "__init__.py").write_text("")
        (target / (name + "-1.0.dist-info")).mkdir()
        (target / (name + "-1.0.dist-info") / "METADATA").write_text("Name: " + name + "\\nVersion: 1.0\\n")
"""


class FakeUv:
    """The program at ``path``; ``refuse`` and its like change how it behaves from then on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.path = folder / "uv"
        self.path.write_text(_PROGRAM.format(python=sys.executable, place=str(folder)))
        self.path.chmod(0o755)

    @property
    def calls(self) -> int:
        """How often it was called."""
        file = self._folder / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def refuse(self, *names: str) -> None:
        """Have no version of ``names``."""
        (self._folder / "refused").write_text(" ".join(names))

    def not_know(self, *names: str) -> None:
        """Have no package of ``names``."""
        (self._folder / "unknown").write_text(" ".join(names))

    def need_build(self, *names: str) -> None:
        """Have no wheels of ``names``."""
        (self._folder / "needs_build").write_text(" ".join(names))

    def have_old_wheels(self, *names: str) -> None:
        """Have wheels of 0.1 only for what ``names`` need: 1.0 takes a build."""
        (self._folder / "needs_new").write_text(" ".join(names))

    def exclude_newest(self, *names: str) -> None:
        """Have other requirements exclude 1.0 of ``names``."""
        (self._folder / "excluded").write_text(" ".join(names))

    def lose_network(self, times: int) -> None:
        """Fail so many installations for want of a network."""
        (self._folder / "offline").write_text(str(times))

    def break_installing(self) -> None:
        """Fail at every installation."""
        (self._folder / "broken").touch()
