# Made of aio/studies.py by tools/twins.py: change that one, then run `make format`.
"""Studies: searches for the arguments with which a train job does best."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cloud_ml.errors import AlreadyExists, Conflict
from cloud_ml.models import codec
from cloud_ml.models.fields import check_type
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.studies.readouts import RegisteredTrial, StudyCurves, StudyImportance
from cloud_ml.models.studies.space import checked_space
from cloud_ml.models.studies.study import (
    STUDIES,
    KeptCheckpoints,
    NewStudy,
    QueuedTrials,
    Study,
    StudyExtension,
    registered_trial,
    source_of,
    why_other,
)
from cloud_ml.sdk.ask_tell import LocalStudy
from cloud_ml.sdk.messages import Request, json_request, segment
from cloud_ml.sdk.optuna import OptunaCalls
from cloud_ml.sdk.progress import Progress
from cloud_ml.sdk.resources import Resources
from cloud_ml.sdk.timeouts import LONG_POLL_S
from cloud_ml.sdk.transport import Transport

SendTrainer = Callable[[TrainJob, Progress | None, str | None], TrainJob]
"""Uploads the code of a job, if it is of this machine."""


class Studies(Resources[NewStudy, Study]):
    """The studies of the caller's organisation: ``submit`` beside what all resources have."""

    def __init__(self, transport: Transport, send_trainer: SendTrainer) -> None:
        super().__init__(transport, STUDIES)
        self._send_trainer = send_trainer

    def submit(
        self,
        job: TrainJob,
        space: Mapping[str, Any] | None = None,
        *,
        constraints: Sequence[str] = (),
        parameters_as: str = "arguments",
        objective: str | Sequence[str] = "loss:min",
        algorithm: str = "auto",
        algorithm_options: Mapping[str, Any] | None = None,
        max_trials: int | None = None,
        parallel: int = 2,
        max_failed: int = 3,
        same_failures: int = 3,
        stopper: str = "",
        stopper_options: Mapping[str, Any] | None = None,
        target: float | None = None,
        max_time: str | int | None = None,
        repeats: int = 0,
        repeat_best: int = 3,
        keep_checkpoints: str | int = "all",
        seed: int | None = None,
        trials: Sequence[Mapping[str, Any]] = (),
        warm_start: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Study:
        """Submit a study of the job's name. A ``trainer_uri`` that is a local file or folder is
        packed and uploaded first.

        Args:
            job: What each trial runs. Its trials are the jobs ``<name>-hp-0`` and so on.
            space: The parameters by their names: a list of values, ``{"value": 3}`` of a constant,
                or a range such as ``{"min": 0.0001, "max": 0.1, "scale": "log"}`` with ``type``
                (``double``, ``int``), ``scale`` (``linear``, ``log``, ``reverse-log``) and
                ``step``. One with ``"active_if": {"optimizer": "sgd"}`` is a parameter of those
                trials only.
            constraints: What holds between parameters, such as ``"a < b"``.
            parameters_as: ``arguments`` (``--lr=0.1``), ``environment`` (a variable ``lr``) or
                ``file`` (a JSON file; its path is in the variable ``CLOUDML_PARAMETERS``).
            objective: The metric, and ``:min`` or ``:max``; or a list of two to four, whose Pareto
                front is looked for.
            algorithm: ``auto``, ``gp``, ``tpe``, ``cma-es``, ``nsga2``, ``ehvi``, ``qmc``,
                ``random``, ``grid``, ``pbt``, or a sampler of Optuna such as ``optuna:TPESampler``.
            algorithm_options: Options of ``pbt``: ``population``, ``quantile``,
                ``resample_probability`` and ``factors``; or of a sampler, such as
                ``{"n_startup_trials": 5}``.
            max_trials: How many trials there are; by default all of a grid, else 20.
            parallel: How many run at a time.
            max_failed: The study fails when more trials than this fail.
            same_failures: The study fails when so many trials in a row fail alike; 0 for never.
            stopper: Ends trials early that do badly: ``median``, ``percentile``, ``asha``,
                ``hyperband``, ``threshold`` or ``plateau``.
            stopper_options: Its options, such as ``{"min_steps": 1, "factor": 4}`` of ``asha``.
            target: The study ends when a trial completes with this value or a better one.
            max_time: The study ends when it is so old: ``90m``, ``2h``. A number means seconds.
            repeats: How often each of the best trials is run again when all have ended, for objectives
                with noise. Then ``best`` is the one with the best mean.
            repeat_best: How many of the best trials are repeated.
            keep_checkpoints: Of which trials the checkpoints are kept: ``all``, ``best``, the number of
                the best trials, or ``none``. Those of the others are removed when they have ended.
            seed: The same seed gives the same trials; each study has its own by default.
            trials: Trials that are run first, each with its parameters.
            warm_start: Names of earlier studies, which have ended: their trials are learned from, too.
            progress: Told how far the upload is.

        Raises:
            InvalidRequest: A field is wrong, or the local code cannot be packed.
            AlreadyExists: There is a study of that name.
        """
        check_type(job, TrainJob)
        job.validate()
        sent = codec.encode_given(self._send_trainer(job, progress, None))
        name = sent.pop("job_name")
        return self.create(
            NewStudy(
                name=name,
                job=sent,
                space=checked_space(space or {}),
                constraints=list(constraints),
                parameters_as=parameters_as,
                objective=_list_objectives(objective),
                algorithm=algorithm,
                algorithm_options=dict(algorithm_options or {}),
                max_trials=max_trials,
                parallel=parallel,
                max_failed=max_failed,
                same_failures=same_failures,
                stopper=stopper,
                stopper_options=dict(stopper_options or {}),
                target=target,
                max_time=max_time,
                repeats=repeats,
                repeat_best=repeat_best,
                keep_checkpoints=keep_checkpoints,
                seed=seed,
                trials=[dict(trial) for trial in trials],
                warm_start=list(warm_start),
            )
        )

    def local(
        self,
        name: str,
        space: Mapping[str, Any] | None = None,
        *,
        constraints: Sequence[str] = (),
        parameters_as: str = "arguments",
        objective: str | Sequence[str] = "loss:min",
        algorithm: str = "auto",
        algorithm_options: Mapping[str, Any] | None = None,
        max_trials: int | None = None,
        parallel: int = 2,
        max_failed: int = 3,
        same_failures: int = 3,
        stopper: str = "",
        stopper_options: Mapping[str, Any] | None = None,
        target: float | None = None,
        max_time: str | int | None = None,
        seed: int | None = None,
        trials: Sequence[Mapping[str, Any]] = (),
        warm_start: Sequence[str] = (),
    ) -> LocalStudy:
        """A study whose trials a loop of yours runs: it asks for them, and tells how they ended. One
        of that name that is there is gone on with, so several processes may share it.

        Args:
            name: Its name.
            space: As for ``submit``; with what follows only of use where there is none yet. A study
                that is there has to have the same one.
            constraints: Likewise.
            parameters_as: How ``cloudml hp run --local`` passes parameters, as for ``submit``. A loop
                of yours has them in any case.
            objective: The metric, and ``:min`` or ``:max``; or a list of them. Then ``tell`` takes a
                list of values.
            algorithm: As for ``submit``.
            algorithm_options: As for ``submit``.
            max_trials: How many trials there are; 20 by default.
            parallel: How many your loops run at a time. It is shown only: each call of ``ask`` gives a
                trial.
            max_failed: The study fails when more trials than this fail.
            same_failures: The study fails when so many trials in a row fail alike; 0 for never.
            stopper: Says when a trial that reports should end.
            stopper_options: Its options.
            target: The study ends when a trial has this value or a better one.
            max_time: The study ends when it is so old: ``90m``, ``2h``. A number means seconds.
            seed: The same seed gives the same trials.
            trials: Trials that come first.
            warm_start: Names of earlier studies, which have ended: their trials are learned from, too.

        Raises:
            InvalidRequest: A field is wrong.
            Conflict: There is a study of that name whose trials are jobs, or one with another space
                or objective.
        """
        new = NewStudy(
            name=name,
            space=checked_space(space or {}),
            constraints=list(constraints),
            parameters_as=parameters_as,
            objective=_list_objectives(objective),
            algorithm=algorithm,
            algorithm_options=dict(algorithm_options or {}),
            max_trials=max_trials,
            parallel=parallel,
            max_failed=max_failed,
            same_failures=same_failures,
            stopper=stopper,
            stopper_options=dict(stopper_options or {}),
            target=target,
            max_time=max_time,
            seed=seed,
            trials=[dict(trial) for trial in trials],
            warm_start=list(warm_start),
            local=True,
        )
        if space or trials:
            with contextlib.suppress(AlreadyExists):
                return self._local_study(self.create(new))
        study = self.describe(name)
        if study.local and (why := why_other(new, study)):
            message = f"there is a study {name} already, and {why}"
            hint = f"Go on with it: studies.local({name!r}), change its space: "
            hint += "studies.extend, or give another name."
            raise Conflict(message, field="name", hint=hint)
        return self._local_study(study)

    def optuna(self) -> OptunaCalls:
        """The calls of Optuna's storage service: see ``cloudml hp proxy``."""
        return OptunaCalls(self._transport)

    def pause(self, name: str) -> Study:
        """Let no trial begin until ``resume``. Those that run go on."""
        return self.act(name, "pause")

    def resume(self, name: str) -> Study:
        """Go on after ``pause``."""
        return self.act(name, "resume")

    def extend(
        self,
        name: str,
        trials: int,
        *,
        target: float | None = None,
        max_time: str | int | None = None,
        space: Mapping[str, Any] | None = None,
        constraints: Sequence[str] | None = None,
    ) -> Study:
        """Run so many more trials, also of a study that has completed or was stopped.

        Args:
            name: Its name.
            trials: How many.
            target: As for ``submit``. The one before holds no more.
            max_time: Likewise.
            space: Parameters that change, by their names, as for ``submit``; ``None`` takes one
                away. Trials outside of the changed space stay, and are not learned from. Those that
                were named and have not begun are dropped: ``dropped`` of the answer names them.
            constraints: Those that hold from now on; by default the ones of before.

        Raises:
            InvalidRequest: A parameter or constraint is wrong, or there are not so many trials to run.
            Conflict: The study has failed.
        """
        request = StudyExtension(
            trials=trials,
            target=target,
            max_time=max_time,
            space=checked_space(space or {}),
            constraints=None if constraints is None else list(constraints),
        )
        return self._going_on(self.act(name, "extend", request))

    def enqueue(self, name: str, trials: Sequence[Mapping[str, Any]]) -> Study:
        """Run these trials next, each with its parameters, beside all others.

        Raises:
            InvalidRequest: A parameter is unknown or missing, or its value is none.
            Conflict: The study has failed.
            TypeError: It is one trial, not a list of them.
        """
        if isinstance(trials, Mapping):
            raise TypeError(f"a list of trials is expected, such as [{dict(trials)}]")
        request = QueuedTrials(trials=[dict(one) for one in trials])
        return self._going_on(self.act(name, "enqueue", request))

    def keep_checkpoints(self, name: str, kept: str | int) -> Study:
        """Keep the checkpoints of ``all`` trials, of the ``best``, of a number of the best, or of
        ``none`` from now on. Those of the others are removed soon, unless somebody refers to them.

        Raises:
            InvalidRequest: It is none of these, or the trials are run by a loop of yours.
        """
        return self.act(name, "keep", KeptCheckpoints(keep_checkpoints=kept))

    def importance(self, name: str, *, objective: str | None = None) -> StudyImportance:
        """How much each parameter of a study matters, the most important first: the share of the
        variance that it alone explains (fANOVA), and its permutation importance.

        Args:
            name: The study.
            objective: The metric; the first objective of the study by default.

        Raises:
            Conflict: Less than five trials have completed, or the server lacks numpy.
        """
        query = {} if objective is None else {"objective": objective}
        path = f"{STUDIES.path}/{segment(name)}/importance"
        return self._transport.ask(StudyImportance, Request("GET", path, query=query))

    def curves(self, name: str, *, objective: str | None = None, points: int = 100) -> StudyCurves:
        """The values that trials reported while they ran.

        Args:
            name: The study.
            objective: The metric; the first objective of the study by default.
            points: At most so many of each trial. Of more, the lowest and the highest of each part.
        """
        query = {"points": str(points)} | ({} if objective is None else {"objective": objective})
        path = f"{STUDIES.path}/{segment(name)}/curves"
        return self._transport.ask(StudyCurves, Request("GET", path, query=query))

    def register(self, name: str, model: str, *, number: int | None = None) -> RegisteredTrial:
        """Register the results of a trial as the next version of a model, as MLflow's client sees it.
        They are in its folder if the study's job has an ``output_path``, else the stored outputs of
        its job. The model is made if there is none.

        Args:
            name: The study.
            model: The registered model.
            number: The trial; the best one by default.

        Raises:
            InvalidRequest: There is no such trial, none is the best, or it has left no outputs.
        """
        trial = registered_trial(self.describe(name), number)
        job = self._transport.json(Request("GET", f"/api/v1/jobs/{segment(trial.job)}"))
        source = source_of(trial, job)
        with contextlib.suppress(AlreadyExists):
            self._tell_mlflow("registered-models/create", {"name": model})
        made = self._tell_mlflow(
            "model-versions/create",
            {"name": model, "source": source, "run_id": job["uid"]},
        )
        version = made["model_version"]
        return RegisteredTrial(
            model=version["name"],
            version=version["version"],
            source=version["source"],
            job=trial.job,
        )

    def _tell_mlflow(self, path: str, document: Mapping[str, Any]) -> Any:
        where = f"/mlflow/api/2.0/mlflow/{path}"
        return self._transport.json(json_request("POST", where, document, once=True))

    def _local_study(self, study: Study) -> LocalStudy:
        if not study.local:
            message = f"the trials of {study.name} are jobs, which the platform runs"
            raise Conflict(message, field="local")
        return LocalStudy(self._transport, study.name)

    def _going_on(self, study: Study) -> Study:
        """The study once it goes on: who waits for its end means the next one."""
        if study.phase not in STUDIES.succeeded | STUDIES.failed:
            return study
        return self.describe(study.uid, newer_than=study.revision, wait_s=LONG_POLL_S)


def _list_objectives(objective: str | Sequence[str]) -> str | list[str]:
    return objective if isinstance(objective, str) else list(objective)
