"""What the front doors stand on: the parts that ``bootstrap`` made, and the use cases over them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from cloud_ml.domain.records import Kind
from cloud_ml.domain.scopes import declare_resource
from cloud_ml.domain.services.routes import Figures
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits
from cloud_ml.engines.abilities import Gangs, SecretFiles
from cloud_ml.engines.base import Engine
from cloud_ml.models.server import ServerInfo
from cloud_ml.objects.base import ObjectStore
from cloud_ml.observability.metrics import Metrics
from cloud_ml.settings import (
    ApiSettings,
    KeySettings,
    QuotaSettings,
    SecretSettings,
    StorageSettings,
    StudySettings,
    TrainerSettings,
)
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state.base import StateStore
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.audit import AuditLog
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.access.job_tokens import JobTokens
from cloud_ml.usecases.access.keys import Keys
from cloud_ml.usecases.access.organisations import Organisations
from cloud_ml.usecases.access.tokens import AccessTokens
from cloud_ml.usecases.access.users import Users
from cloud_ml.usecases.catalog import Catalog
from cloud_ml.usecases.changes import ChangeHub
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.comparison.code import CodeDifferences, CompareArchives, no_archives
from cloud_ml.usecases.comparison.comparing import Comparisons
from cloud_ml.usecases.comparison.inputs import InputManifests
from cloud_ml.usecases.comparison.reproducing import Reproductions
from cloud_ml.usecases.feed import RecordFeed
from cloud_ml.usecases.health import Health
from cloud_ml.usecases.jobs.admission import TaskLimits
from cloud_ml.usecases.jobs.checkpoint_references import CheckpointReferences
from cloud_ml.usecases.jobs.checkpoints import Checkpoints
from cloud_ml.usecases.jobs.figures import JobFigures
from cloud_ml.usecases.jobs.logs import Logs
from cloud_ml.usecases.jobs.member_lists import MemberLists
from cloud_ml.usecases.jobs.outputs import Outputs
from cloud_ml.usecases.jobs.train_jobs import TrainJobs
from cloud_ml.usecases.limits import QuotaLimits, defaults_of
from cloud_ml.usecases.metrics.job_metrics import JobMetrics
from cloud_ml.usecases.metrics.patterns import PatternCheck, SearchCheck, any_patterns, any_searches
from cloud_ml.usecases.models.lineage import Lineage
from cloud_ml.usecases.models.model_services import ModelServices
from cloud_ml.usecases.models.releasing import Releasing
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.quotas import Quotas
from cloud_ml.usecases.record_limits import RecordLimits
from cloud_ml.usecases.resources import Resource, Resources
from cloud_ml.usecases.runtimes import FrameworkRuntimes
from cloud_ml.usecases.secrets import Sealer, Secrets
from cloud_ml.usecases.short_reads import ShortReads
from cloud_ml.usecases.storage.batches import Batches
from cloud_ml.usecases.storage.objects import Storage
from cloud_ml.usecases.storage.uploads import Uploads
from cloud_ml.usecases.studies.ask_tell import AskTell
from cloud_ml.usecases.studies.optuna_storage import OptunaStorage
from cloud_ml.usecases.studies.readouts import StudyReadouts
from cloud_ml.usecases.studies.reported_values import Objectives
from cloud_ml.usecases.studies.studies import study_resource
from cloud_ml.usecases.tensorboards.tensorboards import (
    ApplicationAddresses,
    TensorBoardsOfJobs,
    tensorboard_resource,
)
from cloud_ml.usecases.tracking.experiment_feed import ExperimentFeed
from cloud_ml.usecases.tracking.experiments import Experiments
from cloud_ml.usecases.tracking.history import MetricHistoryReader
from cloud_ml.usecases.tracking.logged_models import LoggedModels
from cloud_ml.usecases.tracking.registry import Registry
from cloud_ml.usecases.tracking.registry_search import RegistrySearch
from cloud_ml.usecases.tracking.runs import Runs

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


async def _no_wait(*_: Any) -> None:
    """Nothing has to be waited for."""


@dataclass
class Platform:
    """The parts, and what is derived from them.

    ``hub.close()`` ends long polls and followers of logs: call it in the event loop when the server
    is told to stop, before waiting for open requests.
    """

    store: StateStore
    objects: ObjectStore
    engine: Engine
    catalog: Catalog
    identities: Identities
    clock: Clock
    info: Callable[[], ServerInfo]
    sealer: Sealer
    settings: ApiSettings = field(default_factory=ApiSettings)
    trainer_settings: TrainerSettings = field(default_factory=TrainerSettings)
    storage_settings: StorageSettings = field(default_factory=StorageSettings)
    key_settings: KeySettings = field(default_factory=KeySettings)
    quota_settings: QuotaSettings = field(default_factory=QuotaSettings)
    secret_settings: SecretSettings = field(default_factory=SecretSettings)
    metric_settings: MetricSettings = field(default_factory=MetricSettings)
    study_settings: StudySettings = field(default_factory=StudySettings)
    tracking_settings: TrackingSettings = field(default_factory=TrackingSettings)
    kept_releases: int = 5
    default_limits: DefaultLimits = NO_DEFAULT_LIMITS
    longest_call_s: float = 300.0
    service_figures: Callable[[], Mapping[str, Figures]] = dict
    rights_in_force: Callable[[], Awaitable[None]] = _no_wait
    """Waits until callers of model services are judged by the keys and tokens that are stored
    now.
    """
    job_keys: Callable[[], Sequence[bytes]] = tuple
    """The keys that tokens of jobs are derived from, the newest first; none: jobs get no tokens."""
    application_reachable: Callable[[str], Awaitable[None]] = _no_wait
    """Waits a moment until browsers reach the application with this uid."""
    check_metric_patterns: PatternCheck = any_patterns
    check_log_patterns: SearchCheck = any_searches
    """Refuses patterns of metrics in logs."""
    compare_archives: CompareArchives = no_archives
    """The files that differ between two archives."""
    offload: Offload = field(default_factory=Offload)
    tuner: Tuner = field(default_factory=Tuner)
    """Chooses parameters of trials where that takes numpy and scipy."""
    metrics: Metrics = field(default_factory=Metrics)
    behind_proxy: bool = False
    services_host: str = ""
    services_tls: bool = False
    original_services_open: bool = False
    application_addresses: ApplicationAddresses = ApplicationAddresses()  # noqa: RUF009 - frozen
    task_limits: TaskLimits = TaskLimits()  # noqa: RUF009 - frozen
    database_slow_ms: float = 20.0
    problem_of_data_folder: Callable[[], str] = str
    """Why the data folder is not that of the database; empty while it is."""
    resources: Sequence[Resource[Any, Any, Any, Any]] = ()
    """The kinds of resources that have nothing but their description."""
    streams: Counter[str] = field(default_factory=Counter)
    gathered_bytes: int = field(init=False, default=0)
    """Bytes of uploads that wait in memory for a trip to the disk, of all requests."""
    under_way: Counter[str] = field(default_factory=Counter)
    storage: Storage = field(init=False)
    organisations: Organisations = field(init=False)
    users: Users = field(init=False)
    keys: Keys = field(init=False)
    tokens: AccessTokens = field(init=False)
    job_tokens: JobTokens = field(init=False)
    audit: AuditLog = field(init=False)
    quotas: Quotas = field(init=False)
    secrets: Secrets = field(init=False)
    jobs: TrainJobs = field(init=False)
    services: ModelServices = field(init=False)
    releasing: Releasing = field(init=False)
    lineage: Lineage = field(init=False)
    comparisons: Comparisons = field(init=False)
    reproductions: Reproductions = field(init=False)
    uploads: Uploads = field(init=False)
    batches: Batches = field(init=False)
    read: ShortReads = field(init=False)
    outputs: Outputs = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    job_metrics: JobMetrics = field(init=False)
    member_lists: MemberLists = field(init=False)
    experiments: Experiments = field(init=False)
    runs: Runs = field(init=False)
    history: MetricHistoryReader = field(init=False)
    logged_models: LoggedModels = field(init=False)
    registry: Registry = field(init=False)
    registry_search: RegistrySearch = field(init=False)
    references: CheckpointReferences = field(init=False)
    resources_of: Mapping[str, Resources[Any, Any, Any, Any]] = field(init=False)
    """The use cases of ``resources``, by the plural of their type."""
    objectives: Objectives = field(init=False)
    ask_tell: AskTell = field(init=False)
    study_readouts: StudyReadouts = field(init=False)
    optuna: OptunaStorage = field(init=False)
    hub: ChangeHub = field(init=False)
    experiment_feed: ExperimentFeed = field(init=False)
    _feeds: dict[str, RecordFeed[Any, Any]] = field(init=False, default_factory=dict)
    logs: Logs = field(init=False)
    health: Health = field(init=False)
    runtimes: FrameworkRuntimes = field(init=False)

    def __post_init__(self) -> None:
        limits = QuotaLimits(self.store, defaults_of(self.quota_settings))
        self.storage = Storage(
            self.store,
            self.objects,
            self.clock,
            self.storage_settings,
            quota_of=limits,
            stop=self.offload.stopping,
        )
        self.uploads = Uploads(
            self.storage, self.store, self.objects, self.clock, self.storage_settings
        )
        self.batches = Batches(self.storage, self.objects, self.store, self.storage_settings)
        self.organisations = Organisations(self.store, self.identities, self.storage, self.clock)
        self.users = Users(
            self.store, self.identities, self.clock, most=self.key_settings.users_per_org
        )
        self.keys = Keys(self.store, self.identities, self.users, self.clock, self.key_settings)
        self.tokens = AccessTokens(self.store, self.identities, self.clock, self.key_settings)
        self.job_tokens = JobTokens(
            self.store, self.identities, self.job_keys, self.clock, self.key_settings
        )
        self.audit = AuditLog(self.store, self.identities)
        self.quotas = Quotas(
            self.store,
            self.identities,
            self.storage,
            limits,
            self.clock,
            open_applications=self.quota_settings.open_applications,
        )
        files_refusal = (
            self.engine.secret_files_refusal if isinstance(self.engine, SecretFiles) else str
        )
        self.secrets = Secrets(
            self.store, self.sealer, self.clock, self.secret_settings, files_refusal=files_refusal
        )
        records = RecordLimits(self.store, self.clock, self.settings.records_per_org)
        self.checkpoints = Checkpoints(self.store, self.storage, self.objects)
        self.references = CheckpointReferences(self.store, self.checkpoints, self.clock)
        self.experiments = Experiments(self.store, self.clock, self.tracking_settings)
        self.runs = Runs(
            self.store,
            self.experiments,
            self.clock,
            records=records,
            settings=self.tracking_settings,
            metric_settings=self.metric_settings,
            quota_of=limits,
        )
        self.history = MetricHistoryReader(self.store)
        self.logged_models = LoggedModels(
            self.store,
            self.experiments,
            self.clock,
            records=records,
            settings=self.tracking_settings,
        )
        self.registry = Registry(
            self.store,
            self.clock,
            records=records,
            settings=self.tracking_settings,
            refer=self.references.refer,
        )
        self.registry_search = RegistrySearch(self.store, self.tracking_settings)
        self.jobs = TrainJobs(
            self.store,
            self.storage,
            self.catalog,
            self.clock,
            checkpoints=self.checkpoints,
            refer=self.references.refer,
            gpu_missing=self.settings.gpu_missing,
            quota_of=limits,
            trainers=self.trainer_settings,
            records=records,
            grace_limit_s=self.settings.grace_limit_s,
            task_limits=self.task_limits,
            gang_refusal=self.engine.gang_refusal if isinstance(self.engine, Gangs) else str,
            check_secrets=self.secrets.check_uses,
            experiment_of=lambda caller, name: self.experiments.ensure(caller, name).id,
            check_metric_patterns=self.check_metric_patterns,
            check_log_patterns=self.check_log_patterns,
            make_tensorboard=TensorBoardsOfJobs(self.store, self.clock),
        )
        self.services = ModelServices(
            self.store,
            self.storage,
            self.clock,
            quota_of=limits,
            keep=self.kept_releases,
            records=records,
            longest_call_s=self.longest_call_s,
            defaults=self.default_limits,
            refer=self.references.refer,
            grace_limit_s=self.settings.grace_limit_s,
            check_secrets=self.secrets.check_uses,
        )
        self.releasing = Releasing(self.store, self.services, self.clock, keep=self.kept_releases)
        self.resources = (
            study_resource(
                functools.partial(self.jobs.check, refer=True),
                self.storage,
                self.study_settings,
                self.store,
            ),
            tensorboard_resource(self.store, self.storage, self.clock, self.application_addresses),
            *self.resources,
        )
        for resource in self.resources:
            declare_resource(resource.type.plural)
        self.resources_of = {
            each.type.plural: Resources(each, self.store, self.clock, records)
            for each in self.resources
        }
        self.objectives = Objectives(self.store)
        self.ask_tell = AskTell(
            self.store,
            self.resources_of["studies"],
            self.tuner,
            self.clock,
            self.offload,
            settings=self.study_settings,
        )
        self.study_readouts = StudyReadouts(
            self.store,
            self.resources_of["studies"],
            self.objectives,
            self.tuner,
            self.offload,
        )
        self.optuna = OptunaStorage(self.store, self.resources_of["studies"], self.clock)
        self.read = ShortReads(self.store, self.offload, slow_ms=self.database_slow_ms)
        self.outputs = Outputs(self.store, self.storage, self.objects)
        self.job_metrics = JobMetrics(self.store, self.metric_settings)
        self.member_lists = MemberLists(self.store)
        self.lineage = Lineage(self.store, self.objects)
        self.comparisons = Comparisons(
            self.store,
            self.jobs,
            self.runs,
            CodeDifferences(self.storage, self.objects, self.compare_archives),
        )
        self.reproductions = Reproductions(
            self.store,
            self.objects,
            self.jobs,
            self.comparisons,
            InputManifests(self.store, self.storage, self.objects),
        )
        self.hub = ChangeHub(self.store, self.read)
        self.experiment_feed = ExperimentFeed(self.store, self.offload)
        self.metrics.add(JobFigures(self.store).families())
        self.logs = Logs(self.store, self.engine, self.hub, self.offload)
        self.runtimes = FrameworkRuntimes(self.engine, self.catalog, self.store, self.offload)
        self.health = Health(
            self.store,
            self.engine,
            self.offload,
            self.clock,
            data_folder=self.problem_of_data_folder,
        )

    def feed_of(self, kind: Kind[S, T]) -> RecordFeed[S, T]:
        """The changes of all records of a kind."""
        if kind.name not in self._feeds:
            self._feeds[kind.name] = RecordFeed(self.store, kind, self.offload)
        return self._feeds[kind.name]

    async def change_rights(self, change: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Make a change of who may do what, and answer once model services know it too."""
        made = await self.offload(change, *args, **options)
        await self.rights_in_force()
        return made
