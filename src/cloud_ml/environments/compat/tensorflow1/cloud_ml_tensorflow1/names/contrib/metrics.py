"""``tf.contrib.metrics``: the streaming metrics, which took predictions first."""

import functools

import tensorflow as tf

from cloud_ml_tensorflow1.names.absent import sentence

_PAIRS = {
    "streaming_accuracy": "accuracy",
    "streaming_auc": "auc",
    "streaming_false_negatives": "false_negatives",
    "streaming_false_positives": "false_positives",
    "streaming_mean_absolute_error": "mean_absolute_error",
    "streaming_mean_squared_error": "mean_squared_error",
    "streaming_precision": "precision",
    "streaming_recall": "recall",
    "streaming_root_mean_squared_error": "root_mean_squared_error",
    "streaming_true_positives": "true_positives",
}


def streaming_mean(values, weights=None, **names):
    """Mean over all batches so far: (value, update)."""
    return tf.metrics.mean(values, weights, **names)


def accuracy(predictions, labels, weights=None):
    """Share of ``predictions`` that equal ``labels``, of this batch alone."""
    right = tf.cast(tf.equal(predictions, labels), tf.float32)
    if weights is None:
        return tf.reduce_mean(right)
    weights = tf.cast(weights, tf.float32)
    return tf.reduce_sum(right * weights) / tf.reduce_sum(weights * tf.ones_like(right))


def _streaming(today, predictions, labels, weights=None, **options):
    return today(labels=labels, predictions=predictions, weights=weights, **options)


def __getattr__(name):
    if name in _PAIRS:
        return functools.partial(_streaming, getattr(tf.metrics, _PAIRS[name]))
    raise AttributeError(sentence(f"tf.contrib.metrics.{name}"))
