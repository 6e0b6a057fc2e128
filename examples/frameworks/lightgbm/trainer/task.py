"""Handwritten digits with boosted trees."""

from lightgbm import LGBMClassifier
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    x_train, x_test, y_train, y_test = train_test_split(
        *load_digits(return_X_y=True), random_state=0
    )
    model = LGBMClassifier(n_estimators=30, verbose=-1).fit(x_train, y_train)
    print(f"accuracy: {(model.predict(x_test) == y_test).mean():.3f}")


if __name__ == "__main__":
    main()
