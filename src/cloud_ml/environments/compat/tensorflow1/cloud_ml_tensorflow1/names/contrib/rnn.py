"""``tf.contrib.rnn``: the cells moved to ``tf.nn.rnn_cell``, the unrolling to ``tf.nn``."""

import tensorflow as tf

from cloud_ml_tensorflow1.names.absent import sentence

_FUNCTIONS = ("static_rnn", "static_bidirectional_rnn")


def __getattr__(name):
    home = tf.nn if name in _FUNCTIONS else tf.nn.rnn_cell
    try:
        return getattr(home, name)
    except AttributeError:
        raise AttributeError(sentence(f"tf.contrib.rnn.{name}")) from None
