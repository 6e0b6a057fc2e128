"""Handwritten digits with a support vector machine."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC


def main() -> None:
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)
    model = SVC().fit(x_train, y_train)
    print(f"accuracy: {model.score(x_test, y_test):.3f}")


if __name__ == "__main__":
    main()
