"""Which recipes keep the ports of their tasks over attempts."""

from __future__ import annotations

import pytest

from cloud_ml.recipes.choosing import RECIPES


def test_recipes_whose_frameworks_can_listen_again_keep_their_ports() -> None:
    keeping = {name for name, recipe in RECIPES.items() if recipe.keeps_ports("python 3.12")}
    assert keeping == {"dask", "jax", "pytorch", "tensorflow"}


@pytest.mark.parametrize(
    ("runtime", "keeps"),
    [
        ("tensorflow 2.21", True),
        ("pytorch 2.13", True),
        ("jax 0.8", True),
        ("keras 3-torch", True),
        ("xgboost 3.1", False),
        ("lightgbm 4.6", False),
        ("python 3.12", False),
        ("", False),  # it ended before the code was looked at
    ],
)
def test_without_a_recipe_the_framework_that_was_found_decides(runtime: str, keeps: bool) -> None:
    assert RECIPES["detected"].keeps_ports(runtime) is keeps
