"""Before the user's code runs: folders, environment, and what the sandbox will show."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cloud_ml.domain.observed import UnsavedFiles
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import OWN_LOOPBACK, ProcessPlan
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.project_ids import ProjectLimit
from cloud_ml.engines.local.files import (
    stop_notice,
    task_reports,
)
from cloud_ml.engines.local.files.task_folders import TaskFolders
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.bind_mounts import BucketMounts
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.ledger import TEMPORARY_FOLDER, Ledger
from cloud_ml.engines.local.network import NONE
from cloud_ml.engines.local.processes import launch
from cloud_ml.engines.local.processes.launch import PrelaunchedProcess
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.secrets import NO_SECRET_FILES, secret_files, secret_variables
from cloud_ml.engines.local.supervisor.attempt_environment import AttemptEnvironment
from cloud_ml.engines.local.supervisor.attempt_folders import HOSTS, AttemptFolders
from cloud_ml.engines.local.supervisor.attempt_logs import AttemptLogs
from cloud_ml.engines.local.supervisor.attempt_network import AttemptNetwork
from cloud_ml.engines.local.supervisor.checkpoint_folder import CheckpointFolder
from cloud_ml.engines.local.supervisor.staged import Ahead, Staged
from cloud_ml.engines.local.supervisor.task_files import TaskFiles
from cloud_ml.engines.local.warm_pool import interpreter_spec
from cloud_ml.engines.local.warm_pool.interpreter import Job, WarmInterpreter
from cloud_ml.environments.base import EnvironmentFailed, Prepared
from cloud_ml.environments.packages.kept import Kept
from cloud_ml.environments.packages.venvs import Venvs


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
        user = config.user(gang.tenant)
        self.fence = launch.tenant_fence(config, user)
        self._exposure = ahead.exposure
        self._prelaunched = dict(ahead.prelaunched)
        self._interpreter = ahead.interpreter
        self._expect = ahead.expect
        self.network = AttemptNetwork(gang, ahead.networks, config.network.task_ports)
        self.folders = AttemptFolders(gang, config, ledger, self.fence)
        shelves = ledger.venvs / str(gang.tenant)
        self._temporary = Kept(shelves)
        self.tasks: TaskFolders | None = None
        self.logs = AttemptLogs(gang, ledger.log_folder(gang.key), config.log_limit_bytes)
        names = tuple(plan.name for plan in gang.tasks)
        if gang.has_tasks or gang.first.ports:
            self.tasks = TaskFolders(
                names,
                work=self.folders.work,
                tmp=self.folders.tmp,
                hosts=self.folders.attempt / HOSTS,
                show=ahead.exposure.path if self.fence.bwrap else None,
            )
        self.buckets = BucketMounts(gang.folders, self.logs.write)
        self.checkpoints = CheckpointFolder(gang, self.buckets, self.fence.user)
        self.task_files = TaskFiles(self.folders.tmp, separate=self.tasks is not None)
        self._environment = AttemptEnvironment(
            gang,
            config,
            self.fence,
            folders=self.folders,
            logs=self.logs,
            exposure=self._exposure,
            group=groups[0] if groups else None,
            network=self.network,
            venvs=Venvs(shelves, self.folders.own_tree),
        )

    def bind_to_limit(self) -> ProjectLimit | None:
        """Have the kernel keep the disk limit, where it can. The rest, such as the environment, is
        only measured.
        """
        try:
            return self.folders.bind_to_limit()
        except OSError as error:
            self.logs.write(f"cloudml: the disk limit is only measured: {error}\n".encode())
            return None

    def make_folders(self) -> None:
        """Make what belongs to the attempt; the tenant's part belongs to the tenant's user."""
        self.folders.make()
        self._temporary.take(TEMPORARY_FOLDER, self.folders.tmp, self.folders.make_tmp)
        if self.tasks is not None:
            self._exposure.open()  # before any process is forked: it sees only what it shares
            self.tasks.make(self.fence.user, str(self._config.etc))
        self.network.open()
        self.folders.forget_early_attempts()
        if not self.fence.bwrap:
            self.folders.link_mounts()
        self.checkpoints.make(self.logs.write)

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
        return self._environment.built

    def leave_zygote(self) -> None:
        """Do without the interpreter that waits."""
        if self._interpreter is not None:
            self._interpreter.leave()
            self._interpreter = None

    def job(self, staged: Staged, plan: ProcessPlan) -> Job:
        """What such an interpreter is to become."""
        inside, folder = staged.view.folder, str(self.folders.working_directory)
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
            self.folders.work,
            self.folders.tmp,
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
        # The interpreter that waits is in the same control group as the tools.
        waits = self._interpreter is not None
        beside = self._config.zygotes.memory_bytes if waits else 0
        prepared = self._environment.prepare(reached, memory_beside=beside)
        if self.folders.has_code:
            self.folders.make_working_directory(prepared.folder)
        prepared = self._environment.with_notices(prepared)
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

    def find_unsaved_files(self) -> UnsavedFiles:
        """What the job, which has ended, wrote outside its working directory."""
        return self.folders.find_unsaved_files(() if self.tasks is None else self.tasks.names)

    def clean_up(self) -> None:
        """Remove what nobody looks at after the end; logs and the working folder stay."""
        self.leave_zygote()
        for process in self._prelaunched.values():  # of tasks that did not start
            process.leave()
        self.logs.close()
        self._temporary.give_back(self.folders.tmp)
        self._environment.release()
        self._exposure.close()
        self.network.close()
        if self.tasks is not None:
            self.tasks.forget_names()
        self.checkpoints.leave()

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
        work = str(self.folders.work)
        inside = bool(self.fence.bwrap)
        temporary = "/tmp" if inside else str(self.folders.tmp)  # noqa: S108 - the job's own
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
            working_folder=str(self.folders.working_directory),
            takes_output_path=prepared.takes_output_path,
            secrets=secret_variables(self._gang),
            tasks=self.tasks,
            attempt=self._gang.key.attempt,
        )

    def _view(self, prepared: Prepared, work: str) -> View:
        gang = self._gang
        writable = [(work, sandbox.WORK), (str(self.folders.tmp), "/tmp")]  # noqa: S108
        if self.folders.venv.exists():
            writable.append((str(self.folders.venv), sandbox.ENVIRONMENT))
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
            folder=self.folders.seen_working_directory,
            hostname=self._gang.labels.get("job", "job"),
            network=self.network.leads_to_others,
            own_network=self.network.of_tasks,
            etc=self._environment.etc,
            optional=frozenset(bound.target for bound in self._gang.folders),
            port=self.fence.port if gang.network == NONE and not gang.serves else 0,
        )
