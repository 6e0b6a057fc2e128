"""The recipes by their names. Which one a job has is said by ``domain.jobs.roles.recipe_of``."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.recipes.array import Array
from cloud_ml.recipes.base import Recipe
from cloud_ml.recipes.cluster import Cluster
from cloud_ml.recipes.dask import Dask
from cloud_ml.recipes.detected import Detected
from cloud_ml.recipes.jax import Jax
from cloud_ml.recipes.lightgbm import LightGBM
from cloud_ml.recipes.mpi import Mpi
from cloud_ml.recipes.pytorch import PyTorch
from cloud_ml.recipes.single import SingleProcess
from cloud_ml.recipes.tensorflow import TensorFlow
from cloud_ml.recipes.xgboost import XGBoost

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        SingleProcess(),
        Array(),
        Cluster(),
        Dask(),
        Detected(),
        Jax(),
        LightGBM(),
        Mpi(),
        PyTorch(),
        TensorFlow(),
        XGBoost(),
    )
}
