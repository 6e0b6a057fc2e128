"""The recipes that a job may ask for: what its tasks are told about each other."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from cloud_ml.models import common

RECIPE_NAMES = (
    "array",
    "cluster",
    "dask",
    "jax",
    "lightgbm",
    "mpi",
    "pytorch",
    "tensorflow",
    "xgboost",
)
_OTHER_NAMES = {
    "ddp": "pytorch",
    "horovod": "mpi",
    "mpi4py": "mpi",
    "openmpi": "mpi",
    "tf": "tensorflow",
    "torch": "pytorch",
    "torchrun": "pytorch",
}
_LONGEST_NAME = 40


def check_recipe(field: str, value: Any) -> str:
    """The name of a recipe, or nothing for the one that follows from the framework.

    Raises:
        InvalidRequest: There is none of that name; says which there are, and which one is meant.
    """
    if value == "" or (isinstance(value, str) and value in RECIPE_NAMES):
        return str(value)
    allowed = "one of " + ", ".join(RECIPE_NAMES)
    raise common.refuse(field, value, allowed, suggestion=_suggest_recipe(value))


def _suggest_recipe(value: Any) -> str:
    """The recipe that somebody may have meant by an unknown name, or nothing."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return ""
    near = get_close_matches(value.lower(), (*RECIPE_NAMES, *_OTHER_NAMES), n=1)
    return next((_OTHER_NAMES.get(one, one) for one in near), "")
