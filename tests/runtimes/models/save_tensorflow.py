"""SavedModels: one that is converted, one that stays; Keras's file; TensorFlow Lite."""

import json
import sys
from pathlib import Path

import tensorflow as tf

out = Path(sys.argv[1])
tf.keras.utils.set_random_seed(0)


class Table(tf.Module):
    """A look-up by index: answers of wrong indexes are TensorFlow's own."""

    def __init__(self):
        self.rows = tf.Variable([1.0, 4.0, 9.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="index")])
    def serve(self, index):
        return {"value": tf.gather(self.rows, index)}


network = tf.keras.Sequential(
    [
        tf.keras.layers.Input((4,), name="x"),
        tf.keras.layers.Dense(8, "relu"),
        tf.keras.layers.Dense(3, "softmax"),
    ]
)
network.export(out / "network" / "1", verbose=False)
table = Table()
tf.saved_model.save(table, out / "table" / "1", signatures={"serving_default": table.serve})
for name in ("keras", "lite"):
    (out / name / "1").mkdir(parents=True)
network.save(out / "keras" / "1" / "model.keras")
lite = tf.lite.TFLiteConverter.from_saved_model(str(out / "network" / "1")).convert()
(out / "lite" / "1" / "model.tflite").write_bytes(lite)
given = [[1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 0.0, 9.0]]
made = network(tf.constant(given)).numpy().tolist()
example = {"input": "x", "x": given, "output": None, "y": made}
print(
    json.dumps(
        {
            "network": example,
            "keras": example,
            "lite": example,
            "table": {
                "input": "index",
                "dtype": "int64",
                "x": [2, 0, 1],
                "output": "value",
                "y": [9.0, 1.0, 4.0],
            },
        }
    )
)
