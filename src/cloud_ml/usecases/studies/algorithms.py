"""Algorithms of studies: what is asked for is checked against what this server can run."""

from __future__ import annotations

from cloud_ml.domain.studies.samplers import PREFIX, SAMPLERS, is_sampler
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.common import refuse
from cloud_ml.tuning.algorithms import (
    AUTO,
    NAMES,
    NUMERIC,
    SEVERAL,
    advice,
    extra_of,
    is_known,
    missing_packages,
    resolve_name,
    searches_for_one,
    searches_for_several,
)


def read_algorithm(algorithm: str, objectives: int) -> str:
    """The algorithm of that name, also of other tuners, if this server can run it.

    Raises:
        InvalidRequest: There is none, it does not take so many objectives, or packages are missing.
    """
    name = resolve_name(algorithm)
    if not is_known(name):
        raise refuse("algorithm", algorithm, advice(algorithm))
    if objectives > 1 and not searches_for_several(name):
        samplers = [PREFIX + one for one, sampler in SAMPLERS.items() if sampler.several]
        several = ", ".join([*SEVERAL, *samplers] if is_sampler(name) else SEVERAL)
        raise refuse("algorithm", algorithm, f"{several}, as there are several objectives")
    if objectives == 1 and not searches_for_one(name):
        others = ", ".join(one for one in NAMES if searches_for_one(one))
        raise refuse(
            "algorithm", algorithm, f"{others}, as there is one objective; {name} takes 2 to 4"
        )
    missing = missing_packages(name)
    if not missing:
        return name
    if name == AUTO:
        return "qmc"
    light = ", ".join(one for one in NAMES if one not in (AUTO, *NUMERIC))
    raise InvalidRequest(
        f"algorithm is {algorithm}, and this server lacks {' and '.join(missing)}; "
        f"allowed: {light}",
        field="algorithm",
        value=algorithm,
        allowed=light,
        hint=f"Install them beside the server: pip install 'cloud-ml[{extra_of(name)}]'",
    )
