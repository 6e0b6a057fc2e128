"""``tf.contrib.layers``: regularizers, initializers, and the two plainest layers."""

import tensorflow as tf

from cloud_ml_tensorflow1.names.absent import sentence


def _check_scale(scale):
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise ValueError(f"scale cannot be {scale!r}: a number from 0 on")
    if scale < 0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}")
    return float(scale)


def l1_regularizer(scale, scope=None):
    """A function that gives ``scale`` times the sum of absolute weights; nothing for a scale of
    zero.
    """
    scale = _check_scale(scale)

    def l1(weights, name=None):
        with tf.name_scope(name or scope, "l1_regularizer", [weights]):
            return tf.multiply(
                tf.constant(scale, weights.dtype.base_dtype), tf.reduce_sum(tf.abs(weights))
            )

    return l1 if scale else lambda weights, name=None: None


def l2_regularizer(scale, scope=None):
    """A function that gives ``scale`` times half the sum of squared weights; nothing for a scale
    of zero.
    """
    scale = _check_scale(scale)

    def l2(weights, name=None):
        with tf.name_scope(name or scope, "l2_regularizer", [weights]):
            return tf.multiply(tf.constant(scale, weights.dtype.base_dtype), tf.nn.l2_loss(weights))

    return l2 if scale else lambda weights, name=None: None


def l1_l2_regularizer(scale_l1=1.0, scale_l2=1.0, scope=None):
    """The sum of both."""
    return sum_regularizer(
        [l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=scope or "l1_l2_regularizer"
    )


def sum_regularizer(regularizer_list, scope=None):
    """A function that adds up several regularizers; None if there are none."""
    regularizers = [regularizer for regularizer in regularizer_list if regularizer is not None]
    if not regularizers:
        return None

    def total(weights):
        with tf.name_scope(scope, "sum_regularizer", [weights]):
            parts = [
                part
                for part in (regularizer(weights) for regularizer in regularizers)
                if part is not None
            ]
            return tf.add_n(parts) if parts else None

    return total


def apply_regularization(regularizer, weights_list=None):
    """The summed penalty over ``weights_list`` (by default the weights' collection), also put
    among the losses.
    """
    weights = weights_list if weights_list is not None else tf.get_collection(tf.GraphKeys.WEIGHTS)
    penalties = [penalty for penalty in map(regularizer, weights) if penalty is not None]
    total = tf.add_n(penalties) if penalties else tf.constant(0.0)
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
    """Keeps the scale of gradients about the same in all layers."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def variance_scaling_initializer(
    factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=tf.float32
):
    """Weights whose variance is ``factor`` over the number of inputs, outputs, or their mean."""
    shape = "uniform" if uniform else "truncated_normal"
    return tf.variance_scaling_initializer(factor, mode.lower(), shape, seed, dtype)


def flatten(inputs, outputs_collections=None, scope=None):
    """All but the first dimension as one."""
    with tf.name_scope(scope, "Flatten", [inputs]):
        width = 1
        for dimension in inputs.shape.as_list()[1:]:
            width *= dimension
        return tf.reshape(inputs, [-1, width])


def fully_connected(
    inputs,
    num_outputs,
    activation_fn=tf.nn.relu,
    normalizer_fn=None,
    normalizer_params=None,
    weights_initializer=None,
    weights_regularizer=None,
    biases_initializer=tf.zeros_initializer(),  # noqa: B008 -- the old signature
    biases_regularizer=None,
    reuse=None,
    variables_collections=None,
    outputs_collections=None,
    trainable=True,
    scope=None,
):
    """A dense layer on the last dimension, with the variables named as they were."""
    if variables_collections or outputs_collections:
        raise AttributeError(sentence("tf.contrib.layers.fully_connected with collections"))
    with tf.variable_scope(scope, "fully_connected", [inputs], reuse=reuse):
        width = inputs.shape.as_list()[-1]
        weights = tf.get_variable(
            "weights",
            [width, num_outputs],
            inputs.dtype.base_dtype,
            initializer=weights_initializer or xavier_initializer(),
            regularizer=weights_regularizer,
            trainable=trainable,
        )
        outputs = tf.tensordot(inputs, weights, 1)
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            outputs += tf.get_variable(
                "biases",
                [num_outputs],
                inputs.dtype.base_dtype,
                initializer=biases_initializer,
                regularizer=biases_regularizer,
                trainable=trainable,
            )
        return outputs if activation_fn is None else activation_fn(outputs)


def __getattr__(name):
    raise AttributeError(sentence(f"tf.contrib.layers.{name}"))
