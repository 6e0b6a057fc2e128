"""Old TensorFlow in many small pieces; run as a trainer by ``test_build.py``."""

import importlib

import tensorflow as tf
from tensorflow.contrib import layers
from tensorflow.contrib import metrics as contrib_metrics
from tensorflow.contrib.session_bundle import exporter
from tensorflow.examples.tutorials.mnist import input_data
from tensorflow.examples.tutorials.mnist import mnist as tutorial
from tensorflow.python.framework import ops

NOT_THERE = "not part of the compatibility mode"


def refused(attempt, kind, name):
    try:
        attempt()
    except kind as error:
        assert name in str(error), error  # noqa: PT017 -- no pytest in there
        assert NOT_THERE in str(error), error  # noqa: PT017
    else:
        raise AssertionError(name + " should be absent")


def from_slim():
    from tensorflow.contrib import slim

    return slim


assert ops.get_default_graph() is tf.get_default_graph()
assert exporter is tf.contrib.session_bundle.exporter
refused(lambda: tf.contrib.slim, AttributeError, "tf.contrib.slim")
refused(from_slim, ImportError, "tensorflow.contrib.slim")
refused(
    lambda: importlib.import_module("tensorflow.contrib.learn"),
    ImportError,
    "tensorflow.contrib.learn",
)
refused(lambda: tf.estimator, AttributeError, "tf.estimator")
refused(
    lambda: tf.contrib.layers.sequence_input_from_feature_columns,
    AttributeError,
    "tf.contrib.layers.sequence",
)
assert not hasattr(tf, "no_such_name")

x = tf.placeholder(tf.float32, [None, 3], name="x")
labels = tf.placeholder(tf.float32, [None, 2], name="labels")
hidden = layers.fully_connected(
    x, 4, weights_regularizer=layers.l2_regularizer(0.1), scope="hidden"
)
logits = tf.layers.dense(hidden, 2)
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
loss += tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
step = (
    tf.contrib.framework.get_or_create_global_step() if hasattr(tf.contrib, "framework") else None
)
train_op = tf.train.AdamOptimizer(0.1).minimize(loss)
right = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
streaming, update = contrib_metrics.streaming_accuracy(tf.argmax(logits, 1), tf.argmax(labels, 1))
once = contrib_metrics.accuracy(tf.argmax(logits, 1), tf.argmax(labels, 1))
old = tf.concat(0, [[tf.mul(2.0, 3.0)], [tf.sub(5.0, 1.0)], [tf.neg(1.0)]])
packed = tf.pack([1, 2])
l1 = layers.l1_regularizer(0.5)(tf.constant([1.0, -3.0]))
both = layers.l1_l2_regularizer(0.5, 1.0)(tf.constant([1.0, -3.0]))
cell = tf.contrib.rnn.BasicLSTMCell(4)
sequence, _ = tf.nn.dynamic_rnn(cell, tf.zeros([2, 5, 3]), dtype=tf.float32)
tf.scalar_summary("the loss", loss)
merged = tf.merge_all_summaries()
flat = layers.flatten(tf.zeros([2, 3, 4]))

fake = input_data.read_data_sets("nowhere", fake_data=True, one_hot=True).train.next_batch(2)
digits = tutorial.inference(tf.constant(fake[0], tf.float32), 8, 4)
tutorial_step = tutorial.training(tutorial.loss(digits, tf.constant([0, 1])), 0.1)
assert tutorial.evaluation(digits, tf.constant([0, 1])).dtype == tf.int32

with tf.Session() as sess:
    sess.run([tf.initialize_all_variables(), tf.initialize_local_variables()])
    writer = tf.train.SummaryWriter("./log", sess.graph)
    feed = {x: [[1, 2, 3], [3, 2, 1]], labels: [[0, 1], [1, 0]]}
    first = sess.run(loss, feed)
    for number in range(20):
        _, summary = sess.run([train_op, merged], feed)
        writer.add_summary(summary, number)
    assert sess.run(loss, feed) < first
    sess.run(update, feed)
    assert 0 <= sess.run(streaming) <= 1
    assert 0 <= sess.run(once, feed) <= 1
    assert sess.run(old).tolist() == [6.0, 4.0, -1.0]
    assert sess.run(packed).tolist() == [1, 2]
    assert abs(sess.run(l1) - 2.0) < 1e-6
    assert abs(sess.run(both) - 7.0) < 1e-6
    assert sess.run(sequence).shape == (2, 5, 4)
    assert flat.shape.as_list() == [2, 12]

    saver = tf.train.Saver()
    version = tf.constant(7)
    sess.graph.finalize()
    export = exporter.Exporter(saver)
    export.init(default_graph_signature=exporter.classification_signature(x, scores_tensor=logits))
    assert export.export("./export", version, sess) == "./export/00000007"

signatures = tf.saved_model.loader.load(
    tf.Session(graph=tf.Graph()), ["serve"], "./export/00000007"
).signature_def
assert list(signatures["serving_default"].outputs) == ["scores"]
print("all names work")
