"""What starting the processes of an attempt needs: what is there before its gang is known, and what
was staged for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.failures.files import CodeFolder
from cloud_ml.engines.local.files import metric_files, parameter_files
from cloud_ml.engines.local.files.task_folders import TaskFolders
from cloud_ml.engines.local.isolation.exposure import Exposure
from cloud_ml.engines.local.isolation.sandbox import View
from cloud_ml.engines.local.processes.launch import PrelaunchedProcess
from cloud_ml.engines.local.warm_pool import interpreter_spec
from cloud_ml.engines.local.warm_pool.interpreter import WarmInterpreter
from cloud_ml.engines.local.warm_pool.interpreter_spec import InterpreterSpec
from cloud_ml.models.parameter_file import fill_placeholder

OUTPUT_PATH = "--output_path"
"""The flag of a trainer that says where its results go."""


@dataclass(frozen=True)
class Staged:
    """Everything that starting a process needs. ``secrets`` are variables."""

    view: View
    python: str
    variables: Mapping[str, str]
    base_memory: int = 0
    runtime: str = ""
    lock: str = ""
    trainer_digest: str = ""
    notices: Sequence[str] = field(default_factory=tuple)
    threads: Sequence[str] = field(default_factory=tuple)
    order: InterpreterSpec | None = None
    own_sites: Sequence[str] = field(default_factory=tuple)
    working_folder: str = ""
    takes_output_path: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    tasks: TaskFolders | None = None
    attempt: int = 1

    @property
    def code_folders(self) -> Sequence[CodeFolder]:
        """Where the user's code may lie: in the working directory, and where the trainer was
        installed.
        """
        inside = self.view.folder
        installed = [site for site in self.own_sites if not f"{site}/".startswith(f"{inside}/")]
        return [
            CodeFolder(self.working_folder, inside),
            *(CodeFolder(site, site) for site in installed),
        ]

    def command(self, plan: ProcessPlan) -> list[str]:
        """The process's command with the environment's interpreter in it."""
        head, *rest = self.completed(plan).command
        return [self.python if head == "python" else head, *rest]

    def completed(self, plan: ProcessPlan) -> ProcessPlan:
        """The plan with the arguments that depend on the code, and on where its files are."""
        if parameter_files.text_of(plan) is not None:
            path = parameter_files.path_in(self.variables["HOME"])
            plan = replace(plan, command=tuple(fill_placeholder(plan.command, path)))
        return self.with_output_path(plan)

    def with_output_path(self, plan: ProcessPlan) -> ProcessPlan:
        """The plan with the argument ``--output_path``, if the code has it."""
        if not (plan.output_path and self.takes_output_path and plan.command[0] == "python"):
            return plan
        return replace(plan, command=(*plan.command, f"{OUTPUT_PATH}={plan.output_path}"))

    def view_of(self, plan: ProcessPlan) -> View:
        """What the process sees. Each of several has a host name and a ``/tmp`` of its own."""
        return self.view if self.tasks is None else self.tasks.view_of(plan.name, self.view)

    def environment(self, plan: ProcessPlan) -> dict[str, str]:
        """The process's variables: the platform's, the runtime's, the user's; later ones win."""
        return {
            **self.variables,
            **metric_files.variables(self.variables["HOME"], self.attempt, plan.name),
            **(self.tasks.variables(plan.name) if self.tasks is not None else {}),
            **interpreter_spec.threads(plan, self.threads),
            **plan.environment,
            **parameter_files.variables(self.variables["HOME"], plan),
            **self.secrets,
        }


@dataclass(frozen=True)
class Ahead:
    """What is there before the gang is staged: ``prelaunched`` processes by the name of their
    control group, or a ``interpreter`` in the first one.

    ``networks`` is the folder in which the networks of organisations are mounted, opened.
    ``expect`` is told what the next gang of this kind could start from.
    """

    exposure: Exposure
    prelaunched: Mapping[str, PrelaunchedProcess] = field(default_factory=dict)
    networks: int | None = None
    interpreter: WarmInterpreter | None = None
    expect: Callable[[str, InterpreterSpec | None], None] = lambda _hint, _order: None
