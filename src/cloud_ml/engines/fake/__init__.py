"""An engine in memory that keeps the contract: see ``engine``."""

from cloud_ml.engines.fake.engine import FakeEngine
from cloud_ml.engines.fake.machine import Machine

__all__ = ["FakeEngine", "Machine"]
