"""Puts the parts of a server together."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta

import cloud_ml
from cloud_ml import data_folder, failpoints
from cloud_ml.api.platform import Platform
from cloud_ml.bootstrap.controllers import Parts, controller_manager, unprivileged_user
from cloud_ml.bootstrap.gateway_config import application_addresses, gateway_config
from cloud_ml.bootstrap.programs import find_pythons, find_uv
from cloud_ml.collector.archive_client import ArchiveComparer
from cloud_ml.collector.client import CollectorProcess
from cloud_ml.controller.placement.scheduler import most_jobs
from cloud_ml.controller.programs.packages import Packages
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.engines.base import Engine
from cloud_ml.engines.local.engine import LocalEngine
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.probe import probe
from cloud_ml.engines.local.processes.process_share import process_limit
from cloud_ml.environments.catalog import Catalog
from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.gateway import counts
from cloud_ml.gateway.link import GatewayLink
from cloud_ml.models.server import ServerInfo
from cloud_ml.objects.local import LocalObjectStore
from cloud_ml.observability.metrics import Metrics
from cloud_ml.sealing import KeyFile
from cloud_ml.settings import Settings
from cloud_ml.settings.gateway import ports_of
from cloud_ml.settings.jobs import most_tasks
from cloud_ml.state import rules
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.tuning.tuner import Tuner
from cloud_ml.usecases.access.identities import Identities
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.data_folder_claim import DataFolderClaim
from cloud_ml.usecases.first_start import FirstStart, bootstrap
from cloud_ml.usecases.jobs.admission import TaskLimits
from cloud_ml.usecases.metrics.patterns import pattern_check, search_check
from cloud_ml.usecases.sealing_key import ensure_sealing_key

logger = logging.getLogger(__name__)


@dataclass
class Server:
    """Everything one server process is made of. ``close`` it when the loop has ended."""

    settings: Settings
    platform: Platform
    controller: ControllerManager
    engine: Engine
    gateway: GatewayLink
    first_start: FirstStart
    lock: int
    collector: CollectorProcess
    claim: DataFolderClaim | None

    def close(self) -> None:
        """Let go of the store, the threads and the data folder. Jobs run on."""
        # Close the threads first, because they use the store. Release the lock last, so that no
        # other server opens the database before.
        self.platform.offload.close()
        self.collector.close()
        if self.claim is not None and not self.settings.server.shared_data:
            self.claim.release()
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
        Conflict: Another server uses the data folder and does not share it, or the database with
            another data folder.
        Forbidden: The data folder belongs to another user.
        Damaged: The database cannot be trusted.
        OutOfSpace: The disk is full or read-only.
        Unavailable: A fence that the settings require cannot be had, or uv is missing.
        InvalidRequest: A setting or a runtime's file is wrong.
    """
    data = settings.data_dir
    if failpoints.arm(os.environ):
        logger.warning("FAILPOINTS ARE ON: this server kills itself where a test asks for it")
    shared = settings.server.shared_data
    _check_shared(settings)
    _check_environments(settings)
    lock = data_folder.hold(data, for_server=True, shared=shared)
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
        # A folder that has been used must have a database. Creating an empty one would hide that
        # the old one is lost.
        create=not data_folder.has_been_used(data),
        readers=settings.server.database_readers,
        retention=_retention(settings),
        took=metrics.commits.observe,
    )
    claim = _claim_data_folder(settings, store)
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
    gateway = GatewayLink(gateway_config(settings))
    collector = CollectorProcess(unprivileged_user())
    platform = Platform(
        store=store,
        compare_archives=ArchiveComparer(unprivileged_user()),
        objects=objects,
        engine=engine,
        catalog=Catalog.load(settings.runtimes_dir, tuple(findings.config.pythons)),
        identities=Identities(store, system_clock, ttl_s=settings.keys.staleness_s),
        clock=system_clock,
        info=lambda: ServerInfo(
            version=cloud_ml.__version__,
            isolation=dict(engine.isolation()),
            missing=list(engine.missing()),
            presign_limit_s=settings.storage.presign_limit_s,
        ),
        sealer=sealer,
        settings=settings.api,
        metrics=metrics,
        behind_proxy=settings.server.behind_proxy,
        database_slow_ms=settings.server.database_slow_ms,
        problem_of_data_folder=lambda: claim.problem if claim is not None else "",
        key_settings=settings.keys,
        quota_settings=settings.quota,
        trainer_settings=settings.trainers,
        secret_settings=settings.secrets,
        tuner=Tuner(
            user=unprivileged_user(),
            memory_bytes=settings.studies.tuner_memory_bytes,
            idle_s=settings.studies.tuner_idle_s,
            answer_s=settings.studies.tuner_answer_s,
            processes=settings.studies.tuner_processes,
        ),
        study_settings=settings.studies,
        storage_settings=settings.storage,
        metric_settings=settings.metrics,
        tracking_settings=settings.tracking,
        job_keys=lambda: _job_keys(sealer),
        check_metric_patterns=pattern_check(collector),
        check_log_patterns=search_check(collector, engine.log_pattern_refusal),
        kept_releases=settings.gateway.kept_releases,
        default_limits=findings.defaults,
        longest_call_s=settings.gateway.timeout_s,
        service_figures=lambda: gateway.figures,
        services_host=settings.public_gateway_host,
        services_tls=bool(settings.gateway_tls[0]),
        task_limits=TaskLimits(
            most_tasks(settings.engine),
            settings.engine.tasks_per_array,
            settings.engine.tasks_per_job,
            sum(map(len, ports_of(settings.engine.ports))),
        ),
        original_services_open=settings.opens_original_services,
        application_addresses=application_addresses(
            settings, lambda: gateway.unbound.get(settings.applications.port, "")
        ),
    )
    platform.storage.repair()
    first_start = bootstrap(
        platform.identities, platform.storage, access_key=access_key, secret=secret
    )
    if not shared:  # another server may write them at this moment; ``prune`` removes old ones
        packages.clear_leftovers()
    metrics.add(counts.families(lambda: gateway.figures))
    parts = Parts(settings, platform, engine, findings, objects, packages, gateway, collector)
    controller = controller_manager(parts)
    return Server(
        settings, platform, controller, engine, gateway, first_start, lock, collector, claim
    )


def _check_environments(settings: Settings) -> None:
    """Refuse a folder of environments that cannot be written: what jobs require is installed there."""
    if not settings.environments.home:
        return
    home = settings.environments_home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise InvalidRequest(
            f"the folder of environments {home} cannot be written: {error.strerror or error}",
            field="environments.home",
            value=str(home),
            allowed="a folder on a disk that this user may write to",
            hint="Choose another one with --environments-dir.",
        ) from error


def _check_shared(settings: Settings) -> None:
    """Refuse to share a data folder where only one server can use its database, or the other way
    round.
    """
    server = settings.server
    if server.shared_data and not _has_several_servers(settings):
        raise InvalidRequest(
            "servers that share a data folder need PostgreSQL",
            field="server.shared_data",
            value=True,
            allowed="true with a database_url of PostgreSQL, else false",
            hint="Name one with --database-url postgresql://…, or leave out --shared-data.",
        )
    if server.shared_data and server.separate_data:
        raise InvalidRequest(
            "servers of one database share a data folder, or each has one of its own",
            field="server.separate_data",
            value=True,
            allowed="one of shared_data and separate_data",
        )


def _has_several_servers(settings: Settings) -> bool:
    """Whether several servers may use the database."""
    return settings.database_url.startswith("postgresql")


def _claim_data_folder(settings: Settings, store: SqlStateStore) -> DataFolderClaim | None:
    if not _has_several_servers(settings) or settings.server.separate_data:
        return None
    folder = f"{os.uname().nodename}:{settings.data_dir.resolve()}"
    claim = DataFolderClaim(store, folder, system_clock)
    claim.take()
    return claim


def _job_keys(file: KeyFile) -> tuple[bytes, ...]:
    """What tokens of jobs are derived from. Without a sealing key, jobs start without a token."""
    with contextlib.suppress(Unavailable):
        known = file.keys()
        return tuple(one.key for one in known)
    return ()


def _retention(settings: Settings) -> rules.Retention:
    days = settings.server.audit_retention_days
    return rules.Retention(
        audit=timedelta(days=days) if days else None,
        record_events=settings.server.events_per_record,
    )
