"""`cloudml server check` knows every kind of record: it took those of model services for damage."""

from __future__ import annotations

import importlib
import pkgutil

import cloud_ml.domain
from cloud_ml.domain.records import Kind
from cloud_ml.maintenance import KINDS


def test_every_kind_of_record_can_be_verified() -> None:
    found: set[str] = set()
    for module in pkgutil.walk_packages(cloud_ml.domain.__path__, "cloud_ml.domain."):
        values = vars(importlib.import_module(module.name)).values()
        found |= {value.name for value in values if isinstance(value, Kind)}
    assert found == set(KINDS)
