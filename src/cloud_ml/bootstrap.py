"""The composition root: from settings to a platform. The only place that knows which adapters
exist.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import cloud_ml
from cloud_ml import data_folder, failpoints
from cloud_ml.api.platform import Platform
from cloud_ml.controller.downloads import Downloads
from cloud_ml.controller.executor import Executor, Outputs
from cloud_ml.controller.model_server import ModelServerPackage, ModelServers
from cloud_ml.controller.model_services import ModelServiceController
from cloud_ml.controller.outputs import JobOutputs
from cloud_ml.controller.packages import Packages
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.scheduler import Scheduler, most_jobs
from cloud_ml.controller.train_jobs import TrainJobController
from cloud_ml.controller.trainers import Files, Trainers
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.workloads.decide import Rules
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.spec import W
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import probe
from cloud_ml.engines.local.process_share import process_limit
from cloud_ml.environments import interpreter
from cloud_ml.environments.catalog import Catalog
from cloud_ml.errors import Unavailable
from cloud_ml.gateway import certificates, counts
from cloud_ml.gateway.config import GatewayConfig
from cloud_ml.gateway.link import GatewayLink
from cloud_ml.models.storage import ServerInfo
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.observability.metrics import Metrics
from cloud_ml.recipes.single import SingleProcess
from cloud_ml.sealing import KeyFile
from cloud_ml.settings import Settings
from cloud_ml.state import rules
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.first_start import FirstStart, bootstrap
from cloud_ml.usecases.jobs.output_collection import OutputCollection
from cloud_ml.usecases.limits import QuotaLimits, defaults_of
from cloud_ml.usecases.models.deploying import Deployments
from cloud_ml.usecases.sealing_key import ensure_sealing_key

logger = logging.getLogger(__name__)

_NOBODY = 65_534
"""The user that fetches trainers from the web, where the server is root."""


@dataclass
class Server:
    """Everything one server process is made of. ``close`` it when the loop has ended."""

    settings: Settings
    platform: Platform
    controller: ControllerManager
    engine: LocalEngine
    gateway: GatewayLink
    first_start: FirstStart
    lock: int

    def close(self) -> None:
        """Let go of the store, the threads and the data folder. Jobs run on."""
        self.platform.offload.close()
        self.platform.store.close()
        os.close(self.lock)


def build(
    settings: Settings, *, access_key: str | None = None, secret: str | None = None
) -> Server:
    """Open or make everything below the data folder and put the parts together.

    Args:
        settings: All settings.
        access_key: The administrator's key to have after the first start; generated when left out.
        secret: Its secret.

    Raises:
        Conflict: Another server uses the data folder.
        Forbidden: The data folder belongs to another user.
        Damaged: The database cannot be trusted.
        OutOfSpace: The disk is full or read-only.
        Unavailable: A fence that the settings require cannot be had, or uv is missing.
        InvalidRequest: A setting or a runtime's file is wrong.
    """
    data = settings.data_dir
    if failpoints.arm(os.environ):
        logger.warning("FAILPOINTS ARE ON: this server kills itself where a test asks for it")
    lock = data_folder.hold(data, for_server=True)
    tenant_base = settings.engine.tenant_uid_base
    Ledger(data / "engine").create()
    processes = process_limit(settings.engine.max_processes, most_jobs(settings.controller))
    findings = probe(
        replace(settings.engine, max_processes=processes),
        root=data / "engine",
        environments_home=settings.environments_home,
        runtimes_dir=settings.runtimes_dir,
        uv=find_uv(),
        pythons=find_pythons(settings),
    )
    switches_user = findings.config.tenant_uid_base > 0
    metrics = Metrics()
    store = SqlStateStore.open(
        settings.database_url,
        create=not data_folder.has_been_used(data),
        readers=settings.server.database_readers,
        retention=_retention(settings),
        took=metrics.commits.observe,
    )
    failpoints.here("start.store")
    objects = LocalObjectStore(
        data / "objects",
        (lambda tenant: tenant_base + tenant) if switches_user else None,
        lock_s=settings.storage.bucket_wait_s,
    )
    packages = Packages(objects, data / "packages", size_limit=settings.trainers.size_limit_bytes)
    sealer = KeyFile(settings.sealing_key_file)
    ensure_sealing_key(sealer, store, system_clock)
    engine = LocalEngine(
        findings,
        folders=objects,
        packages=packages,
        layers_limit_bytes=settings.environments.layers_limit_bytes,
        tidy_s=settings.environments.tidy_s,
    )
    gateway = GatewayLink(_gateway(settings))
    platform = Platform(
        store=store,
        objects=objects,
        engine=engine,
        catalog=Catalog.load(settings.runtimes_dir, tuple(findings.config.pythons)),
        identities=Identities(store, system_clock, ttl_s=settings.keys.staleness_s),
        clock=system_clock,
        info=lambda: ServerInfo(
            version=cloud_ml.__version__,
            isolation=dict(engine.isolation()),
            missing=list(engine.missing()),
        ),
        sealer=sealer,
        settings=settings.api,
        metrics=metrics,
        behind_proxy=settings.server.behind_proxy,
        database_slow_ms=settings.server.database_slow_ms,
        key_settings=settings.keys,
        quota_settings=settings.quota,
        trainer_settings=settings.trainers,
        secret_settings=settings.secrets,
        storage_settings=settings.storage,
        kept_releases=settings.gateway.kept_releases,
        default_limits=findings.defaults,
        longest_call_s=settings.gateway.timeout_s,
        service_figures=lambda: gateway.figures,
        services_host=settings.public_gateway_host,
        services_tls=bool(settings.gateway_tls[0]),
        original_services_open=settings.opens_original_services,
    )
    platform.storage.repair()
    first_start = bootstrap(
        platform.identities, platform.storage, access_key=access_key, secret=secret
    )
    packages.clear_leftovers()
    life = Rules(settings.engine.stop_grace_s, settings.engine.start_timeout_s)

    def executor(
        files: Files[W], kind: Kind[W, WorkloadStatus], outputs: Outputs[W] | None = None
    ) -> Executor[W]:
        return Executor(
            store=store,
            storage=platform.storage,
            engine=engine,
            recipe=SingleProcess(),
            files=files,
            offload=platform.offload,
            network=findings.config.network.fence,
            kind=kind,
            outputs=outputs,
            secrets=platform.secrets,
        )

    metrics.add(counts.families(lambda: gateway.figures))
    quota = defaults_of(settings.quota)
    scheduler = Scheduler(
        store=store,
        engine=engine,
        settings=settings.controller,
        offload=platform.offload,
        default_quota=quota,
    )
    train_jobs = TrainJobController(
        scheduler=scheduler,
        store=store,
        engine=engine,
        executor=executor(
            Trainers(
                storage=platform.storage,
                uploads=platform.uploads,
                packages=packages,
                downloads=Downloads(
                    data / "packages",
                    settings.trainers,
                    platform.offload,
                    user=_NOBODY if os.geteuid() == 0 else 0,
                ),
                settings=settings.trainers,
                offload=platform.offload,
            ),
            TRAIN_JOB,
            JobOutputs(
                engine=engine,
                store=store,
                outputs=platform.outputs,
                collection=OutputCollection(
                    platform.outputs, platform.storage, objects, system_clock, settings.outputs
                ),
                clock=system_clock,
                offload=platform.offload,
                retention_days=settings.outputs.retention_days,
            ),
        ),
        settings=settings.controller,
        rules=life,
        clock=system_clock,
        offload=platform.offload,
        read=platform.read,
        deploy=Deployments(
            store,
            system_clock,
            keep=settings.gateway.kept_releases,
            quota_of=QuotaLimits(store, quota),
            defaults=findings.defaults,
        ).deploy,
        metrics=metrics,
    )
    model_services = ModelServiceController(
        scheduler=scheduler,
        store=store,
        engine=engine,
        endpoints=engine,
        executor=executor(
            ModelServers(
                objects, platform.storage, ModelServerPackage(data / "packages"), platform.offload
            ),
            REPLICA,
        ),
        rules=life,
        settings=settings.controller,
        clock=system_clock,
        offload=platform.offload,
        gateway=gateway,
        serving=settings.gateway,
        read=platform.read,
    )
    platform.rights_in_force = model_services.rights_in_force
    controller = ControllerManager(
        [scheduler, train_jobs, model_services],
        store=store,
        engine=engine,
        settings=settings.controller,
        holder=f"{os.uname().nodename}:{data}",
        clock=system_clock,
        offload=platform.offload,
        read=platform.read,
        metrics=metrics,
    )
    return Server(settings, platform, controller, engine, gateway, first_start, lock)


def _gateway(settings: Settings) -> GatewayConfig:
    gateway, (cert, key) = settings.gateway, settings.gateway_tls
    return GatewayConfig(
        folder=str(settings.data_dir / "gateway"),
        version=cloud_ml.__version__,
        host=settings.gateway_host,
        public_host=settings.public_gateway_host,
        user=settings.engine.tenant_uid_base if os.geteuid() == 0 else 0,
        job_sockets=str(Ledger(settings.data_dir / "engine").jobs),
        tls_cert=cert and str(Path(cert).absolute()),
        tls_key=key and str(Path(key).absolute()),
        certificate=certificates.digest(cert, key),
        connections=gateway.connections,
        message_limit_bytes=gateway.message_limit_bytes,
        bodies_bytes=gateway.bodies_bytes,
        organisation_bodies_bytes=gateway.organisation_bodies_bytes,
        answer_head_bytes=gateway.answer_head_bytes,
        interim_answers=gateway.interim_answers,
        control_frames=gateway.control_frames,
        answer_pause_s=gateway.answer_pause_s,
        replica_settings_s=gateway.replica_settings_s,
        replica_head_s=gateway.replica_head_s,
        replica_unread_s=gateway.replica_unread_s,
        replica_window_bytes=gateway.replica_window_bytes,
        replica_turn_units=gateway.replica_turn_units,
        caller_turn_units=gateway.caller_turn_units,
        caller_dropped_body_bytes=gateway.caller_dropped_body_bytes,
        caller_empty_frames=gateway.caller_empty_frames,
        caller_kept_head_bytes=gateway.caller_kept_head_bytes,
        replica_streams=gateway.replica_streams,
        caller_http1_head_s=gateway.caller_http1_head_s,
        caller_http1_body_s=gateway.caller_http1_body_s,
        caller_http1_idle_s=gateway.caller_http1_idle_s,
        caller_http2_streams=gateway.caller_http2_streams,
        caller_http2_window_bytes=gateway.caller_http2_window_bytes,
        caller_http2_head_s=gateway.caller_http2_head_s,
        caller_http2_body_s=gateway.caller_http2_body_s,
        caller_http2_unread_s=gateway.caller_http2_unread_s,
        caller_http2_idle_s=gateway.caller_http2_idle_s,
        stream_unread_bytes=gateway.stream_unread_bytes,
        timeout_s=gateway.timeout_s,
        waiting=gateway.waiting,
        waiting_s=gateway.waiting_s,
        in_flight=gateway.in_flight,
        attempts=gateway.attempts,
        token_limit_s=gateway.token_limit_s,
        drain_s=gateway.drain_s,
        cors_origins=gateway.cors_origins,
        open_health=gateway.open_health,
        log_format="json" if settings.server.log_format == "json" else "text",
    )


def _retention(settings: Settings) -> rules.Retention:
    days = settings.server.audit_retention_days
    return rules.Retention(
        audit=timedelta(days=days) if days else None,
        record_events=settings.server.events_per_record,
    )


def write_credentials(server: Server, endpoint: str) -> Path:
    """Write the administrator's key for the operator, readable by its owner only.

    On a full or read-only disk the file of an earlier start stays: the server still answers reads.

    Raises:
        OSError: It cannot be written, and there is none.
    """
    path = data_folder.credentials(server.settings.data_dir)
    admin = server.first_start.admin
    if admin is not None:
        content = {"endpoint": endpoint, "access_key": admin.access_key, "secret_key": admin.secret}
        try:
            _replace_credentials(path, json.dumps(content, indent=2))
        except OSError:
            if not path.exists():
                raise
            logger.warning(
                "%s cannot be written now; its endpoint may be that of an earlier start",
                path,
                exc_info=True,
            )
    return path


def _replace_credentials(path: Path, content: str) -> None:
    draft = path.with_suffix(".new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        failpoints.here("start.made")
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    failpoints.here("start.told")


def find_pythons(settings: Settings) -> dict[str, str]:
    """Version → program of every interpreter that jobs may ask for; no program where uv is to
    fetch it.
    """
    found = {
        version: str(one.path)
        for version, one in interpreter.installed(settings.environments_home).items()
    }
    return dict.fromkeys(settings.pythons, "") | found


def find_uv() -> Path:
    """The ``uv`` program: the one installed beside us, else the machine's.

    Raises:
        Unavailable: There is none.
    """
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - only here, and optional

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
        if found is None:
            raise Unavailable(
                "uv, which makes the environments of jobs, is not installed",
                hint="pip install 'cloud-ml[server]'",
            ) from None
        return Path(found)
