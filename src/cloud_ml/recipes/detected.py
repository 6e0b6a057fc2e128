"""The recipe of a job that does not say what it is: that of the framework that its code uses."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.engines.gang import Variant
from cloud_ml.recipes import jax, lightgbm, pytorch, tensorflow, xgboost
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import PARAMETER_SERVER, Task
from cloud_ml.recipes.variants import VariantRecipe

_KERAS = "keras"
_KEEP_PORTS = (tensorflow.FRAMEWORK, pytorch.FRAMEWORK, jax.FRAMEWORK, _KERAS)


class Detected(VariantRecipe):
    """The variants of all frameworks. Without one that fits, the attempt ends before any code."""

    name = "detected"

    def keeps_ports(self, runtime: str) -> bool:
        """As the recipe of the framework."""
        return runtime.partition(" ")[0] in _KEEP_PORTS

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        if any(task.role == PARAMETER_SERVER for task in tasks):
            return _with_servers(tasks)
        return (
            tensorflow.variant(tasks, tensorflow.FRAMEWORK, "1"),
            tensorflow.variant(tasks, tensorflow.FRAMEWORK),
            pytorch.variant(tasks, context, pytorch.FRAMEWORK),
            jax.variant(tasks, jax.FRAMEWORK),
            xgboost.variant(tasks, xgboost.FRAMEWORK),
            lightgbm.variant(tasks, lightgbm.FRAMEWORK),
            tensorflow.variant(tasks, _KERAS, "3"),
            pytorch.variant(tasks, context, _KERAS, "3-torch"),
            jax.variant(tasks, _KERAS, "3-jax"),
        )


_WITHOUT_SERVERS = (
    (pytorch.FRAMEWORK, ""),
    (jax.FRAMEWORK, ""),
    (xgboost.FRAMEWORK, ""),
    (lightgbm.FRAMEWORK, ""),
    (_KERAS, "3-torch"),
    (_KERAS, "3-jax"),
)


def _with_servers(tasks: Sequence[Task]) -> tuple[Variant, ...]:
    """Only TensorFlow knows parameter servers. As on the original wire, other code that asks for
    them has its variables, unless it is of a framework with a recipe of its own.
    """
    refused = (
        Variant(
            framework,
            version,
            refused=f"the job asks for parameter servers, and {framework} knows none. Leave them "
            "out (-p, ps_count)",
        )
        for framework, version in _WITHOUT_SERVERS
    )
    return (
        tensorflow.variant(tasks, tensorflow.FRAMEWORK, "1"),
        *refused,
        tensorflow.variant(tasks),
    )
