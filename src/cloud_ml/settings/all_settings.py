"""All settings together, and what follows from several of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.models.paths.local import local_path
from cloud_ml.settings.applications import ApplicationSettings
from cloud_ml.settings.gateway import GatewaySettings
from cloud_ml.settings.jobs import EngineSettings, EnvironmentSettings, TrainerSettings
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.settings.organisations import KeySettings, QuotaSettings, SecretSettings
from cloud_ml.settings.server import ApiSettings, ControllerSettings, ServerSettings, is_loopback
from cloud_ml.settings.storage import OutputSettings, StorageSettings
from cloud_ml.settings.studies import StudySettings
from cloud_ml.settings.tracking import TrackingSettings


@dataclass(frozen=True)
class Settings:
    """All of it."""

    server: ServerSettings = field(default_factory=ServerSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    keys: KeySettings = field(default_factory=KeySettings)
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    environments: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    trainers: TrainerSettings = field(default_factory=TrainerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    outputs: OutputSettings = field(default_factory=OutputSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    metrics: MetricSettings = field(default_factory=MetricSettings)
    studies: StudySettings = field(default_factory=StudySettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    applications: ApplicationSettings = field(default_factory=ApplicationSettings)

    @property
    def data_dir(self) -> Path:
        """The data folder, made absolute."""
        configured = self.server.data_dir or os.path.join(  # noqa: PTH118
            os.environ.get("XDG_DATA_HOME") or "~/.local/share", "cloudml"
        )
        return local_path(configured).absolute()

    @property
    def database_url(self) -> str:
        """The database, by default the one in the data folder."""
        return self.server.database_url or f"sqlite:///{self.data_dir / 'state.db'}"

    @property
    def sealing_key_file(self) -> Path:
        """The file of the sealing key, made absolute."""
        if self.secrets.key_file:
            return local_path(self.secrets.key_file).absolute()
        return self.data_dir / "sealing.key"

    @property
    def environments_home(self) -> Path:
        """The folder of layers and caches, made absolute."""
        if self.environments.home:
            return local_path(self.environments.home).absolute()
        return self.data_dir / "environments"

    @property
    def gateway_tls(self) -> tuple[str, str]:
        """Certificate and key of services; both empty without TLS."""
        chosen = self.gateway if self.gateway.tls_cert or self.gateway.tls_key else self.server
        return chosen.tls_cert, chosen.tls_key

    @property
    def gateway_host(self) -> str:
        """Where the gateway listens."""
        return self.gateway.host or self.server.host

    @property
    def public_gateway_host(self) -> str:
        """What the address of a service names."""
        host = self.gateway.public_host or self.gateway_host
        return os.uname().nodename if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not listened on

    @property
    def applications_host(self) -> str:
        """Where applications are listened for."""
        if self.applications.host:
            return self.applications.host
        return "127.0.0.1" if self.applications.local else self.gateway_host

    @property
    def applications_tls(self) -> bool:
        """Whether the gateway speaks TLS with the browsers of applications."""
        return not self.applications.local and bool(self.gateway_tls[0])

    @property
    def opens_original_services(self) -> bool:
        """Whether services of the original wire are open: see ``gateway.original_clients``."""
        if self.gateway.original_clients == "auto":
            return is_loopback(self.gateway_host)
        return self.gateway.original_clients == "yes"

    @property
    def pythons(self) -> tuple[str, ...]:
        """Versions of Python to offer although they are not installed."""
        return tuple(self.environments.pythons.replace(",", " ").split())

    @property
    def runtimes_dir(self) -> Path:
        """The operator's folder of runtimes."""
        if self.environments.runtimes_dir:
            return local_path(self.environments.runtimes_dir).absolute()
        return self.data_dir / "runtimes"
