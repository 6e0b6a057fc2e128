"""Makes the tables of real problems: trains each model at each point of a grid, and keeps its loss.

The data sets come with scikit-learn. Run once, in an environment of its own (20 minutes of a core):
``uv run --with scikit-learn --with xgboost-cpu python benchmarks/tuning/table_maker.py [NAME …]``.
The benchmark reads the tables by ``tabulated.py`` and needs none of these packages.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are small; before numpy is loaded

import numpy as np
import sklearn
import xgboost
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

FOLDER = Path(__file__).with_name("tables")
Axes = Mapping[str, Sequence[Any]]
_MOST_LOSS = 5.0
"""Of a network whose weights grew beyond all bounds."""


def _log_axis(low: float, high: float, count: int) -> list[float]:
    return [float(f"{value:.6g}") for value in np.geomspace(low, high, count)]


SVM: Axes = {
    "c": _log_axis(0.1, 1000.0, 17),
    "gamma": _log_axis(1e-5, 1.0, 16),
    "epsilon": _log_axis(0.01, 1.0, 7),
}
XGBOOST: Axes = {
    "eta": _log_axis(0.01, 1.0, 9),
    "depth": [1, 2, 3, 4, 6, 8],
    "subsample": [0.25, 0.5, 0.75, 1.0],
    "min_child_weight": _log_axis(0.1, 10.0, 3),
    "rounds": [5, 10, 20, 30, 50, 75, 100, 150, 200],
}
NETWORK: Axes = {
    "solver": ["adam", "sgd"],
    "activation": ["relu", "tanh", "logistic"],
    "layers": [1, 2],
    "width": [8, 16, 32, 64, 128],
    "learning_rate": _log_axis(1e-4, 1.0, 9),
    "alpha": _log_axis(1e-4, 1.0, 3),
}


def svm_losses() -> Iterator[float]:
    """Mean squared error of support vector regression, in shares of the variance; three folds."""
    inputs, targets = load_diabetes(return_X_y=True)
    inputs, targets = StandardScaler().fit_transform(inputs), (targets - targets.mean())
    targets = targets / targets.std()
    folds = list(KFold(3, shuffle=True, random_state=0).split(inputs))
    for c, gamma, epsilon in itertools.product(*SVM.values()):
        errors = []
        for train, test in folds:
            model = SVR(C=c, gamma=gamma, epsilon=epsilon, max_iter=20_000)
            model.fit(inputs[train], targets[train])
            errors.append(np.mean((model.predict(inputs[test]) - targets[test]) ** 2))
        yield float(np.mean(errors))


def xgboost_losses() -> Iterator[float]:
    """Log loss of boosted trees; three folds. The last axis is read off one training."""
    inputs, targets = load_breast_cancer(return_X_y=True)
    folds = [
        (
            xgboost.DMatrix(inputs[train], targets[train]),
            xgboost.DMatrix(inputs[test], targets[test]),
        )
        for train, test in KFold(3, shuffle=True, random_state=0).split(inputs)
    ]
    *before, rounds = XGBOOST.values()
    for eta, depth, subsample, weight in itertools.product(*before):
        options = {
            "objective": "binary:logistic", "eval_metric": "logloss", "seed": 0, "nthread": 1,
            "eta": eta, "max_depth": depth, "subsample": subsample, "min_child_weight": weight,
        }  # fmt: skip
        curves = []
        for train, test in folds:
            found: dict[str, Any] = {}
            xgboost.train(
                options, train, rounds[-1], evals=[(test, "test")], evals_result=found,
                verbose_eval=False,
            )  # fmt: skip
            curves.append(found["test"]["logloss"])
        means = np.mean(curves, axis=0)
        yield from (float(means[count - 1]) for count in rounds)


def network_losses() -> Iterator[float]:
    """Log loss of a small network after 15 epochs, on the half of the digits that it has not seen."""
    inputs, targets = load_digits(return_X_y=True)
    inputs, unseen, targets, expected = train_test_split(
        inputs / 16, targets, test_size=0.5, random_state=0, stratify=targets
    )
    for solver, activation, layers, width, rate, alpha in itertools.product(*NETWORK.values()):
        model = MLPClassifier(
            (width,) * layers, activation=activation, solver=solver, alpha=alpha,
            learning_rate_init=rate, max_iter=15, batch_size=64, random_state=0,
        )  # fmt: skip
        try:
            chances = model.fit(inputs, targets).predict_proba(unseen)
            loss = log_loss(expected, chances) if np.isfinite(chances).all() else _MOST_LOSS
        except ValueError:  # weights that are no numbers
            loss = _MOST_LOSS
        yield min(float(loss), _MOST_LOSS)


TABLES: Mapping[str, tuple[Axes, Callable[[], Iterator[float]]]] = {
    "svm": (SVM, svm_losses),
    "xgboost": (XGBOOST, xgboost_losses),
    "network": (NETWORK, network_losses),
}


def main() -> None:
    warnings.simplefilter("ignore")  # of models that have not converged, which is a result
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TABLES:
        axes, losses = TABLES[name]
        document = {
            "made_with": {"scikit-learn": sklearn.__version__, "xgboost": xgboost.__version__},
            "what": (losses.__doc__ or "").strip(),
            "axes": axes,
            "losses": [float(f"{loss:.5g}") for loss in losses()],
        }
        (FOLDER / f"{name}.json").write_text(json.dumps(document) + "\n")
        print(f"{name}: {len(document['losses'])} points, least {min(document['losses'])}")


if __name__ == "__main__":
    main()
