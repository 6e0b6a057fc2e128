"""Searches for runs: filters, order, pages."""

from __future__ import annotations

import math

import pytest

from cloud_ml.domain.tracking.filters import Subject, parse_filter, parse_order
from cloud_ml.domain.tracking.runs import (
    RunChange,
    RunState,
    View,
)
from cloud_ml.errors import InvalidRequest
from cloud_ml.state.base import StateStore
from cloud_ml.state.tracking import RunSearch
from cloud_ml.testing.state.tracking.samples import add_run, data_set, found, log


class RunSearchContract:
    """Runs are found by what was logged to them."""

    @pytest.fixture
    def searched(self, store: StateStore) -> StateStore:
        """A store with three runs of one organisation and one of another."""
        first = add_run(store, "first", params={"lr": "0.1", "opt": "adam"}, start=1000)
        second = add_run(
            store, "second", params={"lr": "0.2"}, tags={"a b": "Say 50% [x]*?"}, start=3000
        )
        third = add_run(store, "third", experiment="7", start=2000)
        foreign = add_run(store, "foreign", org="blue", params={"lr": "0.1"})
        log(store, first, metrics={"loss": 0.5, "bad": math.nan})
        log(store, second, metrics={"loss": 0.25, "acc": math.inf})
        log(store, foreign, metrics={"loss": 0.5})
        store.tracking.change_run(second, RunChange(state=RunState.FINISHED, end=5000))
        store.tracking.change_run(third, RunChange(state=RunState.FAILED))
        store.tracking.change_run(
            first,
            RunChange(
                more_inputs=[
                    {"model_input": {"model_id": "m-1"}},
                    data_set("digits", "0a1b", context="train"),
                    data_set("it's \\ 50%", "ffff", context="test"),
                ]
            ),
        )
        store.tracking.change_run(third, RunChange(more_inputs=[data_set("Digits", "0a1b")]))
        return store

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("", "third second first"),
            ("metrics.loss < 0.5", "second"),
            ("metrics.loss <= 0.5", "second first"),
            ("metrics.loss != 0.5", "second"),
            ("metrics.bad > -1", ""),
            ("metrics.bad IS NULL", "third second"),
            ("metrics.bad IS NOT NULL", "first"),
            ("metrics.loss IS NOT NULL", "second first"),
            ("metrics.acc > 1e300", "second"),
            ("params.lr = '0.1'", "first"),
            ("params.lr = '0.1' AND params.opt = 'adam' AND metrics.loss = 0.5", "first"),
            ("params.opt = 'adam' AND params.lr != '0.2'", "first"),
            ("params.lr != '0.1'", "second"),
            ("params.lr IN ('0.1', '0.2')", "second first"),
            ("params.lr NOT IN ('0.1')", "second"),
            ("params.lr IS NULL", "third"),
            ("params.opt LIKE 'a%'", "first"),
            ("params.opt LIKE 'A%'", ""),
            ("params.opt ILIKE 'A%'", "first"),
            ("params.opt LIKE '_dam'", "first"),
            ("params.opt LIKE 'dam'", ""),
            ("params.opt LIKE '%d%m%'", "first"),
            ('tags.`a b` = "Say 50% [x]*?"', "second"),
            ("tags.\"a b\" LIKE '%[x]*?'", "second"),
            ("tags.`a b` LIKE '%[y]%'", ""),
            ("tags.`a b` ILIKE '%say%\\'", ""),
            ("attributes.status = 'FINISHED'", "second"),
            ("attributes.status = 'finished'", "second"),
            ("attributes.status IN ('finished')", "second"),
            ("status != 'FINISHED'", "third first"),
            ("status IN ('FAILED', 'RUNNING')", "third first"),
            ("attr.run_name LIKE '%ir%'", "third first"),
            ("start_time > 1000", "third second"),
            ("end_time >= 5000", "second"),
            ("end_time IS NULL", "third first"),
            ("user_id = 'ann'", "third second first"),
            ("artifact_uri LIKE 'mlflow-artifacts:/%/artifacts'", "third second first"),
            ("run_id = 'nothing'", ""),
            ("params.lr = '0.1'' OR 1=1 --'", ""),
            ("dataset.name = 'digits'", "first"),
            ("datasets.name ILIKE 'digits'", "third first"),
            ("dataset.digest IN ('0a1b')", "third first"),
            ("dataset.name != 'digits'", "third first"),
            ("dataset.name LIKE '%''s \\ 50_'", "first"),
            ("dataset.context = 'train'", "first"),
            ("dataset.context NOT IN ('train')", "first"),
            ("dataset.context = 'test' AND dataset.name = 'digits' AND params.lr = '0.1'", "first"),
            ("dataset.context = 'other'", ""),
        ],
    )
    def test_a_filter_finds(self, searched: StateStore, text: str, names: str) -> None:
        assert found(searched, text) == names.split()

    @pytest.mark.parametrize(
        ("order", "names"),
        [
            ("metrics.loss", "second first third"),
            ("metrics.loss DESC", "first second third"),
            ("params.lr DESC", "second first third"),
            ("tags.`a b`", "second third first"),
            ("start_time ASC", "first third second"),
            ("end_time", "second third first"),
            ("status", "third second first"),
            ("attributes.run_name DESC", "third second first"),
        ],
    )
    def test_runs_come_in_the_order_that_is_asked_for(
        self, searched: StateStore, order: str, names: str
    ) -> None:
        assert found(searched, "", order) == names.split()

    def test_experiments_and_views_narrow_a_search(self, searched: StateStore) -> None:
        assert found(searched, experiments=["7"]) == ["third"]
        assert found(searched, experiments=["7", "0"]) == ["third", "second", "first"]
        assert found(searched, experiments=[]) == []
        (third,) = searched.tracking.search(RunSearch("red", ["7"])).items
        searched.tracking.change_run(third.uid, RunChange(deleted=True))
        assert found(searched) == ["second", "first"]
        assert found(searched, view=View.DELETED) == ["third"]
        assert found(searched, view=View.ALL, experiments=["7"]) == ["third"]
        searched.tracking.change_run(third.uid, RunChange(deleted=False))
        assert found(searched, experiments=["7"]) == ["third"]

    @pytest.mark.parametrize("order", [(), ("start_time",)])
    def test_pages_follow_each_other(self, store: StateStore, order: tuple[str, ...]) -> None:
        for number in range(5):
            add_run(store, f"run{number}", start=number)
        names, after = [], None
        for _ in range(3):
            run_search = RunSearch("red", order=parse_order(order), after=after, limit=2)
            page = store.tracking.search(run_search)
            names += [run.name for run in page.items]
            after = page.next
        expected = [f"run{number}" for number in range(5)]
        assert names == (expected if order else expected[::-1])
        assert after is None

    def test_long_and_odd_texts_are_found(self, store: StateStore) -> None:
        long, odd = "é" * 6000, "it's \\ 100%"
        add_run(store, "long", params={"text": long, "odd": odd})
        assert found(store, f"params.text = '{long}'") == ["long"]
        assert found(store, f"params.text = '{long[:-1]}'") == []
        assert found(store, 'params.odd = "it\'s \\ 100%"') == ["long"]
        assert found(store, "params.odd LIKE '%\\ 100_'") == ["long"]
        assert found(store, "params.odd ILIKE 'IT%\\ 100_'") == ["long"]

    def test_a_filter_of_experiments_has_its_own_attributes(self) -> None:
        with pytest.raises(InvalidRequest, match="creation_time"):
            parse_filter("start_time > 1", Subject.EXPERIMENTS)
