"""TensorFlow Serving's PredictionService: Classify, Regress, MultiInference."""

from collections.abc import Callable
from typing import Any

from cloud_ml.serving import examples
from cloud_ml.serving.batching import Outcome, Request
from cloud_ml.serving.errors import BadRequest, ServingError
from cloud_ml.serving.grpc.calls import GrpcCall
from cloud_ml.serving.grpc.messages import Handler, reply
from cloud_ml.serving.grpc.prediction import find, spec_of
from cloud_ml.serving.loaded import LoadedVersion, rows_and_tails
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import CLASSIFY, REGRESS, Signature
from cloud_ml.serving.table import ModelTable


class _Task:
    """One signature that runs on the examples of a call, and what it gave: ``batching.Call`` and
    ``Form`` in one.
    """

    protocol = "grpc"

    def __init__(self, call: GrpcCall, version: LoadedVersion, name: str, method: str) -> None:
        self.call = call
        self.version = version
        self.method = method
        self.signature: Signature = version.signature(name)
        self.result: Any = None
        self.done: Callable[[], None] = lambda: None
        examples.check(self.signature, method)

    def run(self, given: list[bytes], done: Callable[[], None]) -> None:
        self.done = done
        arrays = examples.tensors(self.signature, given)
        rows, tails = rows_and_tails(self.signature, [array.shape for array in arrays])
        self.version.submit(
            self.signature, Request(self, self, arrays, rows, self.call.deadline), tails
        )

    def waits(self) -> bool:
        return self.call.waits()

    def fail(self, error: ServingError) -> None:
        self.call.fail(error)

    def send(self, call: Any, outcome: Outcome, first: int, rows: int) -> None:
        count = rows if self.signature.batched else len(outcome.arrays[0])
        self.result = (_make_classification if self.method == CLASSIFY else _make_regression)(
            self.signature, outcome, first, count
        )
        self.done()


def _make_classification(signature: Signature, outcome: Outcome, first: int, rows: int) -> Any:
    made = message("tensorflow.serving.ClassificationResult")()
    for row in examples.classifications(signature, outcome, first, rows):
        classes = made.classifications.add()
        for label, score in row:
            classes.classes.add(label=label, score=score)
    return made


def _make_regression(signature: Signature, outcome: Outcome, first: int, rows: int) -> Any:
    made = message("tensorflow.serving.RegressionResult")()
    for value in examples.regressions(signature, outcome, first, rows):
        made.regressions.add(value=value)
    return made


class Inference:
    """Answers ``Classify``, ``Regress`` and ``MultiInference``."""

    def __init__(self, table: ModelTable) -> None:
        self._table = table

    @property
    def handlers(self) -> dict[str, Handler]:
        """The methods by name."""
        return {"Classify": self._classify, "Regress": self._regress, "MultiInference": self._multi}

    def _classify(self, call: GrpcCall, request: Any) -> None:
        self._one(call, request, CLASSIFY, "tensorflow.serving.ClassificationResponse")

    def _regress(self, call: GrpcCall, request: Any) -> None:
        self._one(call, request, REGRESS, "tensorflow.serving.RegressionResponse")

    def _one(self, call: GrpcCall, request: Any, method: str, answer: str) -> None:
        task = _Task(
            call, find(self._table, request.model_spec), request.model_spec.signature_name, method
        )

        def done() -> None:
            made = message(answer)(result=task.result)
            made.model_spec.MergeFromString(spec_of(task.version, task.signature))
            reply(call, made)

        task.run(examples.examples_of(request.input), done)

    def _multi(self, call: GrpcCall, request: Any) -> None:
        tasks = self._tasks(call, request.tasks)
        given = examples.examples_of(request.input)

        def done() -> None:
            if any(task.result is None for task in tasks):
                return
            made = message("tensorflow.serving.MultiInferenceResponse")()
            for task in tasks:
                result = made.results.add()
                result.model_spec.MergeFromString(spec_of(task.version, task.signature))
                field = "classification_result" if task.method == CLASSIFY else "regression_result"
                getattr(result, field).CopyFrom(task.result)
            reply(call, made)

        for task in tasks:
            task.run(given, done)

    def _tasks(self, call: GrpcCall, task_messages: Any) -> list[_Task]:
        if not task_messages:
            raise BadRequest("the request has no tasks")
        if len({task.model_spec.name for task in task_messages}) != 1:
            raise BadRequest("all tasks of a request must name the same model")
        tasks = []
        for each in task_messages:
            if each.method_name not in (CLASSIFY, REGRESS):
                raise BadRequest(
                    f"method_name is {each.method_name!r}; {CLASSIFY!r} and {REGRESS!r} can "
                    "be asked for"
                )
            version = find(self._table, each.model_spec)
            tasks.append(_Task(call, version, each.model_spec.signature_name, each.method_name))
        names = [task.signature.name for task in tasks]
        if len(set(names)) != len(names):
            raise BadRequest(f"a signature is asked for twice: {', '.join(names)}")
        return tasks
