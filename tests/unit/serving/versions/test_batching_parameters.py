"""TensorFlow Serving's batching parameters file."""

from __future__ import annotations

import pytest

from cloud_ml.serving.batching import Policy
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.versions.batching_parameters import parse_batching_parameters


def test_nothing_in_it_means_the_defaults() -> None:
    assert parse_batching_parameters("") == (Policy(), 2)


def test_every_field_that_has_a_meaning_here() -> None:
    text = """
        max_batch_size { value: 8 } batch_timeout_micros { value: 1000 } max_enqueued_batches { value: 10 }
        num_batch_threads { value: 3 } thread_pool_name { value: "pool" } allowed_batch_sizes: 4 allowed_batch_sizes: 8
    """
    policy, threads = parse_batching_parameters(text)
    assert (policy.max_batch_rows, policy.allowed_rows, policy.max_queue, threads) == (
        8,
        (4, 8),
        80,
        3,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch_size: 3", "cannot be read: 1:"),
        ("max_batch_size { value: 0 }", "max_batch_size is 0; 1 to"),
        ("num_batch_threads { value: 9999 }", "num_batch_threads is 9999; 1 to 1024 is allowed"),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "increasing sizes of which the last is max_batch_size, 8",
        ),
        ("pad_variable_length_inputs: true", "pad_variable_length_inputs is true"),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_batching_parameters(text)
    assert words in caught.value.message
