"""``output``: a second name of the only output of a model, whatever its format.

Many formats choose the name themselves, such as ``keras_tensor_7`` or ``output_0``, and it may
differ between two trainings of the same model. The alias is listed beside that name and answered
only where a request names it.
"""

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import PREDICT, Signature

ALIAS = "output"


def with_output_alias(signature: Signature) -> Signature:
    """The signature with the alias, where it has one output and no name stands against it.

    Classifications and regressions have outputs whose names TensorFlow Serving prescribes.
    """
    if signature.method != PREDICT or len(signature.outputs) != 1:
        return signature
    if any(spec.name == ALIAS for spec in signature.listed_outputs):
        return signature
    alias = replace(signature.outputs[0], name=ALIAS)
    return replace(signature, on_request=(*signature.on_request, alias))


class AliasedModel:
    """Gives the alias of a signature that has all outputs; the model computes the others."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.signatures = model.signatures
        self.close = model.close

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        """See ``Model.predict``."""
        *others, last = signature.outputs
        if last.name != ALIAS or not others or last != replace(others[0], name=ALIAS):
            return self._model.predict(signature, inputs)
        made = self._model.predict(replace(signature, outputs=tuple(others)), inputs)
        return [*made, made[0]]
