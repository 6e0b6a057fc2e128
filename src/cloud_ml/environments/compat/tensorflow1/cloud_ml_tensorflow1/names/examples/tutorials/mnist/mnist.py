"""The model of the tutorial "TensorFlow Mechanics 101"."""

import math

import tensorflow as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images, hidden1_units, hidden2_units):
    """The logits of two hidden layers."""
    hidden1 = tf.nn.relu(_linear("hidden1", images, IMAGE_PIXELS, hidden1_units))
    hidden2 = tf.nn.relu(_linear("hidden2", hidden1, hidden1_units, hidden2_units))
    return _linear("softmax_linear", hidden2, hidden2_units, NUM_CLASSES)


def loss(logits, labels):
    """The mean cross entropy."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss, learning_rate):
    """The operation of a training step."""
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def evaluation(logits, labels):
    """How many predictions are right."""
    correct = tf.nn.in_top_k(logits, labels, 1)
    return tf.reduce_sum(tf.cast(correct, tf.int32))


def _linear(scope, inputs, before, after):
    with tf.name_scope(scope):
        weights = tf.Variable(
            tf.truncated_normal([before, after], stddev=1 / math.sqrt(before)), name="weights"
        )
        biases = tf.Variable(tf.zeros([after]), name="biases")
        return tf.matmul(inputs, weights) + biases
