"""Boosters, whose rows never mix."""

import json
import sys
from pathlib import Path

import lightgbm
import numpy as np
import xgboost
from answers import calls, model_calls

out = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
y = x @ [1.0, 2.0, 3.0]
for name in ("xgboost", "lightgbm"):
    (out / name / "1").mkdir(parents=True)
first = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), 20)
first.save_model(out / "xgboost" / "1" / "model.ubj")
second = lightgbm.train({"verbose": -1}, lightgbm.Dataset(x, y), 20)
second.save_model(out / "lightgbm" / "1" / "model.txt")
ours = ["serving_default"]
print(
    json.dumps(
        {
            "xgboost": model_calls(
                ours, calls("", "y", x, lambda rows: first.predict(xgboost.DMatrix(rows)))
            ),
            "lightgbm": model_calls(ours, calls("", "y", x, second.predict), dtype="float64"),
        }
    )
)
