"""Fills the tables of ``docs/performance.md`` from what the benchmarks have written to ``benchmarks/results``.

A table stands between ``<!-- figures: part part … -->`` and ``<!-- end -->``. Run: ``python tools/performance.py``;
with ``--check`` it only says whether the page is as it would make it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
_TABLE = re.compile(r"(<!-- figures: ([a-z_. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = "| What | Measured | Target | | Beside, in the same run | Ratio |\n| --- | --- | --- | --- | --- | --- |\n"


def filled(page: str, results: dict[str, Any]) -> str:
    """The page with its tables as the results have them."""

    def table(found: re.Match[str]) -> str:
        parts = [results[part] for part in found[2].split() if part in results]
        rows = "".join(_row(figure) for part in parts for figure in part["figures"])
        said = "".join(f"- {_taken(part)}\n" for part in parts) or "Not measured yet.\n"
        return f"{found[1]}\n{_HEAD + rows if rows else ''}\n{said}\n{found[3]}"

    return _TABLE.sub(table, page)


def _row(figure: dict[str, Any]) -> str:
    unit, reference = figure["unit"], figure["reference"]
    note = f" ({figure['note']})" if figure["note"] else ""
    beside = f"{_number(reference)} {unit}, {figure['beside']}" if reference else ""
    ratio = f"{figure['ours'] / reference:.2g} ×" if reference else ""
    bound = f"{'≥' if figure['least'] else '≤'} {_number(figure['target'])} {unit}"
    verdict = "met" if figure["met"] else "**not met**"
    return f"| {figure['what']} | {_number(figure['ours'])} {unit}{note} | {bound} | {verdict} | {beside} | {ratio} |\n"


def _number(value: float) -> str:
    """Three digits that count; thousands with a comma."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _taken(part: dict[str, Any]) -> str:
    machine = part["machine"]
    return (
        f"`{part['part']}`, {part['taken']}, in {part['took_s']} s: {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, Linux {machine['linux']}, Python {machine['python']}; load before "
        f"{machine['load_before']}"
    )


def main() -> int:
    results = {file.stem: json.loads(file.read_text()) for file in (ROOT / "benchmarks" / "results").glob("*.json")}
    before = PAGE.read_text()
    after = filled(before, results)
    if "--check" in sys.argv:
        if before != after:
            print("docs/performance.md is not what benchmarks/results say: run 'make performance'", file=sys.stderr)
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
