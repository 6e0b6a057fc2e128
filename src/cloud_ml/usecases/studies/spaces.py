"""Spaces of studies: what is asked for is checked as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloud_ml.domain.studies.constraints import parse_constraints
from cloud_ml.domain.studies.samplers import check_sampler_space, is_sampler
from cloud_ml.domain.studies.space import Parameter, parse_space
from cloud_ml.domain.studies.spec import ParametersAs
from cloud_ml.models import common, parameter_file
from cloud_ml.models.common import refuse
from cloud_ml.tuning.algorithms import CMA_ES
from cloud_ml.tuning.feasible import first_point

Space = tuple[tuple[Parameter, ...], tuple[str, ...]]
"""Parameters, and the constraints between them."""


def read_space(algorithm: str, document: Mapping[str, Any], constraints: Sequence[Any]) -> Space:
    """The parameters and constraints of a study of that algorithm.

    Raises:
        InvalidRequest: One of them is wrong, the algorithm cannot choose a parameter, or no point keeps
            all constraints.
    """
    space = parse_space(document)
    for parameter in space:
        if algorithm == CMA_ES and parameter.active_if:
            allowed = f"auto, gp, tpe or another, as {parameter.name} is conditional"
            raise refuse("algorithm", algorithm, allowed)
    if is_sampler(algorithm):
        check_sampler_space(algorithm, space)
    checked = parse_constraints(constraints, space)
    if checked and first_point(space, checked) is None:
        allowed = "constraints that points of the space keep: none was found that does"
        raise refuse("constraints", list(constraints), allowed)
    return space, checked


def read_parameters_as(
    parameters_as: str, names: Iterable[str], environment: Mapping[str, str] | None
) -> ParametersAs:
    """How trials get the parameters of these names.

    Raises:
        InvalidRequest: There is no such way, or a parameter cannot be a variable.
    """
    if parameters_as not in list(ParametersAs):
        raise refuse("parameters_as", parameters_as, "arguments, environment or file")
    if parameters_as == ParametersAs.FILE and parameter_file.VARIABLE in (environment or {}):
        field = f"job.environment.{parameter_file.VARIABLE}"
        raise refuse(field, "a variable", "another name, as parameters_as is file")
    if parameters_as == ParametersAs.ENVIRONMENT:
        for name in names:
            common.check_environment("space", {name: ""})
            if name in (environment or {}):
                allowed = (
                    "another name: job.environment has this one, and parameters_as is environment"
                )
                raise refuse(f"space.{name}", "a parameter", allowed)
    return ParametersAs(parameters_as)


def change_space(
    algorithm: str, before: Space, changes: Mapping[str, Any], constraints: Sequence[Any] | None
) -> Space:
    """A space in which some parameters are new or others; ``None`` takes one away. One that was
    conditional stays so, unless the change has an ``active_if``, which may be ``None``.

    Raises:
        InvalidRequest: As for ``read_space``, or a parameter that is not there is taken away.
    """
    space, kept = before
    documents = {parameter.name: parameter.document() for parameter in space}
    for name, definition in changes.items():
        if definition is None and name not in documents:
            raise refuse(f"space.{name}", None, f"a parameter: {', '.join(documents)}")
        documents[name] = _with_conditions_of(documents.get(name), definition)
    left = {name: definition for name, definition in documents.items() if definition is not None}
    if not left:
        raise refuse("space", dict(changes), "at least one parameter that stays")
    return read_space(algorithm, left, kept if constraints is None else constraints)


def _with_conditions_of(before: Any, definition: Any) -> Any:
    """A parameter that changes, with the conditions that it had."""
    if not isinstance(before, dict) or "active_if" not in before:
        return definition
    own = {"values": definition} if isinstance(definition, list) else definition
    return {"active_if": before["active_if"], **own} if isinstance(own, Mapping) else definition
