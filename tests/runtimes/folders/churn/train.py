"""Trains a small network that predicts churn."""

import argparse
import csv
import math
import os

import torch
from torch import nn
from tqdm import tqdm


def load(path):
    with open(path) as file:
        rows = list(csv.reader(file))[1:]
    table = torch.tensor([[float(cell) for cell in row] for row in rows])
    return table[:, :-1], table[:, -1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--data", default="data/churn.csv")
    args = parser.parse_args()

    torch.manual_seed(0)
    x, y = load(args.data)
    model = nn.Sequential(nn.Linear(x.shape[1], 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loss_function = nn.MSELoss()
    for epoch in tqdm(range(args.epochs)):
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"loss is {loss.item()} in epoch {epoch}")
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")

    os.makedirs("outputs", exist_ok=True)
    torch.save(model.state_dict(), "outputs/weights.pt")
    torch.jit.save(torch.jit.trace(model, x[:1]), "outputs/model.pt")
    program = torch.export.export(model, (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, "outputs/model.pt2")


if __name__ == "__main__":
    main()
