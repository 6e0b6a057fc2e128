"""When a train job starts again, by its fields."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.restarts import check_memory_growth
from cloud_ml.domain.workloads.exits import ExitAction, ExitRule, RestartPolicy
from cloud_ml.domain.workloads.spec import RetryPolicy
from cloud_ml.errors import InvalidRequest
from support.jobs import spec_of

PEERS: dict[str, Any] = {"worker_count": 2, "recipe": "cluster"}
FAIL: dict[str, Any] = {"action": "fail", "exit_codes": [3]}
GROWS: dict[str, Any] = {"memory_factor": "1.5", "memory_most": "4G"}
AGAIN: dict[str, Any] = {"action": "restart-gang", "exit_codes": [3]}


def policy(**fields: Any) -> RetryPolicy:
    return spec_of(**fields).workload.retry


@pytest.mark.parametrize(
    ("fields", "retries", "name"),
    [
        ({}, 0, "Never"),
        ({"max_retries": 2}, 2, "OnFailure"),
        ({"restart": {"policy": "on-failure"}}, 3, "OnFailure"),
        ({"restart": {"policy": "Always"}, "max_retries": 7}, 7, "Always"),
        ({"restart": {"rules": [FAIL]}}, 0, "Never"),
        ({"restart": GROWS}, 3, "Never"),
        ({"restart": GROWS | {"policy": "Never"}, "max_retries": 9}, 9, "Never"),
        ({"restart": GROWS, "max_retries": 1}, 1, "OnFailure"),
        ({"restart": {"rules": [AGAIN]}}, 3, "Never"),
        (PEERS, 3, "OnFailure"),
        (PEERS | {"max_retries": 0}, 0, "OnFailure"),
        (PEERS | {"max_retries": 5}, 5, "OnFailure"),
        (PEERS | {"restart": {"policy": "Never"}}, 0, "Never"),
        (PEERS | {"restart": {"policy": "exitcode"}}, 3, "ExitCode"),
    ],
)
def test_jobs_of_several_tasks_start_again_by_default(
    fields: dict[str, Any], retries: int, name: str
) -> None:
    found = policy(**fields)
    assert (found.max_retries, found.exits.policy) == (retries, RestartPolicy(name))


def test_rules_are_kept_in_their_order() -> None:
    rules = [{"action": "free", "exit_codes": [75], "roles": ["worker"]}, {"action": "fail"}]
    found = policy(**PEERS, restart={"rules": rules, "healthy_s": 60})
    assert found.exits.rules == (
        ExitRule(ExitAction.FREE, (75,), ("worker",)),
        ExitRule(ExitAction.FAIL),
    )
    assert found.healthy_s == 60.0


def test_a_rule_may_say_retry() -> None:
    found = policy(restart={"rules": [{"action": "retry", "log": "CUDA error"}]})
    assert found.exits.rules == (ExitRule(ExitAction.RESTART_GANG, log="CUDA error"),)


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"restart": {"policy": "Sometimes"}}, "restart.policy", "OnFailure"),
        ({"restart": {"policy": 3}}, "restart.policy", "OnFailure"),
        ({"restart": {"polcy": "Never"}}, "restart.polcy", "policy"),
        ({"restart": "Never"}, "restart", "policy"),
        ({"restart": {"rules": {}}}, "restart.rules", "list"),
        ({"restart": {"rules": [FAIL] * 33}}, "restart.rules", "32"),
        ({"restart": {"rules": ["fail"]}}, "restart.rules[0]", "action"),
        ({"restart": {"rules": [{}]}}, "restart.rules[0].action", "restart-task"),
        ({"restart": {"rules": [{"action": "die"}]}}, "restart.rules[0].action", "retry"),
        (
            {"restart": {"rules": [FAIL | {"exit_codes": [300]}]}},
            "restart.rules[0].exit_codes[0]",
            "255",
        ),
        ({"restart": {"rules": [FAIL | {"exit_codes": 3}]}}, "restart.rules[0].exit_codes", "list"),
        (
            PEERS | {"restart": {"rules": [FAIL, FAIL | {"roles": ["ps"]}]}},
            "restart.rules[1].roles[0]",
            "worker",
        ),
        ({"restart": {"rules": [FAIL | {"log": "a\nb"}]}}, "restart.rules[0].log", "one line"),
        (
            {"restart": {"rules": [FAIL | {"log_pattern": "a" * 1001}]}},
            "restart.rules[0].log_pattern",
            "1 to 1000 characters",
        ),
        ({"restart": {"rules": [FAIL | {"log_pattern": ""}]}}, "restart.rules[0].log_pattern", "1"),
        ({"restart": {"rules": [FAIL | {"log": ""}]}}, "restart.rules[0].log", "1 to 200"),
        ({"restart": {"rules": [FAIL | {"log": ["a"]}]}}, "restart.rules[0].log", "a text"),
        ({"restart": {"healthy_s": 0}}, "restart.healthy_s", "1"),
        ({"restart": {"policy": "Never"}, "max_retries": 3}, "restart.policy", "max_retries"),
        (
            PEERS | {"restart": {"policy": "never"}, "task_retries": 3},
            "restart.policy",
            "task_retries",
        ),
        ({"restart": {"memory_factor": 1}}, "restart.memory_factor", "above 1"),
        ({"restart": {"memory_factor": 0.5}}, "restart.memory_factor", "above 1"),
        ({"restart": {"memory_factor": 17}}, "restart.memory_factor", "at most 16"),
        ({"restart": {"memory_factor": float("nan")}}, "restart.memory_factor", "above 1"),
        ({"restart": {"memory_factor": True}}, "restart.memory_factor", "above 1"),
        ({"restart": {"memory_factor": "half"}}, "restart.memory_factor", "above 1"),
        ({"restart": {"memory_most": "4G"}}, "restart.memory_factor", "above 1"),
        ({"restart": GROWS | {"memory_most": "4"}}, "restart.memory_most", "K, M or G"),
        ({"restart": GROWS, "max_retries": 0}, "max_retries", "leave it out"),
    ],
)
def test_a_bad_policy_is_refused_by_field(fields: dict[str, Any], field: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        policy(**fields)
    assert refused.value.field == field
    assert allowed in (refused.value.allowed or "")


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({}, "restart.memory_factor", "memory_limit"),
        (PEERS, "restart.memory_factor", "memory_limit"),
        ({"memory_limit": "4G"}, "restart.memory_most", "more than 4G"),
        ({"memory_limit": "5G"}, "restart.memory_most", "more than 5G"),
        (
            {
                "recipe": "cluster",
                "cluster_spec": {"a": {"memory_limit": "1G"}, "b": {"memory_limit": "6G"}},
            },
            "restart.memory_most",
            "more than 6G",
        ),
    ],
)
def test_memory_that_could_not_grow_is_refused(
    fields: dict[str, Any], field: str, allowed: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_memory_growth(spec_of(**fields, restart=GROWS).workload)
    assert refused.value.field == field
    assert allowed in (refused.value.allowed or "")


def test_one_role_with_a_limit_is_enough() -> None:
    roles = {"a": {}, "b": {"memory_limit": "1G"}}
    check_memory_growth(spec_of(recipe="cluster", cluster_spec=roles, restart=GROWS).workload)
