"""TensorFlow Serving's batching parameters file: how many rows run together, and how many
threads run them.
"""

import logging
from typing import Any, NamedTuple

from google.protobuf import text_format

from cloud_ml.serving.batching import Policy
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message, pool

MOST_ROWS = 1 << 20
MOST_THREADS = 1024
MOST_REQUESTS = 1 << 24

log = logging.getLogger(__name__)


class BatchingParameters(NamedTuple):
    """The parameters of the file, and the defaults where it names none."""

    policy: Policy
    threads: int


def parse_batching_parameters(text: str) -> BatchingParameters:
    """Read a ``BatchingParameters`` message as text.

    Raises:
        BadRequest: with the line, or the field, its value and what is allowed.
    """
    parameters = message("tensorflow.serving.BatchingParameters")()
    try:
        text_format.Parse(text, parameters, descriptor_pool=pool())
    except text_format.ParseError as error:
        raise BadRequest(f"the batching parameters cannot be read: {error}") from error
    if parameters.pad_variable_length_inputs:
        raise BadRequest(
            "pad_variable_length_inputs is true; inputs of different lengths run in batches "
            "of their own"
        )
    if parameters.HasField("batch_timeout_micros") and parameters.batch_timeout_micros.value:
        log.info("batch_timeout_micros has no effect: a batch never waits for further calls")
    default = Policy()
    rows = _check_bounds(parameters, "max_batch_size", default.max_batch_rows, MOST_ROWS)
    sizes = tuple(parameters.allowed_batch_sizes)
    if sizes and (list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != rows):
        raise BadRequest(
            f"allowed_batch_sizes is {list(sizes)}; increasing sizes of which the last is "
            f"max_batch_size, {rows}, are allowed"
        )
    queue = default.max_queue
    if parameters.HasField("max_enqueued_batches"):
        queue = min(
            _check_bounds(parameters, "max_enqueued_batches", 0, MOST_REQUESTS) * rows,
            MOST_REQUESTS,
        )
    policy = Policy(max_batch_rows=rows, allowed_rows=sizes, max_queue=queue)
    return BatchingParameters(
        policy, _check_bounds(parameters, "num_batch_threads", 2, MOST_THREADS)
    )


def _check_bounds(parameters: Any, name: str, default: int, most: int) -> int:
    if not parameters.HasField(name):
        return default
    value: int = getattr(parameters, name).value
    if not 1 <= value <= most:
        raise BadRequest(f"{name} is {value}; 1 to {most} is allowed")
    return value
