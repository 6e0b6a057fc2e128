"""Handwritten digits with boosted trees."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier


def main() -> None:
    x_train, x_test, y_train, y_test = train_test_split(
        *load_digits(return_X_y=True), random_state=0
    )
    model = XGBClassifier(n_estimators=30, max_depth=4).fit(x_train, y_train)
    print(f"accuracy: {model.score(x_test, y_test):.3f}")


if __name__ == "__main__":
    main()
