"""The controllers of a server, and what each of them needs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cloud_ml.api.platform import Platform
from cloud_ml.collector.client import CollectorProcess
from cloud_ml.controller.executor import Checkpoints, Executor, Outputs
from cloud_ml.controller.model_services import ModelServiceController
from cloud_ml.controller.placement.scheduler import Scheduler
from cloud_ml.controller.programs.downloads import Downloads
from cloud_ml.controller.programs.model_server import ModelServerPackage, ModelServers
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.controller.programs.tensorboard_package import TensorBoardPackage
from cloud_ml.controller.programs.trainers import Files, Trainers
from cloud_ml.controller.results.checkpoint_retention import TrainJobCheckpointRetention
from cloud_ml.controller.results.metrics import MetricController
from cloud_ml.controller.results.outputs import JobOutputs
from cloud_ml.controller.results.progress import ProgressEvents
from cloud_ml.controller.runtime.leader_lock import LeaderLock
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.studies import StudyController
from cloud_ml.controller.tensorboard_mirrors import TensorBoardMirrors
from cloud_ml.controller.tensorboards import TensorBoardController
from cloud_ml.controller.train_jobs import TrainJobController
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.tensorboards.spec import MIRROR_BYTES, TENSORBOARD
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import W
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.probe import Findings
from cloud_ml.gateway.link import GatewayLink
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.recipes.choosing import RECIPES
from cloud_ml.settings import Settings
from cloud_ml.settings.gateway import ports_of
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.comparison.inputs import InputManifests
from cloud_ml.usecases.jobs.output_collection import OutputCollection
from cloud_ml.usecases.limits import QuotaLimits, defaults_of
from cloud_ml.usecases.metrics.collection import MetricCollection
from cloud_ml.usecases.metrics.file_collection import FileCollection
from cloud_ml.usecases.metrics.retention import PointRetention
from cloud_ml.usecases.models.deploying import Deployments
from cloud_ml.usecases.tensorboards.source_files import SourceFiles
from cloud_ml.usecases.tracking.job_variables import AttemptVariables, tracking_variables

_NOBODY = 65_534


def unprivileged_user() -> int:
    """The user that fetches trainers from the web, that parses what jobs have written, and that of
    the tuner; 0 for the server's own, where it is not root.
    """
    return _NOBODY if os.geteuid() == 0 else 0


@dataclass(frozen=True)
class Parts:
    """What controllers are made of."""

    settings: Settings
    platform: Platform
    engine: LocalEngine
    findings: Findings
    objects: LocalObjectStore
    packages: Packages
    gateway: GatewayLink
    collector: CollectorProcess

    @property
    def rules(self) -> Rules:
        """How long attempts may take to start and to stop."""
        engine = self.settings.engine
        return Rules(engine.stop_grace_s, engine.start_timeout_s)


def controller_manager(parts: Parts) -> ControllerManager:
    """All controllers under their manager, and the platform told of what they offer to callers."""
    settings, platform = parts.settings, parts.platform
    scheduler = Scheduler(
        store=platform.store,
        engine=parts.engine,
        settings=settings.controller,
        offload=platform.offload,
        default_quota=defaults_of(settings.quota),
        ports=ports_of(settings.engine.ports),
        metrics=platform.metrics,
    )
    studies = _studies(parts)
    job_metrics = _job_metrics(parts, studies)
    train_jobs = _train_jobs(parts, scheduler, job_metrics)
    tensorboards = _tensorboards(parts, scheduler)
    model_services = _model_services(parts, scheduler)
    platform.rights_in_force = model_services.rights_in_force
    platform.application_reachable = tensorboards.reachable
    return ControllerManager(
        # TensorBoards before model services: those tell the gateway which routes it may keep.
        [scheduler, train_jobs, tensorboards, model_services, job_metrics, studies],
        store=platform.store,
        engine=parts.engine,
        settings=settings.controller,
        holder=f"{os.uname().nodename}:{settings.data_dir}",
        clock=system_clock,
        offload=platform.offload,
        read=platform.read,
        metrics=platform.metrics,
        hub=platform.hub,
        lock=LeaderLock(settings.data_dir / "leader.lock") if settings.server.shared_data else None,
    )


def _executor(
    parts: Parts,
    files: Files[W],
    kind: Kind[W, WorkloadStatus],
    *,
    outputs: Outputs[W] | None = None,
    checkpoints: Checkpoints[W] | None = None,
    before_end: Callable[[Record[W, WorkloadStatus]], Awaitable[bool]] | None = None,
    variables: AttemptVariables | None = None,
    offline: bool = False,
    mounts: bool = True,
) -> Executor[W]:
    platform = parts.platform
    return Executor(
        store=platform.store,
        storage=platform.storage,
        engine=parts.engine,
        recipes=RECIPES,
        files=files,
        offload=platform.offload,
        network=parts.findings.config.network.fence,
        kind=kind,
        outputs=outputs,
        checkpoints=checkpoints,
        secrets=platform.secrets,
        before_end=before_end,
        variables=variables,
        offline=offline,
        mounts=mounts,
    )


def _studies(parts: Parts) -> StudyController:
    platform = parts.platform
    return StudyController(
        store=platform.store,
        jobs=platform.jobs,
        identities=platform.identities,
        objectives=platform.objectives,
        references=platform.references,
        checkpoints=platform.checkpoints,
        engine=parts.engine,
        tuner=platform.tuner,
        clock=system_clock,
        offload=platform.offload,
    )


def _job_metrics(parts: Parts, studies: StudyController) -> MetricController:
    settings, platform, engine = parts.settings, parts.platform, parts.engine
    quota_of = QuotaLimits(platform.store, defaults_of(settings.quota))
    return MetricController(
        MetricCollection(
            engine,
            platform.store,
            system_clock,
            settings.metrics,
            settings.tracking,
            quota_of=quota_of,
        ),
        FileCollection(
            engine,
            parts.collector,
            platform.store,
            owns=platform.storage.owns,
            clock=system_clock,
            settings=settings.metrics,
            quota_of=quota_of,
        ),
        store=platform.store,
        engine=engine,
        clock=system_clock,
        offload=platform.offload,
        read=platform.read,
        period_s=settings.metrics.period_s,
        files_period_s=settings.metrics.files_period_s,
        listener=studies.hear,
        inputs=InputManifests(platform.store, platform.storage, parts.objects),
        retention=PointRetention(platform.store, system_clock, settings.metrics.retention_days),
        progress=ProgressEvents(
            platform.store,
            engine,
            system_clock,
            platform.offload,
            period_s=settings.metrics.progress_period_s,
        ),
    )


def _train_jobs(
    parts: Parts, scheduler: Scheduler, job_metrics: MetricController
) -> TrainJobController:
    settings, platform, engine = parts.settings, parts.platform, parts.engine
    return TrainJobController(
        scheduler=scheduler,
        store=platform.store,
        engine=engine,
        executor=_executor(
            parts,
            _trainers(parts),
            TRAIN_JOB,
            outputs=_job_outputs(parts, job_metrics),
            checkpoints=platform.checkpoints,
            before_end=job_metrics.has_noted_inputs,
            variables=tracking_variables(engine.server_address, platform.job_tokens),
        ),
        settings=settings.controller,
        rules=parts.rules,
        clock=system_clock,
        offload=platform.offload,
        read=platform.read,
        deploy=Deployments(
            platform.store,
            system_clock,
            keep=settings.gateway.kept_releases,
            quota_of=QuotaLimits(platform.store, defaults_of(settings.quota)),
            defaults=parts.findings.defaults,
            refer=platform.references.refer,
        ).deploy,
        metrics=platform.metrics,
        retention=TrainJobCheckpointRetention(platform.checkpoints, platform.offload),
        passed=job_metrics.note_pass,
    )


def _trainers(parts: Parts) -> Trainers:
    settings, platform = parts.settings, parts.platform
    return Trainers(
        storage=platform.storage,
        uploads=platform.uploads,
        packages=parts.packages,
        downloads=Downloads(
            settings.data_dir / "packages",
            settings.trainers,
            platform.offload,
            user=unprivileged_user(),
        ),
        settings=settings.trainers,
        offload=platform.offload,
    )


def _job_outputs(parts: Parts, job_metrics: MetricController) -> JobOutputs:
    settings, platform = parts.settings.outputs, parts.platform
    return JobOutputs(
        engine=parts.engine,
        store=platform.store,
        outputs=platform.outputs,
        collection=OutputCollection(
            platform.outputs, platform.storage, parts.objects, system_clock, settings
        ),
        clock=system_clock,
        offload=platform.offload,
        retention_days=settings.retention_days,
        collect_metrics=job_metrics.collect_rest,
    )


def _model_services(parts: Parts, scheduler: Scheduler) -> ModelServiceController:
    settings, platform = parts.settings, parts.platform
    package = ModelServerPackage(settings.data_dir / "packages")
    servers = ModelServers(parts.objects, platform.storage, package, platform.offload)
    return ModelServiceController(
        scheduler=scheduler,
        store=platform.store,
        engine=parts.engine,
        endpoints=parts.engine,
        executor=_executor(parts, servers, REPLICA),
        rules=parts.rules,
        settings=settings.controller,
        clock=system_clock,
        offload=platform.offload,
        gateway=parts.gateway,
        serving=settings.gateway,
        read=platform.read,
    )


def _tensorboards(parts: Parts, scheduler: Scheduler) -> TensorBoardController:
    settings, platform = parts.settings, parts.platform
    package = TensorBoardPackage(settings.data_dir / "packages", platform.offload)
    applications = settings.applications
    variables = {MIRROR_BYTES: str(_mirror_bytes(parts))} if applications.mirror else {}
    files = SourceFiles(platform.storage)
    return TensorBoardController(
        scheduler=scheduler,
        store=platform.store,
        engine=parts.engine,
        endpoints=parts.engine,
        executor=_executor(
            parts,
            package,
            TENSORBOARD,
            variables=lambda _uid, _attempt: variables,
            offline=True,
            mounts=not applications.mirror,
        ),
        rules=parts.rules,
        clock=system_clock,
        offload=platform.offload,
        gateway=parts.gateway,
        settings=applications,
        # Also without the setting: those that run may have been started with it.
        mirrors=TensorBoardMirrors(parts.engine, files, platform.offload, platform.metrics),
        read=platform.read,
    )


def _mirror_bytes(parts: Parts) -> int:
    """Bytes that copies of a TensorBoard may have: it is ended where it has more than its disk limit."""
    mirror_bytes, disk_bytes = (
        parts.settings.applications.mirror_bytes,
        parts.findings.defaults.disk_bytes,
    )
    return min(mirror_bytes, disk_bytes * 4 // 5) if disk_bytes else mirror_bytes
