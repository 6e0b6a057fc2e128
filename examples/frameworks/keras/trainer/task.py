"""Handwritten digits with Keras 3 on its usual backend, TensorFlow."""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    keras.utils.set_random_seed(0)
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)
    model = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x_train, y_train, epochs=10, verbose=2)
    print(f"keras {keras.__version__} on {keras.backend.backend()}")
    print(f"accuracy: {model.evaluate(x_test, y_test, verbose=0)[1]:.3f}")


if __name__ == "__main__":
    main()
