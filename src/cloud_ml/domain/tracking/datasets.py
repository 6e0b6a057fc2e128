"""Data sets that runs have read, as MLflow's client notes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloud_ml.domain.tracking.filters import DATASET_KEYS

CONTEXT_TAG = "mlflow.data.context"
"""The tag of a data set that says what it was read for, such as ``train``."""


def dataset_values(inputs: str) -> Mapping[str, Sequence[str]]:
    """What a filter may look at of the inputs of a run, which are a list in JSON."""
    entries = json.loads(inputs)
    return {key: list(_values(entries, key)) for key in DATASET_KEYS}


def _values(entries: Sequence[Mapping[str, Any]], key: str) -> Iterator[str]:
    for entry in entries:
        dataset = entry.get("dataset")
        if dataset is None:
            continue
        if key != "context":
            if key in dataset:
                yield dataset[key]
            continue
        for tag in entry.get("tags", ()):
            if tag["key"] == CONTEXT_TAG:
                yield tag["value"]
