"""A process of the platform is killed at every failpoint there is: what was promised holds at each.

``ROWS`` says for each point what is going on when it is passed. A point without a row fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml import failpoints
from faults.scenes import SLICE, Day, Reviver, fragile, order, reached
from support.server import RealServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("failpoints")]

WORKING = (
    "state.commit",
    "controller",
    "metrics",
    "collector",
    "outputs",
    "packages",
    "ledger",
    "spawner",
    "supervisor",
    "objects",
)
"""Points passed by a day's work. The others have tests of their own in
``test_failpoints_of_a_start``.
"""
FIRST = dict.fromkeys(("spawner.bury.before", "spawner.bury.after"), "supervisor.start.after")
"""Points that are only passed when somebody has died before, and where."""
ELSEWHERE = ("standby", "task_restart", "checkpoints", "study")
"""Points with tests in ``tests/integration/engine``, ``test_requested_restarts``,
``test_kept_checkpoints`` and ``test_studies``.
"""
STARTING = ("sealing", "state.create", "state.migrate", "state.backup", "state.restore", "start")


def rows(*groups: str) -> list[str]:
    return [
        point
        for point in failpoints.POINTS
        if point.startswith(tuple(f"{group}." for group in groups))
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with fragile(tmp_path_factory.mktemp("fragile")) as server:
        yield server


def test_every_point_has_a_row_and_every_call_names_a_point() -> None:
    assert sorted(rows(*WORKING, *STARTING, *ELSEWHERE)) == sorted(failpoints.POINTS)
    sources = Path(failpoints.__file__).parent.rglob("*.py")
    named = [
        name
        for source in sources
        for name in re.findall(r'failpoints\.here\("([^"]*)"\)', source.read_text())
    ]
    assert sorted(set(named)) == sorted(failpoints.POINTS)


@pytest.mark.parametrize("point", rows(*WORKING)[::SLICE])
def test_killed_at(point: str, server: RealServer, tmp_path: Path) -> None:
    day = Day(server, tmp_path, point.replace(".", "-"))
    order(server, point)
    if point in FIRST:
        order(server, FIRST[point])
    with Reviver(server):
        day.work()
    assert reached(server, point) is not None, "nobody passed"
    assert day.wrong == []
