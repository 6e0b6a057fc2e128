"""Session bundles as trainers of TensorFlow 1 wrote them, by its own exporter: every kind of
signature, an asset.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.contrib.session_bundle import exporter

out = Path(sys.argv[1])
ANYWHERE = tf.ConfigProto(allow_soft_placement=True)
X = [[1.0, 2.0], [-3.0, 0.5]]


def write(name, build, **saver):
    """A graph of its own, trained by assigning, exported as version 1."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=ANYWHERE) as session:
        arguments, given, fetched = build()
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        answer = session.run(fetched, given)
        made = exporter.Exporter(tf.train.Saver(**saver))
        made.init(graph.as_graph_def(), **arguments)
        made.export(str(out / name), tf.constant(1), session)
    return answer.tolist()


def scores():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    weights = tf.Variable([[1.0, -1.0, 0.5], [0.25, 2.0, -0.5]], name="weights")
    with tf.device("/gpu:1"):  # which the server has not
        return x, tf.nn.softmax(tf.matmul(x, weights))


def named():
    x, y = scores()
    halves = {
        "inputs": exporter.generic_signature({"x": x}),
        "outputs": exporter.generic_signature({"y": y}),
    }
    return {"named_graph_signatures": halves}, {x: X}, y


def classified():
    x, y = scores()
    default = exporter.classification_signature(input_tensor=x, scores_tensor=y)
    halves = {
        "inputs": exporter.generic_signature({"x": x}),
        "outputs": exporter.generic_signature({"y": y}),
    }
    return {"default_graph_signature": default, "named_graph_signatures": halves}, {x: X}, y


def looked_up():
    words = out / "words.txt"
    words.write_text("cat\ndog\nfox\n")
    path = tf.constant(str(words))
    table = tf.contrib.lookup.index_table_from_file(path)
    word = tf.placeholder(tf.string, [None], name="word")
    value = tf.gather(tf.Variable([1.0, 4.0, 9.0, 0.0]), tf.maximum(table.lookup(word), 0))
    arguments = {
        "default_graph_signature": exporter.regression_signature(word, value),
        "init_op": tf.group(tf.tables_initializer()),
        "assets_collection": tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
    }
    return arguments, {word: ["fox", "dog"]}, value


tf.logging.set_verbosity(tf.logging.ERROR)
examples = {
    "named": {"input": "x", "x": X, "output": "y", "y": write("named", named)},
    "sharded": {
        "input": "x",
        "x": X,
        "output": "y",
        "y": write("sharded", named, sharded=True, write_version=1),
    },
    "old": {"input": "x", "x": X, "output": "y", "y": write("old", named, write_version=1)},
    "classified": {
        "input": "inputs",
        "x": X,
        "output": "scores",
        "y": write("classified", classified),
    },
    "words": {
        "input": "inputs",
        "x": ["fox", "dog"],
        "output": "outputs",
        "y": write("words", looked_up),
    },
}
(out / "words.txt").unlink()
print(json.dumps(examples))
