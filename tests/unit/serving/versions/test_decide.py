"""What happens next with the versions of a model: tables of what is wanted, what is, and the
steps.
"""

from __future__ import annotations

import pytest

from cloud_ml.serving.versions.decide import Phase, State, Steps, decide, labels

READY, LOADING, START = State(Phase.AVAILABLE, "a"), State(Phase.LOADING, "a"), State(Phase.START)
ENDED = State(Phase.END, "a")
NOW = 100.0


def broken(retry_at: float | None) -> State:
    return State(Phase.END, "a", failed=True, retry_at=retry_at)


@pytest.mark.parametrize(
    ("desired", "versions", "steps"),
    [
        ({1: "a"}, {}, Steps(load=(1,))),
        ({1: "a", 2: "a", 3: "a"}, {}, Steps(load=(3, 2), queue=(1,))),
        ({1: "a"}, {1: START}, Steps(load=(1,))),
        ({1: "a"}, {1: LOADING}, Steps()),
        ({1: "a"}, {1: READY}, Steps()),
        ({1: "a"}, {1: ENDED}, Steps(load=(1,))),
        ({2: "a"}, {1: READY}, Steps(load=(2,))),
        ({2: "a"}, {1: READY, 2: LOADING}, Steps()),
        ({2: "a"}, {1: READY, 2: READY}, Steps(leave=(1,))),
        ({2: "a"}, {1: READY, 2: broken(None)}, Steps()),
        ({2: "a"}, {2: broken(NOW + 5)}, Steps(again_at=NOW + 5)),
        ({2: "a"}, {2: broken(NOW)}, Steps(load=(2,))),
        ({2: "b"}, {2: broken(None)}, Steps(load=(2,))),
        ({2: "a"}, {1: START, 2: READY}, Steps(end=(1,))),
        ({2: "a"}, {2: State(Phase.UNLOADING, "a")}, Steps()),
        ({2: "b"}, {2: State(Phase.AVAILABLE, "a", stale=True)}, Steps(load=(2,))),
        ({}, {1: READY}, Steps()),
    ],
)
def test_new_versions_come_first_and_broken_ones_take_nothing_away(
    desired: dict[int, str], versions: dict[int, State], steps: Steps
) -> None:
    assert decide(desired, versions, NOW, 2) == steps


def test_a_model_that_is_gone_leaves_whatever_comes_after_it() -> None:
    assert decide({}, {1: READY, 2: LOADING, 3: START}, NOW, 2, gone=True) == Steps(
        leave=(1,), end=(3,)
    )


def test_nothing_begins_without_a_slot() -> None:
    assert decide({1: "a"}, {}, NOW, 0) == Steps(queue=(1,))


@pytest.mark.parametrize(
    ("desired", "current", "ready", "allow", "named"),
    [
        ({"stable": 1}, {}, {1}, False, {"stable": 1}),
        ({"stable": 2}, {"stable": 1}, {1}, False, {"stable": 1}),
        ({"stable": 2}, {"stable": 1}, {1, 2}, False, {"stable": 2}),
        ({"stable": 2}, {"stable": 1}, {3}, False, {}),
        ({"stable": 2}, {}, {1}, False, {}),
        ({"stable": 2}, {}, {1}, True, {"stable": 2}),
        ({"stable": 2}, {"stable": 1}, {1}, True, {"stable": 1}),
        ({}, {"stable": 1}, {1}, False, {}),
    ],
)
def test_a_label_moves_when_its_version_answers(
    desired: dict[str, int],
    current: dict[str, int],
    ready: set[int],
    allow: bool,
    named: dict[str, int],
) -> None:
    assert labels(desired, current, ready, allow_unavailable=allow) == named
