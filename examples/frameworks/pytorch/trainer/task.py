"""Handwritten digits with a small network in PyTorch."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def main() -> None:
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = map(
        torch.tensor, train_test_split(x / 16, y, random_state=0)
    )
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x_train.float()), y_train).backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(x_test.float()).argmax(1) == y_test).float().mean()
    print(f"torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"accuracy: {right:.3f}")


if __name__ == "__main__":
    main()
