"""The contract of recipes, over each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.models.jobs.recipes import RECIPE_NAMES
from cloud_ml.recipes.base import Recipe
from cloud_ml.recipes.choosing import RECIPES
from cloud_ml.testing.recipe import RecipeContract
from support.jobs import spec_of

ALL_ROLES: dict[str, Any] = {
    "evaluator": {},
    "worker": {"count": 2, "memory_limit": "300M", "cpu_limit": "0.5"},
    "chief": {"task_args": "--lead"},
}
OF_THEIR_OWN: dict[str, Any] = {"worker": {"count": 2, "memory_limit": "300M", "cpu_limit": "1.5"}}
WITH_SERVERS: dict[str, Any] = {**ALL_ROLES, "ps": {"count": 2}}


@dataclass(frozen=True)
class Case:
    """A job. With a ``rank`` variable, its workers are counted."""

    recipe: str
    rank: str = ""
    roles: dict[str, Any] = field(default_factory=lambda: ALL_ROLES)


CASES = [
    Case("cluster", roles=WITH_SERVERS),
    Case("dask", roles=OF_THEIR_OWN),
    Case("jax", "JAX_PROCESS_ID"),
    Case("lightgbm"),
    Case("mpi", roles=OF_THEIR_OWN),
    Case("pytorch", "RANK"),
    Case("tensorflow"),
    Case("tensorflow", roles=WITH_SERVERS),
    Case("xgboost", "DMLC_TASK_ID"),
]


WITHOUT_PEERS = {"single", "array"}
"""Recipes whose tasks know no other."""


def test_every_recipe_of_tasks_that_know_each_other_keeps_the_contract() -> None:
    played = {case.recipe for case in CASES}
    assert played == {*RECIPE_NAMES} - WITHOUT_PEERS
    assert played == {*RECIPES} - WITHOUT_PEERS - {"detected"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.recipe}-{len(case.roles)}")
class TestRecipes(RecipeContract):
    @pytest.fixture
    def recipe(self, case: Case) -> Recipe:
        return RECIPES[case.recipe]

    @pytest.fixture
    def workload(self, case: Case) -> WorkloadSpec:
        return spec_of(recipe=case.recipe, cluster_spec=case.roles).workload

    @pytest.fixture
    def rank_variable(self, case: Case) -> str:
        return case.rank


@pytest.mark.parametrize("framework", ["", "keras"])
class TestFoundInTheCode(RecipeContract):
    """Variants of several frameworks: ranks have different names."""

    @pytest.fixture
    def recipe(self) -> Recipe:
        return RECIPES["detected"]

    @pytest.fixture
    def workload(self, framework: str) -> WorkloadSpec:
        return spec_of(cluster_spec=ALL_ROLES, framework=framework).workload

    @pytest.fixture
    def rank_variable(self) -> str:
        return ""
