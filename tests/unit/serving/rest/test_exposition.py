from __future__ import annotations

import pytest

from cloud_ml.serving.call_metrics import Histogram
from cloud_ml.serving.rest.exposition import Exposition, Series, wants_openmetrics


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("Application/OpenMetrics-Text;version=\"1.0.0\"", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        ("application/openmetrics-text;q=-1", False),
        ("application/openmetrics-text;q=0.4,text/plain;version=0.0.4;q=0.5", False),
        # as Prometheus 2 and 3 ask
        ("application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2", True),
    ],
)  # fmt: skip
def test_the_format_is_the_one_that_the_scraper_prefers(accept: str, expected: bool) -> None:
    assert wants_openmetrics(accept) == expected


def test_histograms_that_counted_nothing_are_left_out_and_the_others_are_whole() -> None:
    quiet, used = Histogram((1.0, 2.5, 5.0)), Histogram((1.0, 2.5, 5.0))
    used.add(2.0, 3)
    series = [Series({"model": "quiet"}, quiet), Series({"model": "used"}, used)]
    lines = list(Exposition(openmetrics=False).histogram("rows", "Rows.", series))
    assert lines == [
        "# HELP rows Rows.",
        "# TYPE rows histogram",
        'rows_bucket{model="used",le="1"} 0',
        'rows_bucket{model="used",le="2.5"} 3',
        'rows_bucket{model="used",le="5"} 3',
        'rows_bucket{model="used",le="+Inf"} 3',
        'rows_sum{model="used"} 6.0',
        'rows_count{model="used"} 3',
    ]


def test_openmetrics_names_families_and_bounds_in_its_own_way() -> None:
    exposition = Exposition(openmetrics=True)
    assert list(exposition.counter("calls_total", "Calls.", [({"a": 'x"\n'}, 3)])) == [
        "# HELP calls Calls.", "# TYPE calls counter", 'calls_total{a="x\\"\\n"} 3',
    ]  # fmt: skip
    assert list(exposition.counter("calls", "Calls.", [({}, 3)]))[1] == "# TYPE calls unknown"
    seen = Histogram((1.0, 2.5))
    seen.add(1.0)
    assert (
        list(exposition.histogram("rows", "Rows.", [Series({}, seen)]))[2]
        == 'rows_bucket{le="1.0"} 1'
    )
    assert list(exposition.end()) == ["# EOF"]
    assert list(Exposition(openmetrics=False).end()) == []
