"""A run of a list is what the run by itself is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.tracking.runs import LastValue, RunRow, RunState
from cloud_ml.models import codec
from cloud_ml.usecases.tracking.runs import LoggedRun
from cloud_ml.usecases.tracking.views import run_document, run_view

_NAMES = st.sampled_from(["loss", "acc", "opt", "ä"])
_TIMES = st.integers(0, 10**15)
_ROWS = st.builds(
    RunRow,
    number=st.just(1),
    uid=st.just("f" * 32),
    org=st.just("red"),
    is_job=st.booleans(),
    name=_NAMES,
    experiment=st.sampled_from(["0", "7"]),
    user=st.just("ann"),
    state=st.sampled_from(RunState),
    start=_TIMES,
    end=st.none() | _TIMES,
)
_VALUES = st.lists(st.builds(LastValue, _NAMES, st.floats(), st.just(1), st.just(2)), max_size=4)
_PAIRS = st.dictionaries(_NAMES, st.text(max_size=3), max_size=3)
_RUNS = st.builds(LoggedRun, _ROWS, _VALUES, _PAIRS, _PAIRS)


@given(_RUNS, st.none() | st.sets(_NAMES))
def test_a_document_of_a_run_is_its_view_in_json(run: LoggedRun, columns: set[str] | None) -> None:
    known = {"7": "digits"}
    assert run_document(run, known, columns) == codec.encode(run_view(run, known, columns))
