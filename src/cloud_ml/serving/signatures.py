"""What a model takes and gives: named tensors with a type and a shape."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.independence.evidence import BatchingDecision

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. ``shape`` has -1 where any size goes, and is None where the rank is open
    too.

    ``inner`` is the name that the model's file has for it; the protocols know ``name``. ``columns``
    are the names that the features of the last dimension had when the model was trained, where its
    file tells them.
    """

    name: str
    dtype: DType
    shape: Shape | None
    inner: str = ""
    optional: bool = False
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        sizes = (
            "any shape"
            if self.shape is None
            else "[" + ", ".join(str(n) if n >= 0 else "?" for n in self.shape) + "]"
        )
        return f"{self.name}: {self.dtype} {sizes}"

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape can be given."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            w in (-1, s) for w, s in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """A way to call a model: its inputs and outputs, in the order in which a runtime takes and
    gives them.

    ``batched`` is true where rows of several callers go through together: row *i* of each output
    then belongs to row *i* of the inputs. The first dimension of every input and output must be
    open for that, and ``batching``, what was decided for the model, must allow it. Without a
    decision an open first dimension is enough.

    ``on_request`` are further outputs that a runtime computes only for requests that name one of
    them: see ``naming``.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    method: str = PREDICT
    batching: BatchingDecision | None = field(default=None, compare=False, repr=False)
    on_request: tuple[TensorSpec, ...] = ()
    with_all_outputs: bool = False
    batched: bool = field(init=False)

    def __post_init__(self) -> None:
        allowed = self.batching is None or self.batching.enabled
        object.__setattr__(self, "batched", allowed and self.has_rows)

    @property
    def has_rows(self) -> bool:
        """Whether the first dimension of every input and output is open."""
        return bool(self.inputs) and all(
            t.shape and t.shape[0] == -1 for t in (*self.inputs, *self.outputs)
        )

    def decided(self, batching: BatchingDecision) -> "Signature":
        """The same signature with what was decided for it."""
        return replace(self, batching=batching)

    @property
    def listed_outputs(self) -> tuple[TensorSpec, ...]:
        """All outputs that a request may name."""
        return (*self.outputs, *self.on_request)

    def naming(self, names: Collection[str]) -> "Signature":
        """The signature for a request that names these outputs: one that gives all of them,
        where it needs that.
        """
        if (
            not names
            or not self.on_request
            or not any(spec.name in names for spec in self.on_request)
        ):
            return self
        return replace(self, outputs=self.listed_outputs, on_request=(), with_all_outputs=True)

    def __str__(self) -> str:
        sides = (self.inputs, self.outputs, self.on_request)
        given, back, more = ("; ".join(str(spec) for spec in side) for side in sides)
        further = f", and where they are named ({more})" if more else ""
        return f"signature {self.name!r} takes ({given}) and gives ({back}){further}"

    @contextlib.contextmanager
    def explained_refusals(self) -> Iterator[None]:
        """What is refused inside says what would be right."""
        try:
            yield
        except BadRequest as error:
            if str(self) in error.message:
                raise
            raise BadRequest(f"{error.message}: {self}") from error

    def check_names(self, given: Mapping[str, object]) -> None:
        """Refuse a request that lacks an input or has one too many.

        Raises:
            BadRequest: with the names and the whole signature.
        """
        known = {spec.name for spec in self.inputs}
        missing = [
            spec.name for spec in self.inputs if spec.name not in given and not spec.optional
        ]
        extra = [name for name in given if name not in known]
        if missing or extra:
            near = {name.lower(): f" (did you mean {name!r}?)" for name in missing}
            parts = [f"input {name!r} is missing" for name in missing] + [
                f"there is no input {name!r}{near.get(name.lower(), '')}" for name in extra
            ]
            raise BadRequest(f"{'; '.join(parts)}{self._advice_for_columns(extra)}: {self}")

    def _advice_for_columns(self, extra: Sequence[str]) -> str:
        """What to send instead of the columns of a table as inputs; empty if they are none."""
        for spec in self.inputs:
            if extra and set(extra) <= set(spec.columns):
                return (
                    f". The columns of {spec.name!r} are sent together, as rows or, to "
                    '/invocations, as {"dataframe_records": [{"' + extra[0] + '": …}]}'
                )
        return ""

    def check_tensor(self, spec: TensorSpec, dtype: DType, shape: Sequence[int]) -> None:
        """Refuse a tensor of another type or shape than the input takes.

        Raises:
            BadRequest: with what came, what was expected, and the whole signature.
        """
        if dtype is not spec.dtype:
            raise BadRequest(f"input {spec.name!r} is {dtype}, not {spec.dtype}: {self}")
        if not spec.fits(shape):
            raise BadRequest(f"input {spec.name!r} has shape {list(shape)}: {self}")

    def output_indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Places of the outputs that were asked for; all, where none were named.

        Raises:
            BadRequest: for a name that is no output, or is there twice.
        """
        if not names:
            return tuple(range(len(self.outputs)))
        places = {spec.name: place for place, spec in enumerate(self.outputs)}
        for name in names:
            if name not in places:
                raise BadRequest(f"there is no output {name!r}: {self}")
        if len(set(names)) != len(names):
            raise BadRequest(f"an output is named twice in {list(names)}: {self}")
        return tuple(places[name] for name in names)
