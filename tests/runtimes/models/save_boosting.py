"""A booster of each kind."""

import json
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import xgboost

out = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
y = x @ [1.0, 2.0, 3.0]
for name in ("xgboost", "lightgbm", "categories"):
    (out / name / "1").mkdir(parents=True)
first = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), 5)
first.save_model(out / "xgboost" / "1" / "model.ubj")
second = lightgbm.train({"verbose": -1}, lightgbm.Dataset(x, y), 5)
second.save_model(out / "lightgbm" / "1" / "model.txt")
table = pd.DataFrame(
    {
        "city": pd.Categorical(np.where(x[:, 0] > 0, "Paris", "Berlin")),
        "age": x[:, 1].astype(np.float64),
        "plan": pd.Categorical(np.where(x[:, 2] > 0, 20, 10)),
    }
)
third = lightgbm.train({"verbose": -1}, lightgbm.Dataset(table, y), 5)
third.save_model(out / "categories" / "1" / "model.txt")
example = {"input": "x", "x": x[:3].tolist(), "output": "y"}
print(
    json.dumps(
        {
            "xgboost": example | {"y": first.predict(xgboost.DMatrix(x[:3])).tolist()},
            "lightgbm": example | {"dtype": "float64", "y": second.predict(x[:3]).tolist()},
            "categories": {
                "instances": json.loads(table[:9].to_json(orient="records")),
                "y": third.predict(table[:9]).tolist(),
            },
        }
    )
)
