"""The environment of an attempt: made or found, by tools with limits of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cloud_ml.engines.local.cgroups import Group, Limits
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.watch import DiskWatch, measure_use
from cloud_ml.engines.local.environments.tools import ToolSandbox
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.network import NONE
from cloud_ml.engines.local.processes.launch import Fence
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.supervisor.attempt_folders import AttemptFolders
from cloud_ml.engines.local.supervisor.attempt_logs import AttemptLogs
from cloud_ml.engines.local.supervisor.attempt_network import AttemptNetwork
from cloud_ml.environments.base import EnvironmentRequest, Prepared
from cloud_ml.environments.build import prepare
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages.venvs import Venvs

_MLFLOW = ("mlflow==", "mlflow-skinny==")
_NO_WAY_FOR_MLFLOW = (
    "MLflow's client does not reach the server from this job, since jobs here have no network "
    "(engine.network is none), and this machine lacks a sandbox or a C compiler, which a way takes "
    "(see cloudml doctor). mlflow logs to the working directory of the job; mlflow-skinny fails. "
    "Use cloud_ml.job.report for metrics and cloud_ml.job.params for parameters: they need no "
    "network"
)


class AttemptEnvironment:
    """Makes the environment of an attempt, or finds it made.

    Args:
        gang: Whose processes run in it.
        config: The settings of the engine.
        fence: What keeps tools from others.
        folders: Those of the attempt.
        logs: Where the tools' words go.
        exposure: Shows folders to what runs as the tenant's user.
        group: The control group in which tools run, if there are any.
        network: The network that tools have.
        venvs: Virtual environments that wait for another job.
    """

    def __init__(
        self,
        gang: ResolvedGang,
        config: LocalConfig,
        fence: Fence,
        *,
        folders: AttemptFolders,
        logs: AttemptLogs,
        exposure: Exposure,
        group: Group | None,
        network: AttemptNetwork,
        venvs: Venvs,
    ) -> None:
        self._gang = gang
        self._config = config
        self._fence = fence
        self._folders = folders
        self._logs = logs
        self._exposure = exposure
        self._group = group
        self._network = network
        self._venvs = venvs
        self._leases = Leases()
        self._tools: ToolSandbox | None = None

    @property
    def built(self) -> bool:
        """Whether tools ran in the first control group before the job."""
        return self._tools is not None and self._tools.limited

    @property
    def etc(self) -> str:
        """The folder that is ``/etc`` in a sandbox; empty without one."""
        return self._exposure.path(str(self._config.etc)) if self._config.bwrap else ""

    def prepare(self, reached: Callable[[str], None], *, memory_beside: int) -> Prepared:
        """Make the environment, or find it made. ``reached`` is told what it took on the way;
        ``memory_beside`` is the memory of what waits in the control group of the tools.

        Raises:
            EnvironmentFailed: With the reason; the tool's own words are in the log.
        """
        plan, config = self._gang.environment, self._config
        self._tools = self._tool_sandbox(memory_beside)
        return prepare(
            EnvironmentRequest(
                tenant=str(self._gang.tenant),
                trainer=Path(self._gang.trainer_file) if plan.trainer else None,
                trainer_name=plan.trainer.name if plan.trainer else "",
                module=plan.module,
                framework=plan.framework,
                framework_version=plan.framework_version,
                requires=plan.requires,
                keras_backend=self._gang.first.environment.get("KERAS_BACKEND", ""),
            ),
            home=Path(config.environments_home),
            venv=self._folders.venv,
            uv=Path(config.uv),
            catalog=Catalog.load(Path(config.runtimes_dir), tuple(config.pythons)),
            sandbox=self._tools,
            log=self._logs.write,
            python=Path(config.python),
            pythons=config.pythons,
            timeout_s=config.tool_timeout_s,
            download_tries=config.download_tries,
            reached=reached,
            fill=self._venvs.make,
            leases=self._leases,
            working_directory=self._folders.seen_working_directory
            if self._folders.has_code
            else "",
        )

    def with_notices(self, prepared: Prepared) -> Prepared:
        """Write to the log what the user should know, what is known only here included."""
        has_mlflow = any(line.startswith(_MLFLOW) for line in prepared.lock.splitlines())
        has_no_way = self._gang.network == NONE and not self._fence.port
        if has_no_way and has_mlflow:
            prepared = replace(prepared, notices=(*prepared.notices, _NO_WAY_FOR_MLFLOW))
        for notice in prepared.notices:
            self._logs.write(f"cloudml: {notice}\n".encode())
        return prepared

    def release(self) -> None:
        """Leave the environment to others, and what it was made of to who makes room."""
        self._venvs.give_back(self._folders.venv)
        self._leases.close()

    def _tool_sandbox(self, memory_beside: int) -> ToolSandbox:
        return ToolSandbox(
            self._fence,
            self._exposure,
            self._group,
            self.etc,
            self._network.of_tenant,
            limits=self._tool_limits(memory_beside),
            watch=self._watch_tool,
        )

    def _tool_limits(self, memory_beside: int) -> Limits:
        """What installers and builds may use: the limits of the job, and as much memory as they
        need at least.
        """
        plan = self._gang.first
        job_memory = plan.memory_bytes or self._config.default_memory_bytes
        memory = max(job_memory, self._config.tool_memory_bytes) if job_memory else None
        if memory is not None:
            memory += memory_beside
        return Limits(memory, plan.cpu_millis, self._config.max_processes)

    def _watch_tool(self, folders: Sequence[Path]) -> DiskWatch:
        """Keeps a tool from filling the disk. What its caches held before does not count."""
        config = self._config
        before = measure_use(folders[1:], []) if config.tool_disk_bytes else 0
        return DiskWatch(
            folders,
            limit=config.tool_disk_bytes + before if config.tool_disk_bytes else None,
            reserve=config.disk_reserve_bytes,
            period_s=config.disk_period_s,
            files=config.max_files if len(folders) == 1 else 0,
        )
