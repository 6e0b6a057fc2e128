"""The options of elastic jobs, as the field ``elastic``."""

from __future__ import annotations

from typing import Any

import click


def with_workers(fields: dict[str, Any], elastic: Any, workers: Any) -> dict[str, Any]:
    """A job whose ``workers`` were given: they take the place of those in ``elastic``."""
    if not isinstance(elastic, dict):
        return fields
    if _is_range(workers):
        return {**fields, "elastic": {**elastic, "worker": workers}}
    others = {name: part for name, part in elastic.items() if name != "worker"}
    return {**fields, "elastic": others if others.keys() - {"every_s"} else None}


def with_every(fields: dict[str, Any], every: str) -> dict[str, Any]:
    """An elastic job that becomes larger at most once in this time."""
    from cloud_ml.models import common

    elastic, workers = fields.get("elastic") or {}, fields.get("worker_count")
    if _is_range(workers):
        elastic = {"worker": workers, **elastic}
    if not elastic:
        raise click.UsageError("--elastic-every is for elastic jobs, such as -w 2:8")
    seconds = common.duration_seconds(common.check_grace("--elastic-every", every))
    return {**fields, "elastic": {**elastic, "every_s": seconds}}


def _is_range(workers: Any) -> bool:
    return isinstance(workers, str) and ":" in workers
