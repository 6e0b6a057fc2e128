"""Handwritten digits with a small network in PaddlePaddle."""

import paddle
from paddle import nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    paddle.seed(0)
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = map(
        paddle.to_tensor, train_test_split(x / 16, y, random_state=0)
    )
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    for _ in range(100):
        nn.functional.cross_entropy(model(x_train.astype("float32")), y_train).backward()
        optimizer.step()
        optimizer.clear_grad()
    right = (model(x_test.astype("float32")).argmax(1) == y_test).astype("float32").mean()
    print(f"paddle {paddle.__version__}")
    print(f"accuracy: {float(right):.3f}")


if __name__ == "__main__":
    main()
