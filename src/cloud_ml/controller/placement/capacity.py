"""How much of the machine jobs and replicas may take together. Pure."""

from __future__ import annotations

from cloud_ml.domain.quotas import Amounts, format_amount
from cloud_ml.engines.base import Capacity


def shortage(capacity: Capacity, requested: Amounts, held: Amounts, who: str) -> str:
    """What there is too little of for ``requested`` beside ``held``, in a sentence; else empty.

    The memory limits of all that runs stay within the memory. Limits of processors may come to
    ``capacity.cpu_overcommit`` times what there is; 0 means without a bound. What names no limit
    counts as nothing. What was taken when the machine was larger may run alone, or it would wait
    for ever.

    Args:
        capacity: What the machine has.
        requested: What is to start.
        held: What runs already.
        who: ``job`` or ``replica``, for the sentence.
    """
    if not held.count:
        return ""
    bounds = [("memory_bytes", "memory", capacity.memory_bytes)]
    if capacity.cpu_overcommit:
        bounds.append(
            ("cpu_millis", "processors", round(capacity.cpu_millis * capacity.cpu_overcommit))
        )
    for resource, word, most in bounds:
        needed, taken = getattr(requested, resource) or 0, getattr(held, resource) or 0
        if needed and taken + needed > most:
            there, used, needs = (
                format_amount(resource, amount) for amount in (most, taken, needed)
            )
            return f"{word} of this machine: {used} of {there} are used, the {who} asks for {needs}"
    return ""
