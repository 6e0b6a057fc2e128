"""Linear regression, y = 2x + 10, in the style of TensorFlow 1: flags, a session, summaries, an
export.
"""

import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.contrib.session_bundle import exporter

flags = tf.app.flags
flags.DEFINE_integer("max_epochs", 10, "How often to go through the data")
flags.DEFINE_string("optimizer", "sgd", "sgd, adadelta, adagrad, adam, ftrl or rmsprop")
flags.DEFINE_float("learning_rate", 0.01, "Learning rate of the optimizer")
flags.DEFINE_integer("samples", 100, "How many points to learn from")
flags.DEFINE_string("output_path", "./tensorboard/", "Where summaries go")
flags.DEFINE_string("checkpoint_path", "./checkpoint/", "Where checkpoints go")
flags.DEFINE_string("model_path", "./model/", "Where the trained model goes")
flags.DEFINE_integer("model_version", 1, "Version of the exported model")
FLAGS = flags.FLAGS

OPTIMIZERS = {
    "sgd": tf.train.GradientDescentOptimizer,
    "adadelta": tf.train.AdadeltaOptimizer,
    "adagrad": tf.train.AdagradOptimizer,
    "adam": tf.train.AdamOptimizer,
    "ftrl": tf.train.FtrlOptimizer,
    "rmsprop": tf.train.RMSPropOptimizer,
}


def make_points(count):
    """Points of y = 2x + 10 with a little noise; always the same ones."""
    random = np.random.RandomState(2016)
    x = random.uniform(-1.0, 1.0, count).astype(np.float32)
    return x, 2.0 * x + 10.0 + random.normal(0.0, 0.02, count).astype(np.float32)


def export(sess, saver, inputs, outputs):
    """Write the model for serving."""
    print("Exporting trained model to {}".format(FLAGS.model_path))
    model_exporter = exporter.Exporter(saver)
    model_exporter.init(
        sess.graph.as_graph_def(),
        named_graph_signatures={
            "inputs": exporter.generic_signature(inputs),
            "outputs": exporter.generic_signature(outputs),
        },
    )
    model_exporter.export(FLAGS.model_path, tf.constant(FLAGS.model_version), sess)
    print("Done exporting!")


def main(_):
    if FLAGS.optimizer not in OPTIMIZERS:
        raise SystemExit(
            "Unknown optimizer {}: one of {}".format(FLAGS.optimizer, ", ".join(sorted(OPTIMIZERS)))
        )
    print("Use the optimizer: {}".format(FLAGS.optimizer))
    train_x, train_y = make_points(FLAGS.samples)

    # Keys go in and come out beside each prediction, so that answers can be told apart.
    keys = tf.placeholder(tf.int32, shape=[None, 1], name="keys")
    same_keys = tf.identity(keys)
    x = tf.placeholder(tf.float32, shape=[None, 1], name="X")
    y = tf.placeholder(tf.float32, shape=[None, 1], name="Y")
    w = tf.get_variable("w", [1, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    predict = tf.matmul(x, w) + b
    loss = tf.reduce_mean(tf.square(y - predict))
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = OPTIMIZERS[FLAGS.optimizer](FLAGS.learning_rate).minimize(
        loss, global_step=global_step
    )
    tf.summary.scalar("loss", loss)
    summary_op = tf.summary.merge_all()
    saver = tf.train.Saver()

    if not os.path.isdir(FLAGS.checkpoint_path):
        os.makedirs(FLAGS.checkpoint_path)
    print("Save tensorboard files into: {}".format(FLAGS.output_path))
    start = time.time()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        writer = tf.summary.FileWriter(FLAGS.output_path, sess.graph)
        print("Run training with epoch number: {}".format(FLAGS.max_epochs))
        for epoch in range(FLAGS.max_epochs):
            for point in range(FLAGS.samples):
                sess.run(train_op, {x: [[train_x[point]]], y: [[train_y[point]]]})
            everything = {x: train_x.reshape(-1, 1), y: train_y.reshape(-1, 1)}
            loss_value, summary, step = sess.run([loss, summary_op, global_step], everything)
            writer.add_summary(summary, step)
            print("Epoch: {}, loss: {}".format(epoch, loss_value))
        writer.close()
        saver.save(sess, os.path.join(FLAGS.checkpoint_path, "model.ckpt"), global_step=global_step)
        print("[{:.3f} s] End of standalone training.".format(time.time() - start))
        w_value, b_value = sess.run([w, b])
        print("Get the model, w: {}, b: {}".format(w_value[0][0], b_value[0]))
        export(sess, saver, {"keys": keys, "X": x}, {"keys": same_keys, "predict": predict})


if __name__ == "__main__":
    tf.app.run()
