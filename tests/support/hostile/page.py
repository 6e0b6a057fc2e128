"""The table of ``docs/security.md`` that says which fence holds which attack:
``python -m support.hostile.page``.
"""

from __future__ import annotations

from pathlib import Path

from support.hostile import files, kernel, processes, sharing
from support.hostile.attack import Attack

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
_BEGIN, _END = "<!-- attacks of jobs -->", "<!-- end of attacks of jobs -->"
_PARTS = {
    "Files": files,
    "Processes and limits": processes,
    "The kernel's doors": kernel,
    "What is shared": sharing,
}


def table() -> str:
    """As the page has it."""
    lines = [
        "| A job tries to | Test | Sandbox | Landlock alone |",
        "| --- | --- | --- | --- |",
    ]
    for part, module in _PARTS.items():
        lines.append(f"| **{part}** | | | |")
        attacks = [one for one in vars(module).values() if isinstance(one, Attack)]
        for one in attacks:
            title = one.title[0].lower() + one.title[1:]
            lines.append(
                f"| {title} | `{one.name}` | held | {'held' if one.landlock else '**not held**'} |"
            )
    return "\n".join(lines)


def written() -> str:
    """What stands in the page."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0].strip()


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{rest.partition(_END)[2]}")
