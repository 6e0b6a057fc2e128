"""Estimators of scikit-learn that predict each row from that row alone, by their exact types.

A type of the same name that is not scikit-learn's own is not trusted, nor is a class that inherits
from one of these.
"""

from collections.abc import Iterator
from typing import Any

from cloud_ml.serving.independence.tensor_info import NotIndependent, names

METHODS = frozenset(
    {
        "predict",
        "predict_proba",
        "predict_log_proba",
        "decision_function",
        "transform",
        "score_samples",
        "apply",
    }
)
"""Methods of theirs that change nothing and look at each row by itself."""

_KNOWN = names(
    """
    LinearRegression Ridge RidgeCV Lasso LassoCV ElasticNet ElasticNetCV Lars LarsCV LassoLars
    LassoLarsCV LassoLarsIC LogisticRegression LogisticRegressionCV SGDClassifier SGDRegressor
    Perceptron PassiveAggressiveClassifier PassiveAggressiveRegressor RidgeClassifier RidgeClassifierCV
    BayesianRidge ARDRegression HuberRegressor TheilSenRegressor PoissonRegressor GammaRegressor
    TweedieRegressor QuantileRegressor OrthogonalMatchingPursuit LinearSVC LinearSVR SVC SVR NuSVC NuSVR
    OneClassSVM SGDOneClassSVM KernelRidge PLSRegression IsotonicRegression DecisionTreeClassifier
    DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor RandomForestClassifier
    RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor HistGradientBoostingClassifier
    HistGradientBoostingRegressor FunctionTransformer IsolationForest
    KNeighborsClassifier KNeighborsRegressor NearestCentroid GaussianNB MultinomialNB
    BernoulliNB ComplementNB CategoricalNB LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
    MLPClassifier MLPRegressor KMeans MiniBatchKMeans BisectingKMeans GaussianMixture
    BayesianGaussianMixture StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer Binarizer
    OneHotEncoder OrdinalEncoder PolynomialFeatures SplineTransformer QuantileTransformer
    PowerTransformer KBinsDiscretizer SimpleImputer PCA IncrementalPCA TruncatedSVD SelectKBest
    SelectPercentile SelectFpr SelectFdr SelectFwe VarianceThreshold
    GaussianRandomProjection SparseRandomProjection
    """
)
_PARTS = {
    "Pipeline": ("steps",),
    "FeatureUnion": ("transformer_list",),
    "ColumnTransformer": ("transformers_",),
    "VotingClassifier": ("estimators_",),
    "VotingRegressor": ("estimators_",),
    "BaggingClassifier": ("estimators_",),
    "BaggingRegressor": ("estimators_",),
    "AdaBoostClassifier": ("estimators_",),
    "AdaBoostRegressor": ("estimators_",),
    "StackingClassifier": ("estimators_", "final_estimator_"),
    "StackingRegressor": ("estimators_", "final_estimator_"),
    "OneVsRestClassifier": ("estimators_",),
    "OneVsOneClassifier": ("estimators_",),
    "MultiOutputClassifier": ("estimators_",),
    "MultiOutputRegressor": ("estimators_",),
    "GridSearchCV": ("best_estimator_",),
    "RandomizedSearchCV": ("best_estimator_",),
    "SelectFromModel": ("estimator_",),
    "RFE": ("estimator_",),
    "RFECV": ("estimator_",),
    "GradientBoostingClassifier": ("init",),
    "GradientBoostingRegressor": ("init",),
    "TransformedTargetRegressor": ("regressor_", "transformer_"),
}
_PASSED = ("passthrough", "drop", "zero", None)
_FITTING = ("score_func", "scoring")
"""Parameters whose functions run only when the estimator is fitted."""
_DEEPEST = 32


def check(estimator: Any, method: str) -> None:
    """Look at an estimator and all that it is made of.

    Raises:
        NotIndependent: with the type that is not known, or the method.
    """
    if method not in METHODS:
        raise NotIndependent(f"method {method!r} is not known to handle each row independently")
    _check(estimator, 0)


def _check(estimator: Any, depth: int) -> None:
    kind = type(estimator)
    if depth > _DEEPEST:
        raise NotIndependent("estimators lie deeper in each other than is looked at")
    if (
        kind.__module__.partition(".")[0] != "sklearn"
        or kind.__name__ not in _KNOWN | _PARTS.keys()
    ):
        raise NotIndependent(
            f"estimator {kind.__module__}.{kind.__qualname__} is not known to keep rows apart"
        )
    # An attribute of the object hides the method of its class.
    for own in ("predict", "predict_proba", "transform", "decision_function"):
        if own in getattr(estimator, "__dict__", {}):
            raise NotIndependent(f"estimator {kind.__qualname__} has a {own!r} of its own")
    _check_functions(estimator)
    for name in _PARTS.get(kind.__name__, ()):
        for part in _parts(getattr(estimator, name, None)):
            if part is estimator:
                raise NotIndependent("an estimator is a part of itself")
            _check(part, depth + 1)


def _check_functions(estimator: Any) -> None:
    """Refuse functions that it may run for a prediction: kernels, weights, metrics,
    transformations.
    """
    parameters = estimator.get_params(deep=False) | getattr(estimator, "__dict__", {})
    for name, value in parameters.items():
        if not callable(value) or name in _FITTING or (name == "dtype" and isinstance(value, type)):
            continue
        kind = type(value)
        if (
            kind.__module__.partition(".")[0] != "sklearn"
        ):  # classes of scikit-learn are losses and estimators
            raise NotIndependent(
                f"{type(estimator).__qualname__} runs a function that is not analysed: {name!r}"
            )


def _parts(value: Any) -> Iterator[Any]:
    """Estimators in a list, or in a list of tuples with names and columns."""
    if not isinstance(value, list | tuple):
        value = [value]
    for each in value:
        entries = each if isinstance(each, tuple) else (each,)
        named = entries[1:2] if len(entries) > 1 and isinstance(entries[0], str) else entries
        for part in named:
            if isinstance(part, list | tuple) or hasattr(part, "ravel"):
                yield from _parts(list(part.ravel()) if hasattr(part, "ravel") else part)
            elif not (part is None or (isinstance(part, str) and part in _PASSED)):
                yield part
