"""A classifier with several methods, and a pipeline that scales each call by itself."""

import json
import sys
from pathlib import Path

import joblib
import numpy as np
import skops.io
from answers import calls, model_calls
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, minmax_scale

out = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(100, 3))
classifier = LogisticRegression().fit(x, (3 * x[:, 0]).astype(int))
pipeline = make_pipeline(FunctionTransformer(minmax_scale), LinearRegression()).fit(
    x, x @ [1.0, 2.0, 3.0]
)
for name in ("skops", "pickled", "scaled"):
    (out / name / "1").mkdir(parents=True)
skops.io.dump(classifier, out / "skops" / "1" / "model.skops")
joblib.dump(classifier, out / "pickled" / "1" / "model.joblib")
joblib.dump(pipeline, out / "scaled" / "1" / "model.joblib")
methods = ["predict_proba", "decision_function"]
several = [calls(method, method, x, getattr(classifier, method)) for method in methods]
label = calls("", "label", x, classifier.predict)
merged = ["serving_default", *methods]
print(
    json.dumps(
        {
            "skops": model_calls(merged, label, *several, dtype="float64"),
            "pickled": model_calls(merged, label, *several, dtype="float64"),
            "scaled": model_calls([], calls("", "label", x, pipeline.predict), dtype="float64"),
        }
    )
)
