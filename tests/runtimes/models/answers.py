"""Calls of a few rows each, with the answers that a framework itself gives to them."""

import numpy as np


def calls(signature, output, x, run):
    """Calls of a signature. ``run`` is the framework's own function of an array of rows."""
    random = np.random.default_rng(len(signature))
    made = []
    for place in range(24):
        rows = x[random.integers(0, len(x), 1 + place % 4)]
        made.append(
            {
                "signature": signature,
                "output": output,
                "x": rows.tolist(),
                "y": np.asarray(run(rows)).tolist(),
            }
        )
    return made


def model_calls(merged, *calls_of, dtype="float32", given="x"):
    """What a model is called with. ``merged`` are the signatures whose calls may run together."""
    every = [call for each in calls_of for call in each]
    return {"input": given, "dtype": dtype, "merged": merged, "calls": every}
