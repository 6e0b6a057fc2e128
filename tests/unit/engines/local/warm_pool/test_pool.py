"""Which jobs could start from an interpreter that has imported ahead, and which of those wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.engines.gang import EnvironmentPlan, Gang, GangKey, ProcessPlan, TrainerSource
from cloud_ml.engines.local.config import WarmPoolLimits
from cloud_ml.engines.local.warm_pool import interpreter_spec
from cloud_ml.engines.local.warm_pool.pool import InterpreterPool
from cloud_ml.environments.base import Base, Bind, Prepared
from cloud_ml.models import codec

_BASE = Base(
    "/p/bin/python",
    "/p",
    "3.11.7",
    ("/layers/a",),
    (Bind("/layers/a", "/layers/a"),),
    {"PATH": "/env/bin"},
)
_PREPARED = Prepared(
    python="/env/bin/python",
    binds=(),
    environment={},
    runtime="slow 1",
    base_memory=0,
    lock="",
    trainer_digest="",
    threads=("OMP_NUM_THREADS",),
    preload=("slow",),
    own_sites=("/trainers/1/site",),
    base=_BASE,
)
_VARIABLES = {"HOME": "/work", "CLOUDML_GANG": "a.1"}


def _gang(
    *,
    tenant: int = 1,
    name: str = "t.whl",
    network: str = "host",
    prepare: str | None = None,
    **plan: Any,
) -> Gang:
    first = ProcessPlan("master", 0, plan.pop("command", ("python", "-m", "task", "--x")), **plan)
    environment = EnvironmentPlan(TrainerSource("0f" * 32, name), None, None, "task")
    return Gang(
        GangKey("a", 1),
        tenant,
        (first,),
        environment=environment,
        network=network,
        prepare_command=prepare,
    )


def _order(gang: Gang, prepared: Prepared = _PREPARED) -> interpreter_spec.InterpreterSpec:
    found = interpreter_spec.of(gang, prepared, _VARIABLES)
    assert found is not None
    return found


def test_an_order_has_nothing_of_the_job() -> None:
    found = _order(_gang(environment={"CLOUDML_JOB_NAME": "secret"}))
    assert found.environment == {"HOME": "/work", "PATH": "/env/bin"}
    assert found.key == _order(_gang(command=("python", "-m", "other"), environment={})).key
    assert codec.decode(interpreter_spec.InterpreterSpec, codec.encode(found)) == found


@pytest.mark.parametrize(
    "other",
    [
        _order(_gang(tenant=2)),
        _order(_gang(network="none")),
        _order(_gang(cpu_millis=1500)),
        _order(_gang(), replace(_PREPARED, preload=("other",))),
        _order(_gang(), replace(_PREPARED, base=replace(_BASE, sites=("/layers/b",)))),
        _order(_gang(), replace(_PREPARED, base=replace(_BASE, python="/q/bin/python"))),
        _order(
            _gang(),
            replace(_PREPARED, base=replace(_BASE, environment={"PATH": "/env/bin", "TF_X": "1"})),
        ),
    ],
    ids=["tenant", "network", "threads", "modules", "layers", "interpreter", "variables"],
)
def test_orders_differ_by_what_an_import_could_see(other: interpreter_spec.InterpreterSpec) -> None:
    assert other.key != _order(_gang()).key


@pytest.mark.parametrize(
    "gang",
    [
        _gang(environment={"EPOCHS": "3"}),
        _gang(prepare="pip install x"),
        _gang(command=("sh", "-c", "true")),
        replace(_gang(), processes=_gang().processes * 2),
    ],
    ids=["variables of its own", "a prepare command", "no module", "two processes"],
)
def test_who_has_no_order_starts_the_ordinary_way(gang: Gang) -> None:
    assert interpreter_spec.of(gang, _PREPARED, _VARIABLES) is None


def test_a_runtime_that_does_not_ask_for_it_has_none() -> None:
    assert interpreter_spec.of(_gang(), replace(_PREPARED, preload=()), _VARIABLES) is None


@pytest.mark.parametrize(
    ("entry", "hides"),
    [("slow.py", True), ("slow", True), ("slow.cpython-311-x86_64-linux-gnu.so", True), ("sitecustomize.py", True),
     ("a.pth", True), ("task.py", False), ("slower.py", False)],
)  # fmt: skip
@pytest.mark.parametrize("place", ["site", "work"])
def test_what_hides_an_import_is_found(tmp_path: Path, entry: str, hides: bool, place: str) -> None:
    for name in ("site", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / place / entry).touch()
    found = interpreter_spec.find_shadowed(
        ["slow", "json"], [str(tmp_path / "site"), str(tmp_path / "work")]
    )
    assert found == (entry if hides else "")


def test_a_link_that_a_job_has_left_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        interpreter_spec.find_shadowed(["slow"], [str(tmp_path / "link")])


@dataclass
class _Waiting:
    interpreter_key: str
    ready: bool = True


def _expect(
    pool: InterpreterPool, gang: Gang, *, could: bool = True
) -> interpreter_spec.InterpreterSpec:
    found = _order(gang)
    pool.expect(
        {"hint": interpreter_spec.hint(gang), "order": codec.encode(found) if could else None}
    )
    return found


def test_what_was_asked_for_last_is_wanted_first() -> None:
    pool = InterpreterPool(WarmPoolLimits(most=2))
    first, second, third = (_expect(pool, _gang(tenant=tenant)) for tenant in (1, 2, 3))
    assert pool.missing_interpreter([]) == third
    assert pool.missing_interpreter([third.key]) == second
    assert pool.missing_interpreter([third.key, second.key]) is None  # no more than may wait
    assert pool.outdated([_Waiting(first.key), _Waiting(second.key)]) == [_Waiting(first.key)]


def test_a_gang_gets_one_that_is_ready_and_of_its_kind() -> None:
    pool = InterpreterPool(WarmPoolLimits(most=2))
    gang = _gang()
    key = _expect(pool, gang).key
    assert pool.choose(gang, [_Waiting("other"), _Waiting(key, ready=False)]) is None
    assert pool.choose(gang, [_Waiting(key)]) == _Waiting(key)
    assert pool.choose(_gang(tenant=2), [_Waiting(key)]) is None
    assert pool.choose(_gang(name="u.whl"), [_Waiting(key)]) is None
    _expect(pool, gang, could=False)
    assert pool.choose(gang, [_Waiting(key)]) is None


def test_none_waits_for_ever() -> None:
    pool = InterpreterPool(WarmPoolLimits(most=2, idle_s=0.0))
    key = _expect(pool, _gang()).key
    assert pool.wait_left([key]) == 0.0
    assert pool.outdated([_Waiting(key)]) == [_Waiting(key)]
    assert pool.missing_interpreter([]) is None


def test_one_that_failed_is_not_tried_again_soon() -> None:
    pool = InterpreterPool(WarmPoolLimits(most=2))
    key = _expect(pool, _gang()).key
    pool.failed(key)
    assert _expect(pool, _gang()).key == key
    assert pool.missing_interpreter([]) is None
