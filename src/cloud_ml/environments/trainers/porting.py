"""What in a trainer's code cannot work here, said before it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.trainers import tensorflow1
from cloud_ml.environments.trainers.detect import Findings

_SHOWN, _MOST, _LONGEST = 3, 20, 200


def notices(findings: Findings) -> Iterator[str]:
    """Sentences about code for Python 2, and about parts of TensorFlow 1 that are not there,
    with file and line.
    """
    if findings.python_2:
        yield f"{_list_places(findings.python_2)}: this is Python 2 code; convert it to Python 3, for example with 2to3"
    by_part: dict[str, list[str]] = {}
    for place in findings.absent[:_MOST]:
        by_part.setdefault(place.partition(" in ")[0], []).append(place.partition(" in ")[2])
    for part, places in by_part.items():
        yield f"{part} in {_list_places(places)} is not offered: {tensorflow1.advice(part.removeprefix('tf.'))}"


def check(findings: Findings, module: str | None) -> None:
    """Refuse a module that begins by importing what is not there.

    Raises:
        EnvironmentFailed: ``TrainerInvalid``; the message names file and line.
    """
    if module is None:
        return
    path = module.replace(".", "/")
    files = (f"{path}.py", f"{path}/__main__.py", f"src/{path}.py", f"src/{path}/__main__.py")
    for blocking in findings.blocking:
        part, _, place = blocking.partition(" in ")
        if place.rpartition(":")[0] in files:
            what = tensorflow1.advice(part.removeprefix("tf."))
            raise EnvironmentFailed(
                "TrainerInvalid", f"{place} imports {part}, which is not offered: {what}"
            )


def _list_places(places: Sequence[str]) -> str:
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return ", ".join(place[:_LONGEST] for place in places[:_SHOWN]) + more
