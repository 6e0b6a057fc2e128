"""Fit estimators on tables and texts; tell as JSON what a replica takes and whether it answers
the same.
"""

import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from cloud_ml.serving import dtypes
from cloud_ml.serving.runtimes.sklearn import SklearnModel, describe_estimator

warnings.simplefilter("ignore")
ROWS = 60
table = pd.DataFrame(
    {
        "id": [f"i{row}" for row in range(ROWS)],
        "city": ["Köln", "Paris", "北京"] * 20,
        "age": np.arange(ROWS) * 1.0,
        "n": np.arange(ROWS) % 4,
        "text": ["good day", "bad day"] * 30,
        "flag": [True, False] * 30,
    }
)
labels = np.array(["no", "yes"])[(table.age > 30).astype(int)]


def by_columns(*transformers: Any, **more: Any) -> Any:
    return make_pipeline(ColumnTransformer(list(transformers), **more), LogisticRegression())


known = OneHotEncoder(handle_unknown="ignore")
filled = make_pipeline(SimpleImputer(strategy="most_frequent"), known)
city, scaled = ("city", known, ["city"]), ("numbers", StandardScaler(), ["age", "n"])
of_kind = ("city", known, make_column_selector(dtype_include=[object, "string"])), (
    "numbers", StandardScaler(), make_column_selector(dtype_include=np.number)
)  # fmt: skip
models: dict[str, tuple[Any, Any]] = {
    "columns": (by_columns(city, scaled), table),
    "imputed": (by_columns(("city", filled, ["city"]), ("n", known, ["n"])), table),
    "passed": (by_columns(city, remainder="passthrough"), table[["city", "age", "n"]]),
    "of a kind": (by_columns(*of_kind), table[["city", "age", "n"]]),
    "with text": (
        by_columns(("text", TfidfVectorizer(), "text"), ("age", "passthrough", ["age"])),
        table,
    ),
    "truths": (by_columns(("flag", known, ["flag", "city"])), table),
    "one column": (by_columns(("city", OrdinalEncoder(), ["city"])), table),
    "searched": (
        GridSearchCV(by_columns(city, scaled), {"logisticregression__C": [1, 2]}, cv=2),
        table,
    ),
    "calibrated": (CalibratedClassifierCV(by_columns(city, scaled), cv=2), table),
    "numbers by name": (by_columns(scaled), table[["age", "n"]]),
    "places": (
        by_columns(("a", StandardScaler(), [3]), ("b", known, [1])),
        table[["id", "city", "text", "age"]].values,
    ),
    "encoded": (make_pipeline(known, LogisticRegression()), table[["city", "text"]].values),
    "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()), table.text),
    "counted": (
        make_pipeline(CountVectorizer(), TfidfTransformer(), LogisticRegression()),
        list(table.text),
    ),
    "joined": (
        make_pipeline(make_union(TfidfVectorizer(), CountVectorizer()), LogisticRegression()),
        table.text,
    ),
    "numbers": (LogisticRegression(), table[["age", "n"]]),
    "array": (LogisticRegression(), table[["age", "n"]].values),
}


def sent(values: Any, kind: dtypes.DType) -> Any:
    """An input as a request brings it: strings are bytes."""
    array = np.asarray(values)
    if kind is not dtypes.STRING:
        return array.astype(kind.numpy)
    made = np.empty(array.shape, object)
    made.ravel()[:] = [str(each).encode() for each in array.ravel()]
    return made


estimators = {}
for name, (estimator, rows) in models.items():
    estimator.fit(rows, labels)
    served = SklearnModel(estimator, describe_estimator(estimator))
    signature = served.signatures["serving_default"]
    named = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows).add_prefix("x")
    given = [sent(named.get(spec.name, rows), spec.dtype) for spec in signature.inputs]
    (answer,) = served.predict(signature, given)
    estimators[name] = {
        "inputs": [str(spec) for spec in signature.inputs],
        "columns": list(signature.inputs[0].columns),
        "same": bool((answer == estimator.predict(rows)).all()),
    }
print(json.dumps(estimators))
