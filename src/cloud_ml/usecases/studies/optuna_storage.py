"""A storage for Optuna's client, whose studies and trials are those of the platform."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_ml.domain.studies import optuna_trials, optuna_views
from cloud_ml.domain.studies.optuna_records import OptunaStudy
from cloud_ml.domain.studies.optuna_trials import NewParameter, NewState
from cloud_ml.domain.studies.optuna_views import OptunaTrialView
from cloud_ml.domain.studies.spec import (
    STUDY,
    StudyRecord,
    StudySpec,
    StudyStatus,
    TrialStatus,
)
from cloud_ml.domain.tenancy import Operation
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    StaleRevision,
    Unavailable,
)
from cloud_ml.models.common import refuse
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.access.permissions import permit
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.resources import Resources
from cloud_ml.usecases.studies.optuna_studies import (
    TRIALS_OF_A_STUDY,
    NewOptunaStudy,
    check_open_to,
    is_open_to,
    record_name,
)

_TRIES, _PAGE, _MOST_STUDIES = 50, 1000, 1000
_LONGEST_NAME, _MOST_DIRECTIONS = 250, 16
_KEPT_NUMBERS, _READ_TOGETHER = 10_000, 20


@dataclass(frozen=True)
class ShownStudy:
    """A study as Optuna's client sees it. ``directions`` are ``min`` or ``max``."""

    number: int
    name: str
    directions: Sequence[str]
    user: Mapping[str, str]
    system: Mapping[str, str]


class OptunaStorage:
    """What Optuna's client asks of a storage. Blocking.

    Several servers may do so for one study: a status is written only where nobody has written since
    it was read.

    Args:
        store: Keeps the studies.
        studies: Makes, finds and removes them.
        clock: The time.
    """

    def __init__(
        self,
        store: StateStore,
        studies: Resources[Any, Any, StudySpec, StudyStatus],
        clock: Clock,
    ) -> None:
        self._store = store
        self._studies = studies
        self._clock = clock
        self._numbers: dict[str, int] = {}
        self._locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()

    def lock(self, study: int) -> asyncio.Lock:
        """Held while a study is changed here: others would be changed twice. Belongs to one event
        loop.
        """
        return self._locks.setdefault(study, asyncio.Lock())

    # --- studies ---

    def create_study(
        self,
        caller: Identity,
        title: str,
        directions: Sequence[str],
        capacity: Capacity,
        *,
        key: str | None,
        once: Once | None,
    ) -> int:
        """Make a study. Returns its number.

        Raises:
            AlreadyExists: There is one of that name.
            InvalidRequest: The name or the directions are wrong.
        """
        if not 0 < len(title) <= _LONGEST_NAME or not title.isprintable():
            raise refuse("study_name", title[:100], f"1 to {_LONGEST_NAME} printable characters")
        if not 0 < len(directions) <= _MOST_DIRECTIONS:
            raise refuse("directions", len(directions), f"1 to {_MOST_DIRECTIONS}")
        new = NewOptunaStudy(
            name=record_name(title),
            title=title,
            directions=tuple(directions),
            made_by_job=caller.job.uid if caller.job else "",
        )
        try:
            record = self._studies.create(caller, new, capacity, idempotency_key=key, once=once)
        except AlreadyExists:
            there = self._store.find(STUDY, caller.org, new.name)
            if there is not None and there.delete_requested_at is not None:
                raise Unavailable(f"{title} is being deleted; make it again in a moment") from None
            raise
        return self._number(record)

    def delete_study(self, caller: Identity, study: int, once: Once | None) -> None:
        """Remove a study and its trials.

        Raises:
            Conflict: Optuna's client did not make it: its trials are jobs, or those of another loop.
        """
        record = self._at(caller, study)
        optuna_trials.check_made_by_optuna(record)
        self._studies.delete(caller.org, record.key.name, caller, once=once)

    def study_number(self, caller: Identity, title: str) -> int:
        """The number of the study of that name, whoever made it.

        Raises:
            NotFound: There is none.
            Forbidden: The caller is a job, and the study is not one of its own.
        """
        record = self._store.find(STUDY, caller.org, record_name(title))
        if record is None or record.delete_requested_at is not None or _title(record) != title:
            raise NotFound(f"there is no study {title[:_LONGEST_NAME]}")
        check_open_to(caller, record.key.name, record.spec.optuna)
        return self._number(record)

    def study(self, caller: Identity, study: int) -> ShownStudy:
        """A study, without its trials."""
        record = self._at(caller, study)
        return _show_study(record.key.name, record.spec, study)

    def studies(self, caller: Identity) -> Iterator[ShownStudy]:
        """The studies of the organisation that the caller may use, oldest first, among the 1,000
        newest. Reads no trials.
        """
        page = self._store.list(STUDY, org=caller.org, limit=_MOST_STUDIES)
        lines = [line for line in reversed(page.items) if not line.deleting]
        for begin in range(0, len(lines), _READ_TOGETHER):
            part = lines[begin : begin + _READ_TOGETHER]
            documents = self._store.documents(STUDY, [line.key.uid for line in part])
            for line in part:
                if (found := documents.get(line.key.uid)) is None:
                    continue
                spec = STUDY.decode_spec(found[0])
                if is_open_to(caller, line.key.name, spec.optuna):
                    yield _show_study(line.key.name, spec, line.number)

    def set_study_attribute(
        self,
        caller: Identity,
        study: int,
        name: str,
        text: str,
        *,
        of_user: bool,
        once: Once | None,
    ) -> None:
        """Set an attribute of a study."""
        permit(caller, Operation.RUN_JOBS)
        record = self._at(caller, study)
        optuna_trials.check_made_by_optuna(record)

        def change(spec: StudySpec) -> StudySpec:
            made = spec.optuna
            assert made is not None  # it was, above, and nothing changes that
            table = optuna_trials.attributes_with(made.user if of_user else made.system, name, text)
            made = replace(made, user=table) if of_user else replace(made, system=table)
            _check_attributes(made)
            return replace(spec, optuna=made)

        self._store.change_spec(STUDY, record.key.uid, change, now=self._clock(), once=once)

    # --- trials ---

    def create_trial(
        self,
        caller: Identity,
        study: int,
        template: OptunaTrialView | None,
        *,
        key: str,
        once: Once | None,
    ) -> int:
        """Begin a trial, or store one as its template says. The same key gets the same trial."""
        number = 0

        def change(record: StudyRecord) -> StudyStatus | None:
            nonlocal number
            made = [one for one in reversed(record.status.trials) if key and one.key == key]
            if made:
                number = made[0].number
                return None
            number = len(record.status.trials)
            return optuna_trials.with_new_trial(record, template, key, self._clock())

        self._change(caller, study, change, once)
        return study * TRIALS_OF_A_STUDY + number

    def set_parameter(
        self, caller: Identity, trial: int, request: NewParameter, once: Once | None
    ) -> None:
        """Set a parameter of a trial."""

        def change(record: StudyRecord, one: TrialStatus) -> TrialStatus:
            return optuna_trials.with_parameter(record, one, request)

        self._change_trial(caller, trial, change, once)

    def set_state(
        self,
        caller: Identity,
        trial: int,
        request: NewState,
        once: Once | None,
    ) -> bool:
        """Set the state of a trial, and its values. Returns whether it was set: a trial that waits is
        begun by one process only. The same key gets the same answer.
        """
        was_set = True

        def change(record: StudyRecord) -> StudyStatus | None:
            nonlocal was_set
            one = optuna_trials.trial_at(record, trial % TRIALS_OF_A_STUDY)
            if request.key and one.optuna is not None and one.optuna.key == request.key:
                return None
            one = optuna_trials.check_updatable(one)
            changed = optuna_trials.with_state(record, one, request, self._clock())
            was_set = changed is not None
            return None if changed is None else optuna_trials.replace_trial(record.status, changed)

        self._change(caller, trial // TRIALS_OF_A_STUDY, change, once)
        return was_set

    def set_intermediate_value(
        self, caller: Identity, trial: int, step: int, value: float, once: Once | None
    ) -> None:
        """Note what a trial reported at a step."""
        at = optuna_trials.to_milliseconds(self._clock())
        self._change_trial(
            caller,
            trial,
            lambda _, one: optuna_trials.with_intermediate(one, step, value, at),
            once,
        )

    def set_trial_attribute(
        self,
        caller: Identity,
        trial: int,
        name: str,
        text: str,
        *,
        of_user: bool,
        once: Once | None,
    ) -> None:
        """Set an attribute of a trial."""
        self._change_trial(
            caller,
            trial,
            lambda _, one: optuna_trials.with_attribute(one, name, text, of_user=of_user),
            once,
        )

    def trial(self, caller: Identity, trial: int) -> OptunaTrialView:
        """A trial."""
        record = self._at(caller, trial // TRIALS_OF_A_STUDY)
        found = optuna_trials.trial_at(record, trial % TRIALS_OF_A_STUDY)
        return optuna_views.to_optuna(record, found)

    def trials(
        self, caller: Identity, study: int, included: Collection[int], after: int
    ) -> Iterator[tuple[int, OptunaTrialView]]:
        """The trials behind the one called ``after``, and those that are included, by their numbers
        among all.
        """
        record, first = self._at(caller, study), study * TRIALS_OF_A_STUDY
        numbers = frozenset(included)
        return (
            (first + one.number, optuna_views.to_optuna(record, one))
            for one in record.status.trials
            if first + one.number > after or first + one.number in numbers
        )

    def _change_trial(
        self,
        caller: Identity,
        trial: int,
        change: Callable[[StudyRecord, TrialStatus], TrialStatus],
        once: Once | None,
    ) -> None:
        def change_status(record: StudyRecord) -> StudyStatus:
            one = optuna_trials.trial_at(record, trial % TRIALS_OF_A_STUDY)
            changed = change(record, optuna_trials.check_updatable(one))
            return optuna_trials.replace_trial(record.status, changed)

        self._change(caller, trial // TRIALS_OF_A_STUDY, change_status, once)

    def _change(
        self,
        caller: Identity,
        study: int,
        change: Callable[[StudyRecord], StudyStatus | None],
        once: Once | None,
    ) -> None:
        permit(caller, Operation.RUN_JOBS)
        if once is not None:
            self._store.remember(replace(once, entry=None))  # each report would be in the audit log
        for _ in range(_TRIES):
            record = self._at(caller, study)
            status = change(record)
            if status is None or status == record.status:
                return
            try:
                self._store.commit_status(
                    STUDY,
                    record.key.uid,
                    status,
                    expected_revision=record.revision,
                    fence=None,
                    now=self._clock(),
                )
            except StaleRevision:
                continue
            return
        raise Unavailable("the study changes all the time; try again")

    # --- numbers ---

    def _at(self, caller: Identity, study: int) -> StudyRecord:
        """The study of that number.

        Raises:
            NotFound: The organisation has none.
            Forbidden: The caller is a job, and the study is not one of its own.
        """
        if not 0 < study < 1 << 53:
            raise NotFound(f"there is no study {study}")
        page = self._store.list(STUDY, org=caller.org, after=study + 1, limit=1)
        line = page.items[0] if page.items else None
        record = None
        if line is not None and line.number == study and not line.deleting:
            record = self._store.get(STUDY, line.key.uid)
        if record is None:
            raise NotFound(f"there is no study {study}")
        check_open_to(caller, record.key.name, record.spec.optuna)
        return record

    def _number(self, record: StudyRecord) -> int:
        """The number of a study, which grows from one to the next."""
        key = record.key
        if (known := self._numbers.get(key.uid)) is not None:
            return known
        after = None
        while True:
            page = self._store.list(
                STUDY, org=key.org, match=Match(name=key.name), after=after, limit=_PAGE
            )
            for line in page.items:
                if line.key.uid == key.uid:
                    if len(self._numbers) >= _KEPT_NUMBERS:
                        self._numbers.clear()
                    self._numbers[key.uid] = line.number
                    return line.number
            if page.next is None:
                raise NotFound(f"there is no study {key.name}")
            after = page.next


def _show_study(name: str, spec: StudySpec, number: int) -> ShownStudy:
    made = spec.optuna
    if made is None:
        return ShownStudy(number, name, [str(one.goal) for one in spec.objectives], {}, {})
    return ShownStudy(number, made.name, made.directions, made.user, made.system)


def _title(record: StudyRecord) -> str:
    return record.key.name if record.spec.optuna is None else record.spec.optuna.name


def _check_attributes(made: OptunaStudy) -> None:
    size = sum(
        len(name) + len(text) for table in (made.user, made.system) for name, text in table.items()
    )
    most = optuna_trials.MOST_STUDY_ATTRIBUTES
    if size > most:
        size_text = f"attributes of {size} characters"
        raise InvalidRequest(
            f"value makes {size_text}; allowed: at most {most}", field="value", value=size_text,
            allowed=f"at most {most}",
        )  # fmt: skip
