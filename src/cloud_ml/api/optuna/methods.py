"""The methods of ``optuna.StorageService``: what each reads, asks and answers.

The numbers of fields are those of Optuna 4.2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cloud_ml.api.optuna import wire
from cloud_ml.api.optuna.wire import Message
from cloud_ml.domain.studies.optuna_trials import NewParameter, NewState
from cloud_ml.domain.studies.optuna_views import OptunaTrialView
from cloud_ml.engines.base import Capacity
from cloud_ml.state.base import Once
from cloud_ml.usecases.access.identities import Identity
from cloud_ml.usecases.studies.optuna_storage import OptunaStorage, ShownStudy
from cloud_ml.usecases.studies.optuna_studies import TRIALS_OF_A_STUDY

_MINIMIZE, _MAXIMIZE = "min", "max"


@dataclass(frozen=True)
class MethodCall:
    """A call of a method.

    ``key`` is the same for a call that is sent again, and empty if its caller gave none.
    """

    storage: OptunaStorage
    caller: Identity
    capacity: Capacity
    once: Once | None
    key: str


Method = Callable[[MethodCall, Message], bytes]


def create_study(call: MethodCall, message: Message) -> bytes:
    """CreateNewStudy."""
    directions = [_MAXIMIZE if each == 1 else _MINIMIZE for each in message.integers(1)]
    number = call.storage.create_study(
        call.caller,
        message.text(2),
        directions,
        call.capacity,
        key=call.key or None,
        once=call.once,
    )
    return wire.integer(1, number)


def delete_study(call: MethodCall, message: Message) -> bytes:
    """DeleteStudy."""
    call.storage.delete_study(call.caller, message.integer(1), call.once)
    return b""


def _set_study_attribute(of_user: bool) -> Method:
    def method(call: MethodCall, message: Message) -> bytes:
        number, name, text = message.integer(1), message.text(2), message.text(3)
        call.storage.set_study_attribute(
            call.caller, number, name, text, of_user=of_user, once=call.once
        )
        return b""

    return method


def study_id(call: MethodCall, message: Message) -> bytes:
    """GetStudyIdFromName."""
    return wire.integer(1, call.storage.study_number(call.caller, message.text(1)))


def study_name(call: MethodCall, message: Message) -> bytes:
    """GetStudyNameFromId."""
    return wire.text(1, call.storage.study(call.caller, message.integer(1)).name)


def directions_of(call: MethodCall, message: Message) -> bytes:
    """GetStudyDirections."""
    return _directions(1, call.storage.study(call.caller, message.integer(1)))


def study_user_attributes(call: MethodCall, message: Message) -> bytes:
    """GetStudyUserAttributes."""
    return wire.texts(1, call.storage.study(call.caller, message.integer(1)).user)


def study_system_attributes(call: MethodCall, message: Message) -> bytes:
    """GetStudySystemAttributes."""
    return wire.texts(1, call.storage.study(call.caller, message.integer(1)).system)


def all_studies(call: MethodCall, message: Message) -> bytes:
    """GetAllStudies."""
    return wire.messages(
        1,
        (
            wire.integer(1, study.number)
            + wire.text(2, study.name)
            + _directions(3, study)
            + wire.texts(4, study.user)
            + wire.texts(5, study.system)
            for study in call.storage.studies(call.caller)
        ),
    )


def create_trial(call: MethodCall, message: Message) -> bytes:
    """CreateNewTrial."""
    template = None
    # Field 3 is ``template_trial_is_none``.
    if not message.integer(3):
        template = next((trial_of(each) for each in message.messages(2)), OptunaTrialView())
    number = call.storage.create_trial(
        call.caller, message.integer(1), template, key=call.key, once=call.once
    )
    return wire.integer(1, number)


def set_parameter(call: MethodCall, message: Message) -> bytes:
    """SetTrialParameter."""
    request = NewParameter(message.text(2), message.double(3), message.text(4))
    call.storage.set_parameter(call.caller, message.integer(1), request, call.once)
    return b""


def trial_id(call: MethodCall, message: Message) -> bytes:
    """GetTrialIdFromStudyIdTrialNumber."""
    number = message.integer(1) * TRIALS_OF_A_STUDY + message.integer(2)
    # A number beyond those of a study would be a trial of the next one.
    in_study = 0 <= message.integer(2) < TRIALS_OF_A_STUDY
    call.storage.trial(call.caller, number if in_study else -1)
    return wire.integer(1, number)


def set_state(call: MethodCall, message: Message) -> bytes:
    """SetTrialStateValues."""
    request = NewState(message.integer(2), message.doubles(3), call.key)
    was_set = call.storage.set_state(call.caller, message.integer(1), request, call.once)
    return wire.integer(1, was_set)


def set_intermediate_value(call: MethodCall, message: Message) -> bytes:
    """SetTrialIntermediateValue."""
    call.storage.set_intermediate_value(
        call.caller, message.integer(1), message.integer(2), message.double(3), call.once
    )
    return b""


def _set_trial_attribute(of_user: bool) -> Method:
    def method(call: MethodCall, message: Message) -> bytes:
        number, name, text = message.integer(1), message.text(2), message.text(3)
        call.storage.set_trial_attribute(
            call.caller, number, name, text, of_user=of_user, once=call.once
        )
        return b""

    return method


def trial(call: MethodCall, message: Message) -> bytes:
    """GetTrial."""
    number = message.integer(1)
    return wire.message(1, trial_message(number, call.storage.trial(call.caller, number)))


def trials(call: MethodCall, message: Message) -> bytes:
    """GetTrials."""
    found = call.storage.trials(
        call.caller, message.integer(1), message.integers(2), message.integer(3)
    )
    return wire.messages(1, (trial_message(number, each) for number, each in found))


READS: dict[str, Method] = {
    "GetStudyIdFromName": study_id,
    "GetStudyNameFromId": study_name,
    "GetStudyDirections": directions_of,
    "GetStudyUserAttributes": study_user_attributes,
    "GetStudySystemAttributes": study_system_attributes,
    "GetAllStudies": all_studies,
    "GetTrialIdFromStudyIdTrialNumber": trial_id,
    "GetTrial": trial,
    "GetTrials": trials,
}
"""Methods that change nothing."""
WRITES: dict[str, Method] = {
    "CreateNewStudy": create_study,
    "DeleteStudy": delete_study,
    "SetStudyUserAttribute": _set_study_attribute(True),
    "SetStudySystemAttribute": _set_study_attribute(False),
    "CreateNewTrial": create_trial,
    "SetTrialParameter": set_parameter,
    "SetTrialStateValues": set_state,
    "SetTrialIntermediateValue": set_intermediate_value,
    "SetTrialUserAttribute": _set_trial_attribute(True),
    "SetTrialSystemAttribute": _set_trial_attribute(False),
}
OF_TRIALS = frozenset(name for name in WRITES if name.startswith("SetTrial"))
"""Those of ``WRITES`` that name a trial first; all others but ``CreateNewStudy`` name a study."""


def _directions(number: int, study: ShownStudy) -> bytes:
    return wire.integers(number, (int(each == _MAXIMIZE) for each in study.directions))


def trial_of(sent: Message) -> OptunaTrialView:
    """A trial that a client sent as a template."""
    return OptunaTrialView(
        number=sent.integer(2),
        state=sent.integer(3),
        values=sent.doubles(4),
        started=sent.text(5),
        completed=sent.text(6),
        params={entry.text(1): entry.double(2) for entry in sent.messages(7)},
        distributions=sent.texts(8),
        user=sent.texts(9),
        system=sent.texts(10),
        intermediate={entry.integer(1): entry.double(2) for entry in sent.messages(11)},
    )


def trial_message(number: int, found: OptunaTrialView) -> bytes:
    """A trial as a message; ``number`` is its own among those of all studies."""
    params = (wire.text(1, name) + wire.double(2, each) for name, each in found.params.items())
    reports = (
        wire.integer(1, step) + wire.double(2, each) for step, each in found.intermediate.items()
    )
    return b"".join(
        (
            wire.integer(1, number),
            wire.integer(2, found.number),
            wire.integer(3, found.state),
            wire.doubles(4, found.values),
            wire.text(5, found.started),
            wire.text(6, found.completed),
            *(wire.message(7, entry) for entry in params),
            wire.texts(8, found.distributions),
            wire.texts(9, found.user),
            wire.texts(10, found.system),
            *(wire.message(11, entry) for entry in reports),
        )
    )
