"""Finds the slope of a line by gradient descent, with no package but Python: the trainer of the
SDK's examples.
"""

import argparse
import json
import pathlib

POINTS = [(x / 10, 2.0 * x / 10) for x in range(-10, 11)]

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.5)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--out", type=pathlib.Path)
options = parser.parse_args()

slope, loss = 0.0, 0.0
for epoch in range(1, options.epochs + 1):
    loss = sum((slope * x - y) ** 2 for x, y in POINTS) / len(POINTS)
    print(f"epoch {epoch}: slope {slope:.4f}, loss {loss:.6f}", flush=True)
    slope -= options.rate * sum(2 * (slope * x - y) * x for x, y in POINTS) / len(POINTS)

if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "result.json").write_text(
        json.dumps({"rate": options.rate, "slope": slope, "loss": loss})
    )
