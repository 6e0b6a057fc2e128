"""Models with a signature that keeps rows apart and one that centres them: SavedModels, Keras,
TensorFlow Lite.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from answers import calls, model_calls

out = Path(sys.argv[1])
tf.keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
SIDE = [tf.TensorSpec([None, 4], tf.float32, name="x")]


class Both(tf.Module):
    """Both signatures read the same variable. With a table of words TensorFlow itself runs them."""

    def __init__(self, *, words):
        self.weights = tf.Variable(tf.random.normal([4, 4]))
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.constant(["-1", "0", "1"]), tf.constant([2.0, 3.0, 4.0])
        )
        self.table = tf.lookup.StaticHashTable(pairs, 1.0) if words else None

    def look_up(self, x):
        return (
            x if self.table is None else x * self.table.lookup(tf.as_string(tf.cast(x, tf.int32)))
        )

    @tf.function(input_signature=SIDE)
    def apart(self, x):
        return {"y": tf.nn.softmax(self.look_up(x) @ self.weights)}

    @tf.function(input_signature=SIDE)
    def centred(self, x):
        return {"z": (x - tf.reduce_mean(x, 0)) @ self.weights}


def network():
    layers = [
        tf.keras.layers.Input((4,), name="x"),
        tf.keras.layers.Dense(64, "relu"),
        tf.keras.layers.Dense(3),
    ]
    return tf.keras.Sequential(layers)


def centring():
    given = tf.keras.Input((4,), name="x")
    made = given - tf.keras.ops.mean(given, axis=0, keepdims=True)
    return tf.keras.Model(given, tf.keras.layers.Dense(3)(made))


answers = {}
for name in ("graphs", "words"):
    both = Both(words=name == "words")
    signatures = {"serving_default": both.apart, "centred": both.centred}
    tf.saved_model.save(both, out / name / "1", signatures=signatures)
    two = [
        calls(
            "serving_default", "y", x, lambda given, run=both.apart: run(tf.constant(given))["y"]
        ),
        calls("centred", "z", x, lambda given, run=both.centred: run(tf.constant(given))["z"]),
    ]
    answers[name] = model_calls(["serving_default"], *two)
for name, model in (("layers", network()), ("layers centred", centring())):
    folder = name.replace(" ", "_")
    for kind in ("keras", "lite"):
        (out / f"{folder}_{kind}" / "1").mkdir(parents=True)
    model.save(out / f"{folder}_keras" / "1" / "model.keras")
    lite = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    (out / f"{folder}_lite" / "1" / "model.tflite").write_bytes(lite)
    of_model = calls("", None, x, lambda given, model=model: model(tf.constant(given)))
    for kind in ("keras", "lite"):
        answers[f"{folder}_{kind}"] = model_calls(
            [] if "centred" in name else ["serving_default"], of_model
        )
print(json.dumps(answers))
