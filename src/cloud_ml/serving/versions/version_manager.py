"""Brings the versions that answer in line with those that are wanted: ``decide`` says what, this
does it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cloud_ml.serving.errors import ModelFailed, ModelNotFound, NotNow, Overloaded, ServingError
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.outages import is_outage
from cloud_ml.serving.runtimes.base import Model
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.versions.decide import Phase, decide, labels
from cloud_ml.serving.versions.folders import Folder, Interest, Look, look
from cloud_ml.serving.versions.model_config import ModelConfig
from cloud_ml.serving.versions.record import ModelRecord, Record, VersionStatus
from cloud_ml.serving.versions.task_runner import TaskRunner

log = logging.getLogger(__name__)

Done = Callable[[ServingError | None], None]
"""Called once, with what went wrong, or with None."""

DRAIN_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Rules:
    """How versions are loaded; seconds, numbers, bytes. The names of the flags are in
    ``docs/reference/serving.md``.

    A load that fails because a file is missing or the network fails is retried for ``outage_s``,
    also beyond ``max_retries``.
    """

    poll_s: float = 1.0
    settle_s: float = 1.0
    load_threads: int = 2
    max_retries: int = 5
    retry_s: float = 60.0
    outage_s: float = 300.0
    memory_bytes: int = 0
    memory_factor: float = 1.2
    labels_for_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class ModelOperations:
    """What is done to models.

    ``load`` loads a folder and warms it up, ``close`` gives the memory of a model back: both run in
    a thread. ``open_`` puts a loaded model behind queues.
    """

    load: Callable[[Folder], Model]
    open_: Callable[[str, int, Model, Folder], LoadedVersion]
    close: Callable[[Model], None]


class VersionManager:
    """Knows every configured model and takes each version through its life, on the thread of the
    loop.

    Only this class changes the ``table``, which says who answers.
    """

    def __init__(
        self, table: ModelTable, runner: TaskRunner, rules: Rules, operations: "ModelOperations"
    ) -> None:
        self._table = table
        self._runner = runner
        self._rules = rules
        self._operations = operations
        self._models: dict[str, ModelRecord] = {}
        self._looking = False
        self._changed_meanwhile = False
        self._waiting: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        self._listeners: list[Callable[[], None]] = []
        self._wake_at: float | None = None

    # --- what is told ---

    @property
    def ready(self) -> bool:
        """Whether every model that shall answer does."""
        return not self.unready

    @property
    def unready(self) -> list[str]:
        """The models that shall answer and have no version that does."""
        return [name for name in self.names if not _is_served(self._models[name])]

    @property
    def names(self) -> list[str]:
        """Every model that is known."""
        return sorted(self._models)

    def statuses(self, name: str, number: int | None = None) -> list[VersionStatus]:
        """What is known of the versions of a model, the newest first.

        Raises:
            ModelNotFound: for a name or number that is not known.
        """
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"no model {name!r} is served here")
        found = [each for each in model.statuses() if number in (None, each.number)]
        if number is not None and not found:
            raise ModelNotFound(f"version {number} of model {name!r} is not known")
        return found

    def why_not(self, name: str) -> str:
        """Why no version of a model answers."""
        model = self._models.get(name)
        return model.why_not if model is not None else f"no model {name!r} is served here"

    def changed(self, call: Callable[[], None]) -> None:
        """Call this after each change of what is ready."""
        self._listeners.append(call)

    # --- what is asked for ---

    def start(self, configs: Mapping[str, ModelConfig], done: Callable[[], None]) -> None:
        """Serve these models, and watch their folders; ``done`` when what lies there was loaded,
        or could not be.
        """
        self._configure(configs)
        self._when(configs, done)
        self.look()
        if self._rules.poll_s > 0:
            self._runner.later(self._rules.poll_s, self._poll)

    def reload(self, configs: Mapping[str, ModelConfig], done: Done) -> None:
        """Serve these models and no others; tell when the versions that are there were loaded."""
        self._configure(configs)

        def concluded() -> None:
            done(self._find_unfulfilled(configs))

        self._when(configs, concluded)
        self.look()

    def load(self, name: str, done: Done) -> None:
        """Load a configured model again that was unloaded, or whose files changed."""
        model = self._get_model(name)
        model.off, model.scanned, model.refresh = False, False, True
        for number in model.failed:
            record = model.records[number]
            record.attempts, record.failing_since, record.retry_at = 0, None, self._runner.now()
        self._when([name], lambda: done(self._explain_failure(name)))
        self.look()

    def unload(self, name: str, done: Done) -> None:
        """Take all versions of a model down until it is loaded again."""
        self._get_model(name).off = True
        self._when([name], lambda: done(None))
        self._reconcile()

    def _get_model(self, name: str) -> ModelRecord:
        model = self._models.get(name)
        if model is None or model.gone:
            raise ModelNotFound(
                f"no model {name!r} is configured; configured: {', '.join(self.names) or 'none'}"
            )
        return model

    def _configure(self, configs: Mapping[str, ModelConfig]) -> None:
        for name, config in configs.items():
            known = self._models.get(name)
            if known is None:
                self._models[name] = ModelRecord(config)
                self._table.declare(name)
            else:
                known.reconfigure(config)
        for name in self._models.keys() - configs.keys():
            self._models[name].gone = True

    def _find_unfulfilled(self, configs: Mapping[str, ModelConfig]) -> ServingError | None:
        """What of a configuration could not be done."""
        for name, config in configs.items():
            error = self._explain_failure(name)
            if error is not None:
                return error
            ready = self._models[name].numbers(Phase.AVAILABLE)
            missing = {
                label: number for label, number in config.labels.items() if number not in ready
            }
            if missing and not self._rules.labels_for_unavailable:
                labels_text = ", ".join(
                    f"{label!r} to version {number}" for label, number in missing.items()
                )
                return NotNow(
                    f"model {name!r}: a label can be given to a version that answers only, "
                    f"not {labels_text}"
                )
        return None

    def _explain_failure(self, name: str) -> ServingError | None:
        model = self._models.get(name)
        if model is None or (
            model.numbers(Phase.AVAILABLE) and not model.failed & model.desired_versions().keys()
        ):
            return None
        return ModelFailed(f"model {name!r}: {model.why_not}")

    def _when(self, names: Iterable[str], call: Callable[[], None]) -> None:
        self._waiting.append((tuple(names), call))

    # --- looking ---

    def look(self) -> None:
        """Look at all folders soon, and act on what is there."""
        if self._looking:
            self._changed_meanwhile = True
            return
        self._looking, self._changed_meanwhile = True, False
        interests = {
            name: (model.config, _with_settle(model.interest, self._rules.settle_s))
            for name, model in self._models.items()
            if not model.gone
        }

        def work() -> dict[str, tuple[ModelConfig, Look]]:
            return {
                name: (config, look(config.base, interest))
                for name, (config, interest) in interests.items()
            }

        self._runner.look(work, self._handle_look)

    def _handle_look(self, looks: "dict[str, tuple[ModelConfig, Look]] | Exception") -> None:
        self._looking = False
        if isinstance(looks, Exception):
            log.error("folders could not be looked at: %s", looks)
            looks = {}
        for name, (config, found) in looks.items():
            model = self._models.get(name)
            # It was configured anew while its former folder was looked at.
            if model is None or model.config is not config:
                self._changed_meanwhile = True
                continue
            if found.error and found.error != model.look.error:
                log.warning("model %s: %s", name, found.error)
            model.take_in(found)
            if found.growing:
                self._runner.later(self._rules.settle_s, self.look)
        self._reconcile()
        if self._changed_meanwhile:
            self.look()

    def _poll(self) -> None:
        self.look()
        self._runner.later(self._rules.poll_s, self._poll)

    # --- acting ---

    def _reconcile(self) -> None:
        for name in list(self._models):
            self._step(self._models[name])
        waiting, self._waiting = self._waiting, []
        for names, call in waiting:
            if all(self._models[name].concluded for name in names if name in self._models):
                call()
            else:
                self._waiting.append((names, call))
        for listener in self._listeners:
            listener()

    def _step(self, model: ModelRecord) -> None:
        slots = self._rules.load_threads - sum(
            len(each.numbers(Phase.LOADING))
            + sum(record.replacing for record in each.records.values())
            for each in self._models.values()
        )
        now = self._runner.now()
        steps = decide(
            model.desired_versions(), model.states(), now, slots, gone=model.gone or model.off
        )
        for number in steps.queue:
            model.records.setdefault(number, Record(number)).phase = Phase.START
        for number in steps.load:
            self._begin(model, number)
        for number in steps.leave:
            self._leave(model, number)
        for number in steps.end:
            model.records[number].phase = Phase.END
        if steps.again_at is not None:
            self._schedule_wake(steps.again_at, now)
        self._publish_labels(model)
        self._publish_state(model)
        model.forget()
        if model.gone and model.concluded:
            del self._models[model.config.name]
            self._table.remove(model.config.name)

    def _schedule_wake(self, at: float, now: float) -> None:
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self._runner.later(at - now, self._reconcile_again)

    def _reconcile_again(self) -> None:
        self._wake_at = None
        self._reconcile()

    def _publish_labels(self, model: ModelRecord) -> None:
        served = self._table.models[model.config.name]
        ready = model.numbers(Phase.AVAILABLE)
        allow = self._rules.labels_for_unavailable
        named = labels(model.config.labels, served.labels, ready, allow_unavailable=allow)
        if named != served.labels:
            self._table.label(model.config.name, named)

    def _publish_state(self, model: ModelRecord) -> None:
        served, ready = self._table.models[model.config.name], model.numbers(Phase.AVAILABLE)
        served.why_not = "" if ready else model.why_not
        now = self._runner.now()
        if not model.absent:
            model.absent_since = None
        elif model.absent_since is None:
            model.absent_since = now
        given_up = (
            model.absent_since is not None and now - model.absent_since >= self._rules.outage_s
        )
        served.load_failed = not ready and (given_up or model.load_failed)

    # --- one version ---

    def _begin(self, model: ModelRecord, number: int) -> None:
        folder = model.folder(number)
        record = model.records.get(number)
        if record is None:
            record = model.records[number] = Record(number)
        record.size = int(folder.size * self._rules.memory_factor)
        if record.loaded is not None:
            record.replacing = True
        else:
            record.phase = Phase.LOADING
        if record.print != folder.print:
            record.attempts, record.failing_since = 0, None
        refused = self._no_room(record)
        if refused is not None:
            self._record_failure(model, record, folder, refused)
            return
        log.info(
            "model %s version %s is being loaded from %s", model.config.name, number, folder.path
        )
        self._runner.load(
            lambda: self._operations.load(folder),
            lambda made: self._finish_load(model, record, folder, made),
        )

    def _no_room(self, new: Record) -> ServingError | None:
        limit = self._rules.memory_bytes
        others = (
            record
            for model in self._models.values()
            for record in model.records.values()
            if record is not new
        )
        held = sum(record.size for record in others if record.phase not in (Phase.START, Phase.END))
        if not limit or held + new.size <= limit:
            return None
        return Overloaded(
            f"it takes about {new.size} bytes of memory; {held} of {limit} are in use"
        )

    def _finish_load(
        self, model: ModelRecord, record: Record, folder: Folder, made: Model | Exception
    ) -> None:
        if isinstance(made, Exception):
            error = (
                made
                if isinstance(made, ServingError)
                else ModelFailed(f"{type(made).__name__}: {made}"[:2000])
            )
            self._record_failure(model, record, folder, error, outage=is_outage(made))
            return
        before, record.loaded = (
            record.loaded,
            self._operations.open_(model.config.name, record.number, made, folder),
        )
        record.print, record.error, record.attempts, record.retry_at = folder.print, None, 0, None
        record.failing_since = None
        record.stale = record.replacing = False
        if before is not None:
            self._drain(model, before, lambda: None)
        record.phase = Phase.AVAILABLE
        if record.number in model.desired_versions():
            self._table.put(record.loaded)
            log.info("model %s version %s is ready", model.config.name, record.number)
        else:
            self._retire(model, record)
        self._reconcile()

    def _record_failure(
        self,
        model: ModelRecord,
        record: Record,
        folder: Folder,
        error: ServingError,
        *,
        outage: bool = False,
    ) -> None:
        """Keep the reason; try again when that may help."""
        now = self._runner.now()
        record.error, record.print = error, folder.print if record.loaded is None else record.print
        # Memory that other versions take is no fault of this one: such a try is not counted.
        record.attempts += not isinstance(error, Overloaded)
        record.failing_since = now if record.failing_since is None else record.failing_since
        record.stale = record.replacing = False
        if record.loaded is None:
            record.phase = Phase.END
            again = record.attempts <= self._rules.max_retries
            again = again or (outage and now - record.failing_since < self._rules.outage_s)
            record.retry_at = now + self._rules.retry_s if again else None
        log.error(
            "model %s version %s could not be loaded: %s", model.config.name, record.number, error
        )
        model.scanned = False
        self.look()  # who replaces it?
        self._runner.later(0, self._reconcile)

    def _leave(self, model: ModelRecord, number: int) -> None:
        self._table.take(model.config.name, number)
        log.info("model %s version %s leaves", model.config.name, number)
        self._retire(model, model.records[number])

    def _retire(self, model: ModelRecord, record: Record) -> None:
        loaded, record.loaded, record.phase = record.loaded, None, Phase.UNLOADING
        assert loaded is not None

        def ended() -> None:
            record.phase = Phase.END
            log.info("model %s version %s is unloaded", model.config.name, record.number)
            self._reconcile()

        self._drain(model, loaded, ended)

    def _drain(self, model: ModelRecord, loaded: LoadedVersion, ended: Callable[[], None]) -> None:
        """Close a version when its last request is answered."""
        if not loaded.idle:
            self._runner.later(DRAIN_LOOK_S, lambda: self._drain(model, loaded, ended))
            return

        def closed(made: Exception | None) -> None:
            if made is not None:
                log.error(
                    "model %s version %s was not closed well: %s",
                    model.config.name,
                    loaded.number,
                    made,
                )
            ended()

        self._runner.load(lambda: self._operations.close(loaded.model), closed)


def _with_settle(interest: Interest, settle_s: float) -> Interest:
    return Interest(interest.policy, interest.loaded, interest.failed, interest.before, settle_s)


def _is_served(model: ModelRecord) -> bool:
    """Whether a model answers, or shall not."""
    return model.off or model.gone or bool(model.numbers(Phase.AVAILABLE))
