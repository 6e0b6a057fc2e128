"""The table of moves of a job, from ``cloud_ml.domain.workloads.phases``."""

from __future__ import annotations

from cloud_ml.domain.workloads.phases import MOVES, WIRE_STATES, Phase
from cloud_ml_docs.markdown import code, table


def moves() -> str:
    """What may follow what, and the word of the original wire."""
    rows = [
        (
            code(phase),
            ", ".join(code(after) for after in MOVES[phase]) or "nothing: it is final",
            code(WIRE_STATES[phase]),
            "yes" if phase.active else "",
        )
        for phase in Phase
    ]
    return table(
        ("Phase", "May be followed by", "State on the original wire", "Holds a place"), rows
    )
