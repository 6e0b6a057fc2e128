"""Build small models of Keras, and tell as JSON which of them are proven to keep their rows
apart, and why not.
"""

import json
import os
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from cloud_ml.serving.independence import keras_layers, probe, tensorflow_file, tensorflow_graph
from cloud_ml.serving.independence.tensor_info import NotIndependent
from cloud_ml.serving.runtimes.keras import KerasModel, _describe_model
from cloud_ml.serving.runtimes.tensorflow import described
from cloud_ml.serving.runtimes.tflite import TfliteModel


@keras.saving.register_keras_serializable()
class Centred(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


def functional(shape, build, dtype="float32"):
    given = keras.Input(shape, dtype=dtype)
    return keras.Model(given, build(given))


def transformer(x):
    x = layers.Embedding(50, 16)(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.Dense(32, activation="gelu")(x)
    return layers.Dense(3)(layers.GlobalAveragePooling1D()(x))


def merged(x):
    x = layers.Embedding(50, 16)(x)
    x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 8)(x, x)]))
    return layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x))


def second_call(x):
    softmax = layers.Softmax(axis=-2)
    return softmax(layers.Flatten()(softmax(x)))


def pairs(x):
    """Softmax over the numbers of all rows, by operations that share names with layers."""
    return ops.reshape(layers.Softmax()(ops.reshape(x, (1, -1))), (-1, 4))


def centred(x):
    return layers.Subtract()([x, ops.reshape(ops.average(x, axis=0), (1, 4))])


def constant(*shape):
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


APART = {
    "operations": functional(
        (4,), lambda x: ops.maximum(x * 2.0 - 1.0, layers.Dense(4)(x)) + constant(4)
    ),
    "constants of a rescaling": functional((4,), layers.Rescaling(constant(4), constant(1, 4))),
    "softmax as a layer": functional((4,), layers.Activation("softmax")),
    "network": functional(
        (4,),
        lambda x: layers.Dense(2, activation="softmax")(layers.Dropout(0.1)(layers.Dense(8)(x))),
    ),
    "convolutions": keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    ),
    "transformer": functional((7,), merged, "int32"),
    "recurrent": keras.Sequential(
        [keras.Input((7, 3)), layers.Bidirectional(layers.LSTM(4)), layers.Dense(2)]
    ),
    "nested": keras.Sequential(
        [keras.Input((4,)), keras.Sequential([keras.Input((4,)), layers.Dense(2)]), layers.Dense(2)]
    ),
}
MIXES = {
    "reshaped by an operation": functional((4,), pairs),
    "average by an operation": functional((4,), centred),
    "a constant for each place": functional((4,), lambda x: layers.Add()([x, constant(3, 4)])),
    "a constant for each place, by an operation": functional((4,), lambda x: x + constant(3, 4)),
    "a scale for each place": functional((4,), layers.Rescaling(constant(3, 1))),
    "an offset for each place": functional((4,), layers.Rescaling(1.0, constant(3, 1))),
    "a state for each place": functional(
        (3, 4), lambda x: layers.LSTM(4)(x, initial_state=[constant(2, 4)] * 2)
    ),
    "a mask for each place": functional(
        (3, 4), lambda x: layers.MultiHeadAttention(1, 2)(x, x, attention_mask=constant(5, 3, 3))
    ),
    "an activation in a layer in an activation": functional(
        (4,), layers.Dense(3, activation=layers.Activation(lambda x: x - tf.reduce_mean(x, 0)))
    ),
    "own layer": functional((4,), Centred()),
    "own layer in a nested model": keras.Sequential(
        [keras.Input((4,)), keras.Sequential([keras.Input((4,)), Centred()])]
    ),
    "operation": functional((4,), lambda x: x - ops.mean(x, axis=0, keepdims=True)),
    "softmax": functional((4,), layers.Softmax(axis=0)),
    "softmax of single numbers": functional((), layers.Activation("softmax")),
    "log softmax of single numbers": functional((), layers.Activation("log_softmax")),
    "softmax of sums": functional(
        (4,), layers.EinsumDense("ab,b->a", output_shape=(), activation="softmax")
    ),
    "softmax of each step": functional(
        (3, 4),
        layers.TimeDistributed(
            layers.EinsumDense("ab,b->a", output_shape=(), activation="softmax")
        ),
    ),
    "softmax along another axis": functional((4,), layers.Activation(layers.Softmax(axis=0))),
    "an axis that is the rows' in the second call": functional((3, 4), second_call),
    "normalisation in training mode": functional(
        (4,), lambda x: layers.BatchNormalization()(x, training=True)
    ),
    "a model in training mode": functional(
        (4,),
        lambda x: keras.Sequential([keras.Input((4,)), layers.BatchNormalization()])(
            x, training=True
        ),
    ),
    "normalisation": functional((4,), layers.UnitNormalization(axis=0)),
    "lambda": functional((4,), layers.Lambda(lambda x: x - tf.reduce_mean(x, 0))),
    "activation": functional((4,), layers.Dense(3, activation=lambda x: x - tf.reduce_mean(x, 0))),
    "state": keras.Sequential([keras.Input((7, 3), batch_size=2), layers.LSTM(4, stateful=True)]),
}


def refusal(model):
    """Why the layers of a model are not proven, whatever the probe would say."""
    try:
        keras_layers.check(model)
    except NotIndependent as refusal_error:
        return str(refusal_error)
    return ""


def reason(model):
    """Why a model is not proven, or how its rows differ."""
    if why := refusal(model):
        return why
    loaded = KerasModel(model, {"serving_default": _describe_model(model)})
    return probe.difference(loaded, loaded.signatures["serving_default"])


def saved(model, folder):
    """Why the SavedModel of a model is not proven."""
    model.export(folder, verbose=False)
    signature = described.signatures(Path(folder))["serving_default"]
    try:
        tensorflow_graph.check(tensorflow_file.read(Path(folder) / "saved_model.pb"), signature)
    except NotIndependent as refusal_error:
        return str(refusal_error)
    return ""


def lite(model, folder):
    """Why the model of TensorFlow Lite is not proven, or how its rows differ."""
    file = Path(folder) / "model.tflite"
    file.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    loaded = TfliteModel(tf.lite.Interpreter(model_path=str(file), num_threads=1))
    found = loaded.evidence["serving_default"]
    return (
        probe.difference(loaded, loaded.signatures["serving_default"])
        if found.independent
        else found.reason
    )


def main():
    keras.utils.set_random_seed(0)
    reasons = {f"apart: {name}": reason(model) for name, model in APART.items()}
    reasons |= {f"mixes: {name}": refusal(model) for name, model in MIXES.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("network", "convolutions", "transformer"):
            reasons[f"apart: {name}, saved"] = saved(APART[name], f"{folder}/{name}")
        reasons["apart: transformer by operations, saved"] = saved(
            functional((7,), transformer, "int32"), f"{folder}/t"
        )
        for name in ("own layer", "operation", "softmax", "lambda", "activation"):
            reasons[f"mixes: {name}, saved"] = saved(
                MIXES[name], f"{folder}/{name.replace(' ', '_')}"
            )
        for name in ("network", "convolutions"):
            reasons[f"apart: {name}, lite"] = lite(APART[name], folder)
        for name in ("own layer", "operation", "softmax"):
            reasons[f"mixes: {name}, lite"] = lite(MIXES[name], folder)
    print(json.dumps(reasons))


if __name__ == "__main__":
    main()
