"""``output``: a second name of the only output of a model whose format, and not its author, named it.

Keras, PyTorch's exported programs, scikit-learn and the boosters call their outputs ``keras_tensor_7``, ``output_0``,
``label`` or ``y``. The alias is listed beside that name and answered only where a request names it.
"""

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Signature

ALIAS = "output"


def with_output_alias(signature: Signature) -> Signature:
    """The signature with the alias, where it has one output and no name stands against it."""
    if len(signature.outputs) != 1 or any(spec.name == ALIAS for spec in signature.listed_outputs):
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
