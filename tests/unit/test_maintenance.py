"""What an operator does to a database."""

from __future__ import annotations

import importlib
import pkgutil

from cloud_ml import domain
from cloud_ml.domain.records import Kind
from cloud_ml.maintenance import KINDS


def test_the_check_knows_every_kind_of_record() -> None:
    names = [each.name for each in pkgutil.walk_packages(domain.__path__, f"{domain.__name__}.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    assert {value.name for value in values if isinstance(value, Kind)} == set(KINDS)
