"""Trials whose parameters a user names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cloud_ml.domain.studies.conditions import is_active, why_inactive
from cloud_ml.domain.studies.constraints import all_hold, constraints_of, why_broken
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import NAME, Parameters, check_value
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse


def check_trial(
    space: Sequence[Parameter],
    trial: Mapping[str, Any],
    field: str,
    constraints: tuple[str, ...] = (),
) -> Parameters:
    """The parameters of a trial that a user names; without a space any are allowed. A parameter with
    a single value may be left out, as it is known.

    Raises:
        InvalidRequest: A parameter is unknown, missing or not active, its value is none or outside
            of the space, or the trial breaks a constraint.
    """
    known = {parameter.name for parameter in space}
    for name, value in trial.items():
        if not NAME.fullmatch(name) or (known and name not in known):
            allowed = f"one of {', '.join(sorted(known))}" if known else "a name of a flag"
            raise refuse(field, name, allowed)
        check_value(f"{field}.{name}", value)
    trial = _with_constants(space, trial)
    for parameter in space:
        _check_presence(parameter, trial, field)
    _check_constraints(constraints, trial, field)
    return trial


def _with_constants(space: Sequence[Parameter], trial: Mapping[str, Any]) -> Parameters:
    """The trial with the single values of active parameters that it leaves out. A space has each
    parameter behind those that decide whether it is active.
    """
    full = dict(trial)
    for parameter in space:
        if parameter.constant and parameter.name not in full and is_active(parameter, full):
            full[parameter.name] = parameter.values[0]
    return full


def _check_constraints(constraints: tuple[str, ...], trial: Mapping[str, Any], field: str) -> None:
    for name in (name for each in constraints_of(constraints) for name in each.names):
        value = trial.get(name, 0)
        if isinstance(value, (str, bool)):
            raise refuse(f"{field}.{name}", value, "a number, as a constraint compares it")
    if why := why_broken(constraints, trial):
        raise refuse(field, dict(trial), f"a trial that keeps the constraints: {why}")


def _check_presence(parameter: Parameter, trial: Mapping[str, Any], field: str) -> None:
    """A trial has the parameters that are active, and no others."""
    active, has = is_active(parameter, trial), parameter.name in trial
    if active and not has:
        raise refuse(field, dict(trial), f"a value for {parameter.name}, too")
    if has and not active:
        why = why_inactive(parameter, trial)
        value = trial[parameter.name]
        raise refuse(f"{field}.{parameter.name}", value, f"no value, as {why}")
    value = trial.get(parameter.name, 0)
    if not parameter.values and isinstance(value, (str, bool)):
        raise refuse(f"{field}.{parameter.name}", value, "a number, as it is one of a range")
    if has and not _is_in(parameter, value):
        raise refuse(f"{field}.{parameter.name}", value, _allowed(parameter))


def _is_in(parameter: Parameter, value: Any) -> bool:
    """Whether a value is one of the parameter. A command line does not tell 1 from 1.0."""
    if parameter.has(value):
        return True
    if isinstance(value, (bool, str)):
        return False
    return any(value == one for one in parameter.values if not isinstance(one, (bool, str)))


def _allowed(parameter: Parameter) -> str:
    """The values of a parameter in words."""
    if parameter.values:
        return f"one of {list(parameter.values)}"
    step = f" in steps of {parameter.step:g}" if parameter.step else ""
    kind = "a whole number of " if parameter.whole else ""
    return f"{kind}{parameter.low:g} to {parameter.high:g}{step}, as the space says"


class Misfit(NamedTuple):
    """Why a trial is none of a space: the parameter, if it is one, and what is allowed."""

    parameter: str
    allowed: str


def find_misfit(
    space: Sequence[Parameter], constraints: tuple[str, ...], trial: Mapping[str, Any]
) -> Misfit | None:
    """What of a trial that a user named does not fit; ``None`` if all of it does."""
    names = [parameter.name for parameter in space]
    if unknown := [name for name in trial if name not in names]:
        return Misfit(unknown[0], f"no such parameter, but {', '.join(names)}")
    full = _with_constants(space, trial)
    for parameter in space:
        try:
            _check_presence(parameter, full, "trial")
        except InvalidRequest as error:
            return Misfit(parameter.name, str(error.allowed))
    try:
        _check_constraints(constraints, full, "trial")
    except InvalidRequest as error:
        return Misfit("", str(error.allowed))
    return None


def fits(
    space: Sequence[Parameter], constraints: tuple[str, ...], trial: Mapping[str, Any]
) -> bool:
    """Whether a trial could be one of this space: it has all parameters that are active and no
    others, with values of theirs, and keeps the constraints.
    """
    known = {parameter.name: parameter for parameter in space}
    if not all(name in known and known[name].has(value) for name, value in trial.items()):
        return False
    if not all(is_active(one, trial) == (one.name in trial) for one in space):
        return False
    return all_hold(constraints, trial)
