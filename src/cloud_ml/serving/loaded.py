"""A version of a model that answers."""

from collections.abc import Sequence
from typing import NamedTuple

from cloud_ml.serving.batching import BatchContext, Batcher, Request
from cloud_ml.serving.call_metrics import Tally
from cloud_ml.serving.errors import BadRequest, ModelNotFound, ServingError
from cloud_ml.serving.independence.evidence import BatchingDecision
from cloud_ml.serving.output_alias import AliasedModel
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Array, Model
from cloud_ml.serving.signatures import Shape, Signature


class LoadedVersion:
    """A loaded model with the queues in front of it. ``platform`` names its format."""

    def __init__(
        self, name: str, number: int, model: Model, context: BatchContext, platform: str = ""
    ) -> None:
        self.name = name
        self.number = number
        self.model = model
        self.max_batch_rows = context.policy.max_batch_rows
        self.platform = platform
        self._queue = context.queue()
        self._context = context
        self._batchers = {
            each.name: Batcher(model, each, context, self._queue)
            for each in model.signatures.values()
        }
        self._unbatched: dict[str, Batcher] = {}
        self._with_all_outputs: dict[Signature, Batcher] = {}

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        further = (*self._unbatched.values(), *self._with_all_outputs.values())
        return all(batcher.idle for batcher in (*self._batchers.values(), *further))

    def signature(self, name: str) -> Signature:
        """The signature of this name; an empty name is the default one.

        Raises:
            ModelNotFound: with the names there are.
        """
        found = self.model.signatures.get(name or DEFAULT_SIGNATURE)
        if found is None:
            known = ", ".join(sorted(self.model.signatures)) or "none"
            missing = name or DEFAULT_SIGNATURE
            problem = f"model {self.name!r} version {self.number} has no signature {missing!r}"
            raise ModelNotFound(f"{problem}; it has {known}")
        return found

    def tally(self, name: str) -> Tally:
        """What the signature of this name did."""
        return self._batchers[name].tally

    def waiting(self, name: str) -> int:
        """How many requests wait for the signature of this name."""
        alone = self._unbatched.get(name)
        further = sum(
            each.waiting
            for signature, each in self._with_all_outputs.items()
            if signature.name == name
        )
        return self._batchers[name].waiting + (alone.waiting if alone is not None else 0) + further

    def arrange(self, signature: Signature, shapes: Sequence[Shape]) -> "Arrangement":
        """How a request with inputs of these shapes runs.

        Inputs with different numbers of rows are for the model alone to judge: such a request runs
        by itself.
        """
        if signature.batched and any(shape[0] != shapes[0][0] for shape in shapes):
            signature = signature.decided(_UNEQUAL)
        return Arrangement(signature, *rows_and_tails(signature, shapes))

    def batcher(self, signature: Signature) -> Batcher:
        """The queue in front of a signature, which may be one that ``arrange`` changed."""
        usual = self._batchers[signature.name]
        if signature.with_all_outputs:
            return self._with_all_outputs.get(signature) or self._make_with_all_outputs(
                signature, usual
            )
        if signature.batched or not self.model.signatures[signature.name].batched:
            return usual
        alone = self._unbatched.get(signature.name)
        if alone is None:
            alone = Batcher(_JudgesRows(self.model), signature, self._context, self._queue)
            alone.tally = usual.tally
            self._unbatched[signature.name] = alone
        return alone

    def _make_with_all_outputs(self, signature: Signature, usual: Batcher) -> Batcher:
        """The queue for requests that name an output which is computed on request only."""
        made = Batcher(AliasedModel(self.model), signature, self._context, self._queue)
        # Counted together: metrics are by signature, whatever a request wants of it.
        made.tally = usual.tally
        self._with_all_outputs[signature] = made
        return made

    def submit(self, signature: Signature, request: Request, tails: tuple[Shape, ...]) -> None:
        """Run a request: see ``Batcher.submit``."""
        self.batcher(signature).submit(request, tails)


class _JudgesRows:
    """A model that is asked with inputs of different numbers of rows, which the caller may not
    have meant.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.signatures = model.signatures
        self.close = model.close

    def predict(self, signature: Signature, inputs: Sequence[Array]) -> Sequence[Array]:
        try:
            return self._model.predict(signature, inputs)
        except Exception as error:
            rows = ", ".join(
                f"{spec.name!r} {len(each)}"
                for spec, each in zip(signature.inputs, inputs, strict=True)
            )
            message = (
                error.message
                if isinstance(error, ServingError)
                else f"{type(error).__name__}: {error}"
            )
            refused = f"inputs differ in their number of rows ({rows}), and the model refuses that"
            raise BadRequest(f"{refused}: {message}"[:2000]) from error


class Arrangement(NamedTuple):
    """How a request runs: as a call of which signature, with how many rows, of which shapes
    without them.
    """

    signature: Signature
    rows: int
    tails: tuple[Shape, ...]


_UNEQUAL = BatchingDecision(
    False, "request", "inputs of the request have different numbers of rows"
)


def rows_and_tails(signature: Signature, shapes: Sequence[Shape]) -> tuple[int, tuple[Shape, ...]]:
    """How many rows a request has, and its shapes without them; 1 and whole shapes where rows do
    not go together.
    """
    if not signature.batched:
        return 1, tuple(shapes)
    return shapes[0][0], tuple(shape[1:] for shape in shapes)
