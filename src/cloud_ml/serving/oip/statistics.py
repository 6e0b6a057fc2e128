"""Triton's statistics extension: what was counted for each version, summed over its signatures."""

import time
from collections.abc import Iterable

from cloud_ml.serving.call_metrics import Tally
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.oip.model_documents import Document
from cloud_ml.serving.table import ModelTable


def of_models(table: ModelTable, name: str = "", number: int | None = None) -> list[Document]:
    """Statistics of a version, of every version of a model, or where no name is given of all
    models.

    Raises:
        ModelNotFound: for a name or number that is not served.
        NotReady: where no version of the model answers.
    """
    if name:
        version = table.find(name, number)
        chosen = (
            [version] if number is not None else _by_number(table.models[name].versions.values())
        )
    elif number is not None:
        raise BadRequest(f"version {number} is asked for, and no model is named")
    else:
        chosen = [
            one for model in table.models.values() for one in _by_number(model.versions.values())
        ]
    return [_statistics(version) for version in chosen]


def _by_number(versions: Iterable[LoadedVersion]) -> list[LoadedVersion]:
    return sorted(versions, key=lambda version: version.number)


def _statistics(version: LoadedVersion) -> Document:
    tallies = [version.tally(name) for name in version.model.signatures]
    row_counts = [tally.rows for tally in tallies]
    return {
        "name": version.name,
        "version": str(version.number),
        "last_inference": _milliseconds_since_1970(max(tally.last_run for tally in tallies)),
        "inference_count": int(sum(rows.total for rows in row_counts)),
        "execution_count": sum(sum(rows.counts) for rows in row_counts),
        "inference_stats": _inference(tallies),
        "batch_stats": _batches(tallies),
    }


def _inference(tallies: list[Tally]) -> Document:
    """Of requests. What neither a run nor the bringing together of rows took counts as waiting."""
    succeeded = failed = 0
    for tally in tallies:
        for (_, code), count in tally.answers.items():
            if code:
                failed += count
            else:
                succeeded += count
    failed_s = sum(tally.failed_s for tally in tallies)
    success_s = sum(tally.request_s.total for tally in tallies) - failed_s
    infer_s = sum(tally.infer_s for tally in tallies)
    copy_s = sum(tally.copy_s for tally in tallies)
    return {
        "success": _duration(succeeded, success_s),
        "fail": _duration(failed, failed_s),
        "queue": _duration(succeeded, max(0.0, success_s - infer_s - copy_s)),
        "compute_input": _duration(succeeded, copy_s),
        "compute_infer": _duration(succeeded, infer_s),
        "compute_output": _duration(succeeded, 0.0),
        "cache_hit": _duration(0, 0.0),
        "cache_miss": _duration(0, 0.0),
    }


def _batches(tallies: list[Tally]) -> list[Document]:
    """Of runs, by their rows."""
    found: dict[int, list[float]] = {}
    for tally in tallies:
        for rows, (count, took, copying) in list(tally.sizes.items()):  # a thread may add to it
            summed = found.setdefault(rows, [0, 0.0, 0.0])
            summed[0] += count
            summed[1] += took
            summed[2] += copying
    return [
        {
            "batch_size": rows,
            "compute_input": _duration(count, copying),
            "compute_infer": _duration(count, took),
            "compute_output": _duration(count, 0.0),
        }
        for rows, (count, took, copying) in sorted(found.items())
    ]


def _duration(count: float, seconds: float) -> Document:
    return {"count": int(count), "ns": int(seconds * 1e9)}


def _milliseconds_since_1970(begun: float) -> int:
    """When something began that ``time.perf_counter`` told; 0 where nothing did."""
    return int((time.time() - time.perf_counter() + begun) * 1000) if begun else 0
