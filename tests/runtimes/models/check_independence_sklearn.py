"""Fit small estimators, and tell as JSON which of them are known to keep their rows apart, and why not."""

import json
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from cloud_ml.serving.independence import probe
from cloud_ml.serving.runtimes.sklearn import SklearnModel, described


class Centred(LinearRegression):
    def predict(self, X):
        made = super().predict(X)
        return made - made.mean()


def centred(x):
    return x - x.mean(0)


columns = ColumnTransformer([("scaled", StandardScaler(), [0, 1])], remainder="passthrough")
APART = [
    LinearRegression(), LogisticRegression(), RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=3),
    KNeighborsClassifier(), SVC(), KMeans(3), BaggingClassifier(), AdaBoostClassifier(n_estimators=3),
    make_pipeline(StandardScaler(), PCA(2), LogisticRegression()), make_pipeline(columns, LogisticRegression()),
    make_pipeline(make_union(StandardScaler(), PCA(2)), LogisticRegression()),
    VotingClassifier([("a", LogisticRegression()), ("b", RandomForestClassifier(3))]),
    StackingClassifier([("a", LogisticRegression())]), GridSearchCV(LogisticRegression(), {"C": [1, 2]}),
]  # fmt: skip
MIXES = [
    Centred(), DummyClassifier(strategy="uniform"), make_pipeline(FunctionTransformer(centred), LogisticRegression()),
    make_pipeline(StandardScaler(), Centred()), VotingRegressor([("a", Centred())]),
]  # fmt: skip


def reasons(estimator, x, y):
    model = SklearnModel(estimator.fit(x, y), described(estimator))
    return {
        name: probe.difference(model, model.signatures[name]) if found.independent else found.reason
        for name, found in model.evidence.items()
    }


def main():
    warnings.simplefilter("ignore")
    x = np.random.default_rng(0).standard_normal((60, 4))
    y = (x[:, 0] > 0).astype(int)
    told = {}
    for group, estimators in (("apart", APART), ("mixes", MIXES)):
        for place, estimator in enumerate(estimators):
            for name, reason in reasons(estimator, x, y).items():
                told[f"{group}: {type(estimator).__name__} {place} {name}"] = reason
    print(json.dumps(told))


if __name__ == "__main__":
    main()
