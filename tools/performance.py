"""Fills the tables of ``docs/performance.md`` from what the benchmarks have written to
``benchmarks/results``.

A table stands between ``<!-- figures: part part … -->`` and ``<!-- end -->``; that of
``<!-- missed -->`` has what does not reach its target, with the reason from
``benchmarks/reasons.toml``. Run: ``python tools/performance.py``; with ``--check`` it only says
whether the page is as it would make it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
_TABLE = re.compile(r"(<!-- figures: ([a-z_. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MISSED = re.compile(r"(<!-- missed -->\n).*?(<!-- end -->)", re.DOTALL)
_MISSED_HEAD = (
    "| What | Measured | Target | Why | What it would take |\n| --- | --- | --- | --- | --- |\n"
)
_HEAD = (
    "| What | Measured | Target | | Beside, in the same run |\n| --- | --- | --- | --- | --- |\n"
)


def filled(page: str, results: dict[str, Any]) -> str:
    """The page with its tables as the results have them."""

    def table(found: re.Match[str]) -> str:
        parts = [results[part] for part in found[2].split() if part in results]
        rows = "".join(_row(same) for part in parts for same in _together(part["figures"]))
        sources = "".join(f"- {_taken(part)}\n" for part in parts) or "Not measured yet.\n"
        return f"{found[1]}\n{_HEAD + rows if rows else ''}\n{sources}\n{found[3]}"

    return _TABLE.sub(table, page)


def with_reasons(page: str, results: dict[str, Any], reasons: Sequence[dict[str, str]]) -> str:
    """The page with its table of targets that are missed, each once."""
    rows: dict[str, str] = {}
    for part in results.values():
        for figure in part["figures"]:
            if not figure["met"]:
                rows.setdefault(figure["what"], _missed(figure, reasons))
    met = sum(figure["met"] for part in results.values() for figure in part["figures"])
    summary = f"{met} of the figures above reach their target, {len(rows)} do not.\n"
    table = _MISSED_HEAD + "".join(rows.values()) if rows else ""
    return _MISSED.sub(lambda found: f"{found[1]}\n{summary}\n{table}\n{found[2]}", page)


def _missed(figure: dict[str, Any], reasons: Sequence[dict[str, str]]) -> str:
    fitting = [one for one in reasons if figure["what"].startswith(one["what"])]
    reason = max(
        fitting,
        key=lambda one: len(one["what"]),
        default={"why": "not known", "takes": "to find out"},
    )
    bound = f"{'≥' if figure['least'] else '≤'} {_number(figure['target'])} {figure['unit']}"
    measured = f"{_number(figure['ours'])} {figure['unit']}"
    return f"| {figure['what']} | {measured} | {bound} | {reason['why']} | {reason['takes']} |\n"


def _together(figures: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """One list for each figure of ours: it is there once for each that it stands beside."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        found.setdefault(figure["what"], []).append(figure)
    return list(found.values())


def _row(same: Sequence[dict[str, Any]]) -> str:
    ours = same[0]
    unit = ours["unit"]
    note = f" ({ours['note']})" if ours["note"] else ""
    bound = f"{'≥' if ours['least'] else '≤'} {_number(ours['target'])} {unit}"
    verdict = "met" if all(figure["met"] for figure in same) else "**not met**"
    others = "; ".join(_beside(figure) for figure in same if figure["reference"])
    return f"| {ours['what']} | {_number(ours['ours'])} {unit}{note} | {bound} | {verdict} | {others} |\n"


def _beside(figure: dict[str, Any]) -> str:
    times = f"{figure['reference'] / figure['ours']:.2g}" if figure["ours"] else "∞"
    return f"{figure['beside']} {_number(figure['reference'])} ({times} × ours)"


def _number(value: float) -> str:
    """Three digits that count; thousands with a comma."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _taken(part: dict[str, Any]) -> str:
    machine = part["machine"]
    return (
        f"`{part['part']}`, {part['taken']}, in {part['took_s']} s: {machine['cores']} cores "
        f"({machine['cpu']}), {machine['memory_gib']} GiB, Linux {machine['linux']}, Python "
        f"{machine['python']}; load before {machine['load_before']}"
    )


def main() -> int:
    results = {
        file.stem: json.loads(file.read_text())
        for file in sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    }
    before = PAGE.read_text()
    reasons = tomllib.loads((ROOT / "benchmarks" / "reasons.toml").read_text())["reason"]
    after = with_reasons(filled(before, results), results, reasons)
    if "--check" in sys.argv:
        if before != after:
            print(
                "docs/performance.md is not what benchmarks/results say: run 'make performance'",
                file=sys.stderr,
            )
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
