"""A regression as skops and a classifier as a pickle."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import skops.io
from sklearn.linear_model import LinearRegression, LogisticRegression

out = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(50, 3))
regression = LinearRegression().fit(x, x @ [1.0, 2.0, 3.0] + 4)
classifier = LogisticRegression().fit(x, x[:, 0] > 0)
for name in ("skops", "pickled"):
    (out / name / "1").mkdir(parents=True)
skops.io.dump(regression, out / "skops" / "1" / "model.skops")
joblib.dump(classifier, out / "pickled" / "1" / "model.joblib")
given = x[:3].tolist()
print(
    json.dumps(
        {
            "skops": {
                "input": "x",
                "x": given,
                "dtype": "float64",
                "output": "label",
                "y": regression.predict(x[:3]).tolist(),
            },
            "pickled": {
                "input": "x",
                "x": given,
                "dtype": "float64",
                "output": "predict_proba",
                "signature": "predict_proba",
                "y": classifier.predict_proba(x[:3]).tolist(),
            },
        }
    )
)
