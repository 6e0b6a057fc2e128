"""A version of a model that answers."""

from collections.abc import Sequence

from cloud_ml.serving.batching import Batcher, Request, Workshop
from cloud_ml.serving.errors import BadRequest, ModelNotFound
from cloud_ml.serving.runtimes.base import DEFAULT_SIGNATURE, Model
from cloud_ml.serving.signatures import Shape, Signature
from cloud_ml.serving.tallies import Tally


class LoadedVersion:
    """A loaded model with the queues in front of it. ``platform`` names its format."""

    def __init__(self, name: str, number: int, model: Model, workshop: Workshop, platform: str = "") -> None:
        self.name = name
        self.number = number
        self.model = model
        self.max_batch_rows = workshop.policy.max_batch_rows
        self.platform = platform
        self._queue = workshop.queue()
        self._batchers = {each.name: Batcher(model, each, workshop, self._queue) for each in model.signatures.values()}

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return all(batcher.idle for batcher in self._batchers.values())

    def signature(self, name: str) -> Signature:
        """The signature of this name; an empty name is the default one.

        Raises:
            ModelNotFound: with the names there are.
        """
        found = self.model.signatures.get(name or DEFAULT_SIGNATURE)
        if found is None:
            known = ", ".join(sorted(self.model.signatures)) or "none"
            asked = f"model {self.name!r} version {self.number} has no signature {name or DEFAULT_SIGNATURE!r}"
            raise ModelNotFound(f"{asked}; it has {known}")
        return found

    def tally(self, name: str) -> Tally:
        """What the signature of this name did."""
        return self._batchers[name].tally

    def waiting(self, name: str) -> int:
        """How many requests wait for the signature of this name."""
        return self._batchers[name].waiting

    def batcher(self, signature: Signature) -> Batcher:
        """The queue in front of a signature."""
        return self._batchers[signature.name]

    def submit(self, signature: Signature, request: Request, tails: tuple[Shape, ...]) -> None:
        """Run a request: see ``Batcher.submit``."""
        self._batchers[signature.name].submit(request, tails)


def rows_and_tails(signature: Signature, shapes: Sequence[Shape]) -> tuple[int, tuple[Shape, ...]]:
    """How many rows a request has, and its shapes without them; 1 and whole shapes where rows do not go together.

    Raises:
        BadRequest: where the inputs differ in rows.
    """
    if not signature.batched:
        return 1, tuple(shapes)
    rows = shapes[0][0]
    if any(shape[0] != rows for shape in shapes):
        told = ", ".join(f"{spec.name!r} {shape[0]}" for spec, shape in zip(signature.inputs, shapes, strict=True))
        raise BadRequest(f"inputs differ in their number of rows: {told}: {signature}")
    return rows, tuple(shape[1:] for shape in shapes)
