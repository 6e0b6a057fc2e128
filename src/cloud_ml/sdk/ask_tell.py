# Made of aio/ask_tell.py by tools/twins.py: change that one, then run `make format`.
"""Ask and tell: loops of one's own run the trials of a study.

::

    study = client.studies.local("rates", {"lr": {"min": 0.001, "max": 1, "scale": "log"}})
    while (trial := study.ask()) is not None:
        for step in range(100):
            loss = train(trial.parameters["lr"], step)
            trial.report(step, loss)
            if trial.should_stop():
                break
        study.tell(trial, loss)
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cloud_ml.models import codec
from cloud_ml.models.common import refuse
from cloud_ml.models.studies.ask_tell import (
    AskedTrial,
    AskTrial,
    ReportTrial,
    TellTrial,
    TrialAdvice,
)
from cloud_ml.models.studies.study import STUDIES, Study, Trial
from cloud_ml.sdk.messages import Request, json_request, segment
from cloud_ml.sdk.outages import outlast_outage
from cloud_ml.sdk.transport import Transport

T = TypeVar("T")


class TrialHandle:
    """A trial that was asked for.

    Attributes:
        number: From 0.
        parameters: What to try, by the names of the parameters.
    """

    def __init__(self, transport: Transport, study: str, trial: Trial) -> None:
        self._transport = transport
        self._study = study
        self.number = trial.number
        self.parameters: dict[str, Any] = trial.parameters
        self._advice = TrialAdvice()

    def __repr__(self) -> str:
        return f"<trial {self.number} of {self._study}: {self.parameters}>"

    def report(self, step: int, value: float) -> None:
        """Report a value of the objective. Infinite values and NaN are left out, and so is a step
        that is not beyond the last one: a loop may repeat what it has reported.

        Raises:
            InvalidRequest: It is not a number at all.
        """
        value = _number("value", value)
        if not math.isfinite(value):
            return
        reported_value = ReportTrial(number=self.number, step=step, value=value)
        request = _request(
            self._study, "report", codec.encode(reported_value), os.urandom(16).hex()
        )
        self._advice = outlast_outage(lambda: self._transport.ask(TrialAdvice, request))

    def should_stop(self) -> bool:
        """Whether the trial does badly and should end now: what the last ``report`` was answered."""
        return self._advice.stop


class LocalStudy:
    """A study whose trials are asked for. Any number of processes may do so at a time.

    Attributes:
        name: Its name.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self.name = name

    def __repr__(self) -> str:
        return f"<study {self.name}>"

    def ask(self) -> TrialHandle | None:
        """The next trial; ``None`` when there is none left. However often the request has to be
        sent, it is one trial.

        Raises:
            NotFound: The study was deleted.
        """
        return self._ask(None)

    def tell(
        self,
        trial: TrialHandle | int,
        value: float | Sequence[float] | None = None,
        *,
        state: str = "completed",
        message: str = "",
    ) -> None:
        """Tell how a trial has ended. Without a value, the last that it reported counts. One that is
        no number makes the trial ``infeasible``.

        Args:
            trial: The trial, or its number.
            value: The value of the objective; of several a list, in the order of the study.
            state: ``completed``, ``failed``, ``infeasible``, ``metric_missing`` or ``stopped``. The
                last one and ``infeasible`` are no failures.
            message: Why it has not completed.

        Raises:
            InvalidRequest: There is no value, or it is no number.
            Conflict: It was told otherwise.
        """
        outcome = _end_of(trial, value, state, message)
        request = _request(self.name, "tell", codec.encode(outcome), os.urandom(16).hex())
        outlast_outage(lambda: self._transport.ask(TellTrial, request))

    def tell_and_ask(
        self,
        trial: TrialHandle | int,
        value: float | Sequence[float] | None = None,
        *,
        state: str = "completed",
        message: str = "",
    ) -> TrialHandle | None:
        """Tell how a trial has ended and ask for the next, in one request. The arguments and errors
        are those of ``tell``; the answer is that of ``ask``. What is wrong with the end is refused,
        and no trial is asked for.
        """
        return self._ask(_end_of(trial, value, state, message))

    def _ask(self, tell: TellTrial | None) -> TrialHandle | None:
        ask = AskTrial(key=os.urandom(16).hex(), tell=tell)
        request = _request(self.name, "ask", codec.encode_given(ask), ask.key)
        found = outlast_outage(lambda: self._transport.ask(AskedTrial, request))
        if found.trial is None:
            return None
        return TrialHandle(self._transport, self.name, found.trial)

    def describe(self) -> Study:
        """The study as it stands, with its trials and the best of them."""
        return self._transport.ask(Study, Request("GET", f"{STUDIES.path}/{segment(self.name)}"))

    def best(self) -> Trial | None:
        """The best trial so far; ``None`` before one has completed, and with several objectives:
        ``best_trials`` of the study is their front.
        """
        return self.describe().best


def _end_of(
    trial: TrialHandle | int,
    value: float | Sequence[float] | None,
    state: str,
    message: str,
) -> TellTrial:
    """How a trial has ended; a value that is no number makes it infeasible."""
    number = trial if isinstance(trial, int) else trial.number
    values = _as_list(value)
    wrong = next((one for one in values if not math.isfinite(one)), None)
    if wrong is not None:
        state, message, values = "infeasible", message or f"its value is {wrong}", []
    several = _is_several(value)
    return TellTrial(
        number=number,
        value=None if several or not values else values[0],
        values=values if several else [],
        state=state,
        message=message,
    )


def _as_list(value: Any) -> list[float]:
    if value is None:
        return []
    if _is_several(value):
        return [_number("values", one) for one in value]
    return [_number("value", value)]


def _is_several(value: object) -> bool:
    """Whether it is a list of values. A tensor without dimensions is one number, and can be iterated
    all the same; a text is none.
    """
    if isinstance(value, (str, bytes, Mapping)):
        return False
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def _number(field: str, value: Any) -> float:
    """A value of an objective.

    Raises:
        InvalidRequest: It is no number.
    """
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise refuse(field, value, "a number, and of several objectives a list of numbers")


def _request(study: str, action: str, document: Any, key: str) -> Request:
    """A request that may be sent again: each of them is the same when it is repeated."""
    path = f"{STUDIES.path}/{segment(study)}/{action}"
    return json_request("POST", path, document, idempotency_key=key)
