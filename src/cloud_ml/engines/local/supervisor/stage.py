"""Before the user's code runs: folders, environment, and what the sandbox will show."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cloud_ml.domain.observed import UnsavedFiles
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import OWN_LOOPBACK, ProcessPlan
from cloud_ml.engines.local.cgroups import Group, Limits
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.project_ids import ProjectLimit
from cloud_ml.engines.local.disk.watch import DiskWatch, measure_use
from cloud_ml.engines.local.environments.tools import ToolSandbox
from cloud_ml.engines.local.files import (
    metric_files,
    parameter_files,
    stop_notice,
    task_reports,
    working_directory,
)
from cloud_ml.engines.local.files.task_folders import TaskFolders
from cloud_ml.engines.local.files.unsaved_files import find_unsaved_files
from cloud_ml.engines.local.files.working_directory import CannotCopy, CopyLimits
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.bind_mounts import BucketMounts
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.ledger import TEMPORARY_FOLDER, Ledger
from cloud_ml.engines.local.network import NONE
from cloud_ml.engines.local.processes import launch
from cloud_ml.engines.local.processes.launch import PrelaunchedProcess
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.secrets import NO_SECRET_FILES, secret_files, secret_variables
from cloud_ml.engines.local.supervisor.attempt_logs import AttemptLogs
from cloud_ml.engines.local.supervisor.attempt_network import AttemptNetwork
from cloud_ml.engines.local.supervisor.checkpoint_folder import CheckpointFolder
from cloud_ml.engines.local.supervisor.staged import Ahead, Staged
from cloud_ml.engines.local.warm_pool import interpreter_spec
from cloud_ml.engines.local.warm_pool.interpreter import Job, WarmInterpreter
from cloud_ml.environments.base import EnvironmentFailed, EnvironmentRequest, Prepared
from cloud_ml.environments.build import prepare
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.leases import Leases
from cloud_ml.environments.packages.kept import Kept
from cloud_ml.environments.packages.venvs import Venvs
from cloud_ml.environments.removing import remove

_TMP, _VENV = TEMPORARY_FOLDER, "venv"
_SMALL_PART = 16
"""A copy of what was sent may take this part of a disk that is nearly full: a job that writes to
buckets still runs.
"""
_MLFLOW = ("mlflow==", "mlflow-skinny==")
_NO_WAY_FOR_MLFLOW = (
    "MLflow's client does not reach the server from this job, since jobs here have no network "
    "(engine.network is none), and this machine lacks a sandbox or a C compiler, which a way takes "
    "(see cloudml doctor). mlflow logs to the working directory of the job; mlflow-skinny fails. "
    "Use cloud_ml.job.report for metrics and cloud_ml.job.params for parameters: they need no "
    "network"
)
HOSTS = "hosts"
"""The table of names of a gang, in the folder of an attempt."""
WRITABLE = (_TMP, _VENV)
"""Folders of an attempt that its code may write to; beside them there is the working folder of
the job.
"""
_NOT_OUTPUTS = frozenset(
    name.encode() for name in (working_directory.CODE, metric_files.FOLDER, parameter_files.NAME)
)


class Stage:
    """Prepares one attempt."""

    def __init__(
        self,
        gang: ResolvedGang,
        config: LocalConfig,
        ledger: Ledger,
        groups: Sequence[Group],
        ahead: Ahead,
    ) -> None:
        self._gang = gang
        self._config = config
        self._ledger = ledger
        self._group = groups[0] if groups else None
        user = config.user(gang.tenant)
        self.fence = launch.tenant_fence(config, user)
        self._exposure = ahead.exposure
        self._prelaunched = dict(ahead.prelaunched)
        self._interpreter = ahead.interpreter
        self._expect = ahead.expect
        self._leases = Leases()
        self._tools: ToolSandbox | None = None
        self.network = AttemptNetwork(gang, ahead.networks, config.network.task_ports)
        self.attempt_folder = ledger.attempt_folder(gang.key)
        self._work = ledger.work_folder(gang.key.job_uid)
        self._tmp = self.attempt_folder / _TMP
        self._venv = self.attempt_folder / _VENV
        shelves = ledger.venvs / str(gang.tenant)
        self._venvs = Venvs(shelves, self._own_tree)
        self._temporary = Kept(shelves)
        self.tasks: TaskFolders | None = None
        self.logs = AttemptLogs(gang, ledger.log_folder(gang.key), config.log_limit_bytes)
        names = tuple(plan.name for plan in gang.tasks)
        if gang.has_tasks or gang.first.ports:
            self.tasks = TaskFolders(
                names,
                work=self._work,
                tmp=self._tmp,
                hosts=self.attempt_folder / HOSTS,
                show=ahead.exposure.path if self.fence.bwrap else None,
            )
        self.buckets = BucketMounts(gang.folders, self.logs.write)
        self.checkpoints = CheckpointFolder(gang, self.buckets, self.fence.user)

    def bind_to_limit(self) -> ProjectLimit | None:
        """Have the kernel keep the disk limit, where it can. The rest, such as the environment, is
        only measured.
        """
        size = self._gang.disk_bytes or self._config.default_disk_bytes
        if not self._config.project_id_base or not size:
            return None
        try:
            return self._ledger.projects.bind(
                self._gang.key.job_uid,
                [self._work, self._tmp],
                first=self._config.project_id_base,
                size=size,
                files=self._config.max_files,
            )
        except OSError as error:
            self.logs.write(f"cloudml: the disk limit is only measured: {error}\n".encode())
            return None

    def make_folders(self) -> None:
        """Make what belongs to the attempt; the tenant's part belongs to the tenant's user."""
        work = self._work
        for folder in (work, self._ledger.log_folder(self._gang.key)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (work.parent, self.attempt_folder):
            # The users of jobs pass through to their own folders and cannot list these.
            folder.chmod(0o711)
        self._own(work)
        metric_files.make(work, self.fence.user)
        parameter_files.write(work, self._gang.first, self.fence.user)
        self._temporary.take(_TMP, self._tmp, self._make_tmp)
        if self.tasks is not None:
            self._exposure.open()  # before any process is forked: it sees only what it shares
            self.tasks.make(self.fence.user, str(self._config.etc))
        self.network.open()
        self._forget_early_attempts()
        if not self.fence.bwrap:
            self._link_mounts()
        self.checkpoints.make(self.logs.write)

    def _forget_early_attempts(self) -> None:
        """What serves starts again without end: drop the output of the attempt that is one too
        many.
        """
        key = self._gang.key
        if self._gang.serves and (earlier := key.attempt - self._config.kept_attempts) > 0:
            remove(self._ledger.attempt_folder(replace(key, attempt=earlier)))

    def prelaunched(
        self, group: Group, taken: PrelaunchedProcess | None = None
    ) -> PrelaunchedProcess:
        """The prelaunched process of a group that was taken ahead, once; a fresh one if a tool's
        end has swept it away.

        ``taken`` is one that this has returned before. It is returned again if it still waits.

        Raises:
            OSError: No process or descriptor is to be had.
        """
        if taken is not None and taken.free:
            return taken
        if taken is not None:
            taken.leave()
        # One that was started ahead does not have the descriptors of this gang's secret files.
        process, files = self._prelaunched.pop(group.name, None), secret_files(self._gang)
        if process is not None and process.free and not files:
            return process
        if process is not None:
            process.leave()
        return PrelaunchedProcess(self.fence, group, files=files)

    def waiting_interpreter(self, staged: Staged, plan: ProcessPlan) -> WarmInterpreter | None:
        """The interpreter that waits for this process, if it is just what the process needs."""
        return self._interpreter if plan is self._gang.first and staged.order is not None else None

    @property
    def built(self) -> bool:
        """Whether tools ran in the first control group before the job."""
        return self._tools is not None and self._tools.limited

    def leave_notice(self, name: str, reason: str, grace_s: float) -> None:
        """Tell a task why it is to stop, and when it is killed."""
        stop_notice.write(self._tmp, () if self.tasks is None else (name,), reason, grace_s)

    def remove_notice(self, name: str) -> None:
        """Remove what a task was told that starts again."""
        stop_notice.remove(self._tmp, () if self.tasks is None else (name,))

    def report_version(self, name: str) -> task_reports.Version | None:
        """The version of what a task has reported."""
        return task_reports.version(self._tmp, () if self.tasks is None else (name,))

    def progress(self, name: str) -> Progress | None:
        """What a task has reported."""
        return task_reports.read(self._tmp, () if self.tasks is None else (name,))

    def leave_zygote(self) -> None:
        """Do without the interpreter that waits."""
        if self._interpreter is not None:
            self._interpreter.leave()
            self._interpreter = None

    def job(self, staged: Staged, plan: ProcessPlan) -> Job:
        """What such an interpreter is to become."""
        inside, folder = staged.view.folder, str(self._working_folder)
        own = [site for site in staged.own_sites if site != inside]
        searched = [
            folder,
            *(
                site.replace(inside, folder) if site.startswith(f"{inside}/") else site
                for site in own
            ),
        ]
        return Job(
            self.buckets.without_removed(staged.view),
            self._work,
            self._tmp,
            staged.own_sites,
            searched,
            staged.environment(plan),
        )

    def prepare(self, reached: Callable[[str], None]) -> Staged:
        """Make the environment, or find it made. ``reached`` is told what it took on the way.

        Raises:
            EnvironmentFailed: With the reason; the tool's own words are in the log.
        """
        self._check_can_start()
        plan = self._gang.environment
        if plan.trainer is None and plan.framework is None:
            return self._bare()
        prepared = self._prepared(reached)
        if self._has_code:
            self._make_working_directory(prepared.folder)
        prepared = self._with_notices(prepared)
        staged = self._staged(prepared)
        if (first := self._gang.first) != (completed := staged.with_output_path(first)):
            self.logs.write(
                f"cloudml: passes {completed.command[-1]}, because the code has this "
                "flag\n".encode()
            )
        if self._interpreter is not None and self._interpreter.order != staged.order:
            self.leave_zygote()
        if self._config.zygotes.most and prepared.preload:
            self._expect(interpreter_spec.hint(self._gang), staged.order)
        return staged

    def _check_can_start(self) -> None:
        """Refuse what was found out before, and secret files where nothing hides them from others.

        Raises:
            EnvironmentFailed: With the reason.
        """
        trainer = self._gang.environment.trainer
        if trainer is not None and trainer.problem:
            raise EnvironmentFailed(trainer.reason, trainer.problem)
        if self._gang.refusal:
            raise EnvironmentFailed(self._gang.refusal_reason, self._gang.refusal)
        if not self.fence.bwrap and secret_files(self._gang):
            raise EnvironmentFailed(Reason.START_FAILED, NO_SECRET_FILES)

    def _prepared(self, reached: Callable[[str], None]) -> Prepared:
        """The environment, made or found."""
        plan, config = self._gang.environment, self._config
        self._tools = self._tool_sandbox()
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
            venv=self._venv,
            uv=Path(config.uv),
            catalog=Catalog.load(Path(config.runtimes_dir), tuple(config.pythons)),
            sandbox=self._tools,
            log=self.logs.write,
            python=Path(config.python),
            pythons=config.pythons,
            timeout_s=config.tool_timeout_s,
            download_tries=config.download_tries,
            reached=reached,
            fill=self._venvs.make,
            leases=self._leases,
            working_directory=self._folder if self._has_code else "",
        )

    def _with_notices(self, prepared: Prepared) -> Prepared:
        """Write to the log what the user should know, what is known only here included."""
        has_mlflow = any(line.startswith(_MLFLOW) for line in prepared.lock.splitlines())
        has_no_way = self._gang.network == NONE and not self.fence.port
        if has_no_way and has_mlflow:
            prepared = replace(prepared, notices=(*prepared.notices, _NO_WAY_FOR_MLFLOW))
        for notice in prepared.notices:
            self.logs.write(f"cloudml: {notice}\n".encode())
        return prepared

    def _make_working_directory(self, sent: str) -> None:
        """Copy what was sent, unless an attempt before has done so.

        Raises:
            EnvironmentFailed: It takes more than the job may have, or than the disk can give.
        """
        config, limit = self._config, self._gang.disk_bytes or self._config.default_disk_bytes
        facts = os.statvfs(self._work)
        spare = facts.f_bavail * facts.f_frsize
        # A small copy may use the disk reserve.
        free = max(spare - config.disk_reserve_bytes, spare // _SMALL_PART)
        room = CopyLimits(min(free, limit) if limit else free, config.max_files or None)
        job = self._ledger.job_folder(self._gang.key.job_uid)
        try:
            working_directory.make_once(
                Path(sent) if sent else None, job, user=self.fence.user, room=room
            )
        except CannotCopy as error:
            raise EnvironmentFailed(error.reason, error.message) from error

    def _tool_sandbox(self) -> ToolSandbox:
        return ToolSandbox(
            self.fence,
            self._exposure,
            self._group,
            self._etc,
            self.network.of_tenant,
            limits=self._tool_limits,
            watch=self._watch_tool,
        )

    def find_unsaved_files(self) -> UnsavedFiles:
        """What the job, which has ended, wrote outside its working directory."""
        if not self._has_code:  # its home directory is its working directory, or it serves
            return UnsavedFiles()
        inside = bool(self.fence.bwrap)
        tmp = "/tmp" if inside else "$TMPDIR"  # noqa: S108
        names = () if self.tasks is None else self.tasks.names
        folders = [(self._tmp / name, f"{name}:{tmp}") for name in names] or [(self._tmp, tmp)]
        folders.append((self._work, "~"))
        return find_unsaved_files(folders, skipped=_NOT_OUTPUTS)

    def clean_up(self) -> None:
        """Remove what nobody looks at after the end; logs and the working folder stay."""
        self.leave_zygote()
        for process in self._prelaunched.values():  # of tasks that did not start
            process.leave()
        self.logs.close()
        self._temporary.give_back(self._tmp)
        self._venvs.give_back(self._venv)
        self._leases.close()
        self._exposure.close()
        self.network.close()
        if self.tasks is not None:
            self.tasks.forget_names()
        self.checkpoints.leave()

    @property
    def _has_code(self) -> bool:
        """Whether the job runs in a copy of what was sent. What serves listens on sockets in its
        home directory.
        """
        return self._gang.environment.trainer is not None and not self._gang.serves

    @property
    def _working_folder(self) -> Path:
        """The working directory on this machine."""
        return self._work / working_directory.CODE if self._has_code else self._work

    @property
    def _folder(self) -> str:
        """The working directory as the job sees it."""
        if not self.fence.bwrap:
            return str(self._working_folder)
        return sandbox.CODE if self._has_code else sandbox.WORK

    @property
    def _tool_limits(self) -> Limits:
        """What installers and builds may use: the limits of the job, and as much memory as they
        need at least.
        """
        plan = self._gang.first
        asked = plan.memory_bytes or self._config.default_memory_bytes
        memory = max(asked, self._config.tool_memory_bytes) if asked else None
        if memory is not None and self._interpreter is not None:  # it waits in the same group
            memory += self._config.zygotes.memory_bytes
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

    @property
    def _etc(self) -> str:
        return self._exposure.path(str(self._config.etc)) if self._config.bwrap else ""

    def _link_mounts(self) -> None:
        """Without a mount table of its own, the job reaches its buckets through links."""
        for folder in self._gang.folders:
            target = Path(folder.target)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(folder.source)

    def _make_tmp(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._own(folder)

    def _own(self, folder: Path) -> None:
        if self.fence.user is not None:
            os.chown(folder, *self.fence.user)

    def _own_tree(self, folder: Path) -> None:
        if self.fence.user is not None:
            for parent, _, files in os.walk(folder):
                for name in (".", *files):
                    # A link may lead to a file that is not the tenant's.
                    os.chown(Path(parent) / name, *self.fence.user, follow_symlinks=False)

    def _bare(self) -> Staged:
        python = os.path.realpath(self._config.python)
        return self._staged(
            Prepared(
                python=python,
                binds=(),
                environment={},
                runtime="",
                base_memory=0,
                lock="",
                trainer_digest="",
            )
        )

    def _staged(self, prepared: Prepared) -> Staged:
        work = str(self._work)
        inside = bool(self.fence.bwrap)
        temporary = "/tmp" if inside else str(self._tmp)  # noqa: S108 - the job's own
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "USER": "job",
            "HOME": sandbox.WORK if inside else work,
            "TMPDIR": temporary,
            # Output goes to a pipe, for which Python would buffer it: a task that is killed would
            # lose its last lines.
            "PYTHONUNBUFFERED": "1",
            launch.GANG: str(self._gang.key),
            stop_notice.VARIABLE: f"{temporary}/{stop_notice.NAME}",
            task_reports.VARIABLE: f"{temporary}/{task_reports.NAME}",
            # Only bubblewrap gives a process a network namespace of its own.
            **({OWN_LOOPBACK: "1"} if inside and self._gang.offline else {}),
            **prepared.environment,
        }
        return Staged(
            view=self._view(prepared, work),
            python=prepared.python,
            variables=variables,
            base_memory=prepared.base_memory,
            runtime=prepared.runtime,
            lock=prepared.lock,
            trainer_digest=prepared.trainer_digest,
            notices=prepared.notices,
            threads=prepared.threads,
            order=interpreter_spec.of(self._gang, prepared, variables)
            if self._config.zygotes.most
            else None,
            own_sites=prepared.own_sites,
            working_folder=str(self._working_folder),
            takes_output_path=prepared.takes_output_path,
            secrets=secret_variables(self._gang),
            tasks=self.tasks,
            attempt=self._gang.key.attempt,
        )

    def _view(self, prepared: Prepared, work: str) -> View:
        gang = self._gang
        writable = [(work, sandbox.WORK), (str(self._tmp), "/tmp")]  # noqa: S108
        if self._venv.exists():
            writable.append((str(self._venv), sandbox.ENVIRONMENT))
        read_only = [(bind.source, bind.target) for bind in prepared.binds]
        for bound in self.buckets.present():
            (writable if bound.writable else read_only).append((bound.source, bound.target))
        show: Callable[[str], str] = self._exposure.path
        if not self.fence.bwrap:
            show = str
            links = {str(Path(bound.target).parent) for bound in self._gang.folders} - {
                str(Path(work).parent)
            }
            read_only += [(folder, folder) for folder in sorted(links)]
        return View(
            read_only=[(show(source), target) for source, target in read_only],
            writable=[(show(source), target) for source, target in writable],
            folder=self._folder,
            hostname=self._gang.labels.get("job", "job"),
            network=self.network.leads_to_others,
            own_network=self.network.of_tasks,
            etc=self._etc,
            optional=frozenset(bound.target for bound in self._gang.folders),
            port=self.fence.port if gang.network == NONE and not gang.serves else 0,
        )
