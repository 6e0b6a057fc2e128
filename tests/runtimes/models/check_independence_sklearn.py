"""Fit small estimators, and tell as JSON which of them are known to keep their rows apart, and
why not.
"""

import json
import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE, SelectKBest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    StandardScaler,
    minmax_scale,
    scale,
)
from sklearn.svm import SVC, SVR

from cloud_ml.serving.independence import probe
from cloud_ml.serving.runtimes.sklearn import SklearnModel, describe_estimator


class Centred(LinearRegression):
    def predict(self, X):
        made = super().predict(X)
        return made - made.mean()


def centred(x):
    return x - x.mean(0)


def relative_kernel(one, other):
    products = one @ other.T
    return products / np.abs(products).max()


columns = ColumnTransformer([("scaled", StandardScaler(), [0, 1])], remainder="passthrough")
APART = [
    LinearRegression(),
    LogisticRegression(),
    RandomForestClassifier(5),
    HistGradientBoostingClassifier(max_iter=3),
    KNeighborsClassifier(),
    SVC(),
    KMeans(3),
    BaggingClassifier(),
    AdaBoostClassifier(n_estimators=3),
    make_pipeline(StandardScaler(), PCA(2), LogisticRegression()),
    make_pipeline(columns, LogisticRegression()),
    make_pipeline(make_union(StandardScaler(), PCA(2)), LogisticRegression()),
    VotingClassifier([("a", LogisticRegression()), ("b", RandomForestClassifier(3))]),
    StackingClassifier([("a", LogisticRegression())]),
    GridSearchCV(LogisticRegression(), {"C": [1, 2]}),
    make_pipeline(SelectKBest(k=2), LogisticRegression()),
    RFE(LogisticRegression(), n_features_to_select=2),
    GradientBoostingClassifier(n_estimators=3),
    make_pipeline(FunctionTransformer(), LogisticRegression()),
    make_pipeline(
        KBinsDiscretizer(3, encode="onehot-dense"), OneHotEncoder(handle_unknown="ignore"), SVC()
    ),
    SGDClassifier(),
    TransformedTargetRegressor(LinearRegression(), transformer=StandardScaler()),
    IsolationForest(n_estimators=3),
]
MIXES = [
    Centred(),
    DummyClassifier(strategy="uniform"),
    make_pipeline(FunctionTransformer(centred), LogisticRegression()),
    make_pipeline(StandardScaler(), Centred()),
    VotingRegressor([("a", Centred())]),
    TransformedTargetRegressor(
        LinearRegression(), transformer=FunctionTransformer(inverse_func=scale, check_inverse=False)
    ),
    TransformedTargetRegressor(
        LinearRegression(), func=scale, inverse_func=scale, check_inverse=False
    ),
    KNeighborsRegressor(weights=minmax_scale),
    SVR(kernel=relative_kernel),
    KernelRidge(kernel=lambda one, two: 1.0),
    RFE(Centred(), n_features_to_select=2),
    GradientBoostingRegressor(init=Centred()),
]


def reasons(estimator, x, y):
    model = SklearnModel(estimator.fit(x, y), describe_estimator(estimator))
    return {
        name: probe.difference(model, model.signatures[name]) if found.independent else found.reason
        for name, found in model.evidence.items()
    }


def main():
    warnings.simplefilter("ignore")
    x = np.random.default_rng(0).standard_normal((60, 4))
    y = (x[:, 0] > 0).astype(int)
    verdicts = {}
    for group, estimators in (("apart", APART), ("mixes", MIXES)):
        for place, estimator in enumerate(estimators):
            for name, reason in reasons(estimator, x, y).items():
                verdicts[f"{group}: {type(estimator).__name__} {place} {name}"] = reason
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main()
