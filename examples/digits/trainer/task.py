"""Handwritten digits with Keras 3: trains a small network on the pictures that come with
scikit-learn.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument(
        "--model_path", type=Path, default=Path("model"), help="where the trained model goes"
    )
    parser.add_argument("--model_version", type=int, default=1)
    return parser.parse_args()


def load():
    """Pictures of 8 × 8 pixels from 0 to 1, and which digit each one shows."""
    digits = load_digits()
    pictures = (digits.data / 16.0).astype(np.float32)
    return train_test_split(pictures, digits.target, test_size=0.2, random_state=2016)


def build(units, learning_rate):
    model = keras.Sequential(
        [
            keras.Input((64,), name="pixels"),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10, activation="softmax", name="probabilities"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def main():
    arguments = parse_arguments()
    keras.utils.set_random_seed(2016)
    train_x, test_x, train_y, test_y = load()
    model = build(arguments.units, arguments.learning_rate)
    model.fit(train_x, train_y, epochs=arguments.epochs, batch_size=32, verbose=2)
    loss, accuracy = model.evaluate(test_x, test_y, verbose=0)
    print(f"loss: {loss:.4f}, accuracy: {accuracy:.4f}")

    arguments.model_path.mkdir(parents=True, exist_ok=True)
    model.save(arguments.model_path / "digits.keras")
    model.export(arguments.model_path / str(arguments.model_version), verbose=False)
    print(f"Saved the model in {arguments.model_path}")


if __name__ == "__main__":
    main()
