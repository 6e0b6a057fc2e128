"""Experiments, and who hears of their changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cloud_ml.domain.tracking.runs import (
    Experiment,
)
from cloud_ml.errors import AlreadyExists, NotFound, QuotaExceeded
from cloud_ml.state.base import StateStore
from cloud_ml.state.tracking_rules import MOST_EXPERIMENT_CHARACTERS


class ExperimentContract:
    """Experiments have names of their own, bounds, and a feed of changes."""

    def test_experiments(self, store: StateStore) -> None:
        tracking = store.tracking
        one = tracking.add_experiment(
            Experiment("1", "red", "digits", 1, 1, tags={"a": "b"}), most=2, once=None
        )
        tracking.add_experiment(Experiment("1", "blue", "digits"), most=2, once=None)
        for taken in (Experiment("1", "red", "new"), Experiment("2", "red", "digits")):
            with pytest.raises(AlreadyExists):
                tracking.add_experiment(taken, most=9, once=None)
        two = tracking.add_experiment(Experiment("2", "red", "letters", 2, 2), most=2, once=None)
        with pytest.raises(QuotaExceeded):
            tracking.add_experiment(Experiment("3", "red", "more"), most=2, once=None)
        assert tracking.experiments("red") == [two, one]
        assert tracking.find_experiment("red", "digits") == one
        assert tracking.experiment("red", "1") == one
        assert tracking.experiment("green", "1") is None
        with pytest.raises(AlreadyExists):
            tracking.change_experiment(
                "red", "2", lambda before: replace(before, name="digits"), once=None
            )
        with pytest.raises(NotFound):
            tracking.change_experiment("red", "9", lambda before: before, once=None)
        gone = Experiment("2", "red", "words", 2, 3, deleted=True, tags={"x": "y"})
        changed = tracking.change_experiment("red", "2", lambda _before: gone, once=None)
        assert tracking.experiment("red", "2") == changed
        assert replace(changed, revision=0) == gone
        assert tracking.experiment("red", "0") is None
        tracking.change_experiment("red", "0", lambda one: replace(one, updated=7), once=None)
        assert tracking.experiment("red", "0") == Experiment("0", "red", "Default", updated=7)
        tracking.forget_experiments("red")
        assert tracking.experiments("red") == []
        assert [one.name for one in tracking.experiments("blue")] == ["digits"]

    def test_followers_are_told_of_changes_of_experiments(self, store: StateStore) -> None:
        tracking, heard = store.tracking, list[int]()
        store.subscribe(lambda: heard.append(store.revision()))
        at = store.revision()
        one = tracking.add_experiment(Experiment("1", "red", "digits"), most=9, once=None)
        assert one.revision == store.revision() == heard[-1] > at
        other = tracking.add_experiment(Experiment("1", "blue", "digits"), most=9, once=None)
        assert list(tracking.experiment_changes(at, limit=9)) == [one, other]
        assert list(tracking.experiment_changes(at, limit=1)) == [one]
        assert list(tracking.experiment_changes(one.revision, limit=9)) == [other]
        changes: list[Callable[[Experiment], Experiment]] = [
            lambda before: replace(before, name="letters"),
            lambda before: replace(before, tags={"a": "b"}),
            lambda before: replace(before, deleted=True),
            lambda before: replace(before, deleted=False),
        ]
        for change in changes:
            before = store.revision()
            one = tracking.change_experiment("red", "1", change, once=None)
            assert list(tracking.experiment_changes(before, limit=9)) == [one]
            assert one.revision == store.revision() == heard[-1] > before
        assert list(tracking.experiment_changes(at, limit=9)) == [other, one]
        assert list(tracking.experiment_changes(at, org="red", limit=9)) == [one]
        assert list(tracking.experiment_changes(at, org="blue", id_="1", limit=9)) == [other]
        assert list(tracking.experiment_changes(at, org="red", id_="2", limit=9)) == []
        assert list(tracking.experiment_changes(one.revision, org="red", id_="1", limit=9)) == []
        assert store.changes(at) == ()  # the feed of records has records only

    def test_what_leaves_an_experiment_as_it_was_is_not_told(self, store: StateStore) -> None:
        tracking = store.tracking
        one = tracking.add_experiment(
            Experiment("1", "red", "digits", tags={"a": "b"}), most=9, once=None
        )
        same = tracking.change_experiment(
            "red", "1", lambda before: replace(before, updated=7, tags={"a": "b"}), once=None
        )
        default = tracking.change_experiment(
            "red", "0", lambda before: replace(before, updated=7), once=None
        )
        with pytest.raises(AlreadyExists):
            tracking.add_experiment(Experiment("2", "red", "digits"), most=9, once=None)
        assert (same.revision, same.updated, default.revision) == (one.revision, 7, 0)
        assert store.revision() == one.revision

    def test_tags_of_all_experiments_are_bounded_together(self, store: StateStore) -> None:
        tracking = store.tracking
        half = {"t": "x" * (MOST_EXPERIMENT_CHARACTERS // 2)}
        tracking.add_experiment(Experiment("1", "red", "one", tags=half), most=9, once=None)
        tracking.add_experiment(Experiment("1", "blue", "one", tags=half), most=9, once=None)
        more = Experiment("2", "red", "two", tags=half)
        with pytest.raises(QuotaExceeded):
            tracking.add_experiment(more, most=9, once=None)
        tracking.add_experiment(replace(more, tags={}), most=9, once=None)
        with pytest.raises(QuotaExceeded):
            tracking.change_experiment("red", "2", lambda _before: more, once=None)
        tracking.change_experiment("red", "1", lambda one: replace(one, tags={}), once=None)
        tracking.change_experiment("red", "2", lambda _before: more, once=None)
