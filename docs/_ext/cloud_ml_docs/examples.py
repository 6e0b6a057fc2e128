"""The examples on several processes: a block for each, which opens on a click."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "distributed"


def distributed() -> str:
    """Each script of the folder under its first line, which has the command that runs it."""
    return "\n\n".join(_block(path) for path in sorted(FOLDER.glob("*.py")))


def _block(path: Path) -> str:
    source = path.read_text("utf-8")
    title, _, command = source.splitlines()[0].strip('"').partition(": ")
    return (
        f"<details><summary>{title}</summary>\n\n```console\n$ {command}\n```\n\n"
        f"```python\n{source.partition(chr(10))[2].strip()}\n```\n\n</details>"
    )
