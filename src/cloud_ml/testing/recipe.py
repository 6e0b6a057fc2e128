"""The contract of a recipe as a test class. Subclass it and provide its fixtures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import Gang, GangKey, TrainerSource, Variant
from cloud_ml.models import codec
from cloud_ml.recipes.base import PlanContext, Recipe

_FIRST_PORT = 20_000
_COUNT = "TORCHELASTIC_RESTART_COUNT"
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")


class RecipeContract:
    """What every recipe of jobs of several tasks promises.

    Fixtures to provide: ``recipe``, ``workload`` (that it takes) and ``rank_variable``: the name of
    the variable that has a worker's rank, empty if the framework knows no ranks.
    """

    def test_every_task_is_a_process(self, recipe: Recipe, workload: WorkloadSpec) -> None:
        recipe.check(workload)
        for gang in _gangs(recipe, workload):
            assert tuple(plan.name for plan in gang.processes) == workload.tasks
            for plan in gang.processes:
                role = next(role for role in workload.roles if role.name == plan.role)
                assert plan.memory_bytes == role.resources.memory_bytes
                assert plan.cpu_millis == role.resources.cpu_millis

    def test_every_task_knows_itself_and_where_the_others_are(
        self, recipe: Recipe, workload: WorkloadSpec
    ) -> None:
        hosts = {name: f"host-of-{name}" for name in workload.tasks}
        for gang in _gangs(recipe, workload, hosts):
            ports = {plan.name: plan.ports for plan in gang.processes}
            given = [port for each in ports.values() for port in each]
            assert len(set(given)) == len(given) == workload.port_count
            for plan in gang.processes:
                environment = plan.environment
                assert (environment["CLOUDML_ROLE"], environment["CLOUDML_INDEX"]) == (
                    plan.role,
                    str(plan.index),
                )
                assert environment["CLOUDML_TASK_RESTART"] == "0"
                assert int(environment["CLOUDML_PORT"]) in plan.ports
                for role, addresses in json.loads(environment["CLOUDML_CLUSTER"]).items():
                    for index, address in enumerate(addresses):
                        name = f"{role}-{index}"
                        assert address == f"{hosts[name]}:{ports[name][0]}"

    def test_names_come_before_addresses(self, recipe: Recipe, workload: WorkloadSpec) -> None:
        for gang in _gangs(recipe, workload):
            for plan in gang.processes:
                texts = (*plan.command, *plan.environment.values())
                assert [text for text in texts if _ADDRESS.search(text)] == []

    def test_ranks_are_complete(
        self, recipe: Recipe, workload: WorkloadSpec, rank_variable: str
    ) -> None:
        for gang in _gangs(recipe, workload):
            found = [plan.environment.get(rank_variable) for plan in gang.processes]
            ranks = [int(rank) for rank in found if rank is not None]
            assert ranks == list(range(len(ranks)))
            assert bool(ranks) is bool(rank_variable)

    def test_it_waits_for_tasks_that_there_are(
        self, recipe: Recipe, workload: WorkloadSpec
    ) -> None:
        for gang in _gangs(recipe, workload):
            assert gang.completes
            assert set(gang.completes) <= set(workload.tasks)
            assert set(gang.restarts.tasks) <= set(workload.tasks)
            assert set(gang.stopped_last) < set(workload.tasks)
            assert not any(name.startswith(("ps-", "evaluator-")) for name in gang.completes)

    def test_the_same_job_has_the_same_plan(self, recipe: Recipe, workload: WorkloadSpec) -> None:
        first = recipe.plan(workload, _context(workload))
        assert recipe.plan(workload, _context(workload)) == first
        again = _context(workload)
        again = replace(again, key=replace(again.key, attempt=again.key.attempt + 1))
        second = recipe.plan(workload, again)
        assert [plan.name for plan in second.processes] == [plan.name for plan in first.processes]
        assert _without_count(second) == _without_count(first)

    def test_the_variables_of_the_user_win(self, recipe: Recipe, workload: WorkloadSpec) -> None:
        names = {name for gang in _gangs(recipe, workload) for name in _variables(gang)}
        own = dict.fromkeys(sorted(names), "mine")
        changed = replace(workload, program=replace(workload.program, variables=own))
        for gang in _gangs(recipe, changed):
            for plan in gang.processes:
                assert plan.environment == own

    def test_an_engine_can_keep_the_plan(self, recipe: Recipe, workload: WorkloadSpec) -> None:
        gang = recipe.plan(workload, _context(workload))
        assert codec.decode(Gang, json.loads(json.dumps(codec.encode(gang)))) == gang


def _variables(gang: Gang) -> Iterator[str]:
    for plan in gang.processes:
        yield from plan.environment


def _without_count(gang: Gang) -> list[Variant]:
    """The variants without the variable that counts attempts."""
    return [
        replace(
            variant,
            environments={
                name: {key: value for key, value in variables.items() if key != _COUNT}
                for name, variables in variant.environments.items()
            },
        )
        for variant in gang.variants
    ]


def _context(workload: WorkloadSpec, hosts: Mapping[str, str] | None = None) -> PlanContext:
    tasks = workload.tasks
    return PlanContext(
        key=GangKey("u1", 1),
        org="default",
        tenant=7,
        job_name="linear",
        places=JobPaths("/storage", "/fds", hosts or {name: name for name in tasks}),
        mounts=(),
        trainer=TrainerSource("0f" * 32, "t.tar.gz"),
        network="tenant",
        ports=tuple(range(_FIRST_PORT, _FIRST_PORT + workload.port_count)),
    )


def _gangs(
    recipe: Recipe, workload: WorkloadSpec, hosts: Mapping[str, str] | None = None
) -> Iterator[Gang]:
    """The gang in each of its variants."""
    gang = recipe.plan(workload, _context(workload, hosts))
    if not gang.variants:
        yield gang
    for one in gang.variants:
        found = replace(gang, variants=(one,)).for_runtime(f"{one.framework} {one.version}")
        if found is None:
            pytest.fail(f"the variant does not fit its own runtime: {one}")
        yield found
