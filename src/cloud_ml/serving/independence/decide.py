"""Who decides whether calls of a signature run together, and in which order they are asked."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.serving.independence import probe
from cloud_ml.serving.independence.evidence import BatchingDecision, Evidence
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Signature

log = logging.getLogger(__name__)

NOTHING = Evidence(False, "default", "nothing shows that its rows are independent of each other")


def decide(signature: Signature, evidence: Evidence, operator: bool | None) -> BatchingDecision:
    """The decision before the model ran: of the operator, else of the model itself, else of its
    graph or kind.
    """
    if not signature.has_rows:
        return BatchingDecision(
            False, "signature", "an input or output has no open first dimension"
        )
    if operator is not None:
        word = "allowed" if operator else "switched off"
        reason = f"batching is {word} by the settings of the server"
        doubt = "" if evidence.independent or not operator else f"not proven: {evidence.reason}"
        return BatchingDecision(operator, "operator", reason, doubt)
    if signature.batching is not None:
        return signature.batching
    return BatchingDecision(evidence.independent, evidence.source, evidence.reason)


def judge_difference(decision: BatchingDecision, difference: str) -> BatchingDecision:
    """The decision after the model ran: a row that differs among others takes the right away.

    Where the operator decided, there is a warning only.
    """
    if not decision.enabled or not difference:
        return decision
    if decision.decided_by == "operator":
        return replace(decision, warning=difference)
    return BatchingDecision(False, "probe", difference, f"before it ran: {decision.reason}")


def decide_all(
    name: str,
    model: Model,
    operator: bool | None,
    samples: Sequence[tuple[str, Sequence[Array]]],
    *,
    try_out: bool,
) -> None:
    """Decide for every signature of a loaded model. ``samples`` are inputs that it took, by
    signature.
    """
    known = getattr(model, "evidence", {})
    made: dict[str, Signature] = {}
    for signature in model.signatures.values():
        decision = decide(signature, known.get(signature.name, NOTHING), operator)
        if decision.enabled and try_out:
            given = [arrays for each, arrays in samples if each == signature.name]
            decision = judge_difference(decision, probe.difference(model, signature, given))
        level = logging.WARNING if decision.warning else logging.INFO
        log.log(level, "%s", _line(name, signature, decision))
        made[signature.name] = signature.decided(decision)
    model.signatures = made


def _line(name: str, signature: Signature, decision: BatchingDecision) -> str:
    what = "calls are batched" if decision.enabled else "calls are not batched"
    line = (
        f"{name}: signature {signature.name!r}: {what} ({decision.decided_by}): {decision.reason}"
    )
    return f"{line}; warning: {decision.warning}" if decision.warning else line
