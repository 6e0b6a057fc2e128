"""Settings by theme: typed values with unit, default and reason, handed in and never read from a
global.

The file has a table per theme (``[engine]``, ``stop_grace_s = 5``), the environment a variable per
value (``CLOUDML_ENGINE_STOP_GRACE_S=5``).
"""

from cloud_ml.settings.all_settings import Settings
from cloud_ml.settings.gateway import GatewaySettings
from cloud_ml.settings.jobs import EngineSettings, EnvironmentSettings, TrainerSettings
from cloud_ml.settings.loading import load
from cloud_ml.settings.organisations import KeySettings, QuotaSettings, SecretSettings
from cloud_ml.settings.server import ApiSettings, ControllerSettings, ServerSettings
from cloud_ml.settings.sizes import GIB, MIB
from cloud_ml.settings.storage import OutputSettings, StorageSettings
from cloud_ml.settings.studies import StudySettings

__all__ = [
    "GIB",
    "MIB",
    "ApiSettings",
    "ControllerSettings",
    "EngineSettings",
    "EnvironmentSettings",
    "GatewaySettings",
    "KeySettings",
    "OutputSettings",
    "QuotaSettings",
    "SecretSettings",
    "ServerSettings",
    "Settings",
    "StorageSettings",
    "StudySettings",
    "TrainerSettings",
    "load",
]
