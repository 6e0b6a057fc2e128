"""Handwritten digits with a small network in JAX."""

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def logits(weights, x):
    return jax.nn.relu(x @ weights["in"]) @ weights["out"]


def loss(weights, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits(weights, x), y).mean()


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = map(jnp.asarray, train_test_split(x / 16, y, random_state=0))
    first, second = jax.random.split(jax.random.key(0))
    weights = {
        "in": jax.random.normal(first, (64, 64)) * 0.1,
        "out": jax.random.normal(second, (64, 10)) * 0.1,
    }
    optimizer = optax.adam(0.01)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        updates, state = optimizer.update(jax.grad(loss)(weights, x_train, y_train), state)
        return optax.apply_updates(weights, updates), state

    for _ in range(100):
        weights, state = step(weights, state)
    print(f"jax {jax.__version__} on {jax.devices()}")
    print(f"accuracy: {(logits(weights, x_test).argmax(1) == y_test).mean():.3f}")


if __name__ == "__main__":
    main()
