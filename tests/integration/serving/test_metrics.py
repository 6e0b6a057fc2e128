"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import grpc
import pytest

from integration.serving.test_rest import PREDICT, ask
from support.serving import Running, model_server, predict, predict_request, save_linear

LINE = re.compile(r'(# (HELP|TYPE) .+|:?[a-z_:]+(\{([a-z_]+="[^"]*",?)+\})? [0-9.e+-]+)')
LABELS = 'model="linear",version="1",signature="serving_default"'


def metrics(running: Running, path: str = "/metrics") -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}{path}", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode().splitlines()


def test_requests_of_every_protocol_are_counted_by_how_they_were_answered(tmp_path: Path) -> None:
    save_linear(tmp_path / "1")
    with model_server("--model_name", "linear", "--model_base_path", str(tmp_path)) as running:
        for _ in range(3):
            ask(running, "POST", PREDICT, {"instances": [1, 2, 3]})
        ask(running, "POST", PREDICT, {"instances": ["a"]})
        ask(running, "POST", "/v1/models/other:predict", {"instances": [1]})
        with running.channel() as channel:
            for _ in range(2):
                predict(channel, predict_request(x=[1.0]))
            with pytest.raises(grpc.RpcError):
                predict(channel, predict_request("other", x=[1.0]))
        lines = metrics(running)
        assert [line for line in lines if not LINE.fullmatch(line)] == []
        for line in (
            f'cloudml_serving_requests_total{{{LABELS},protocol="http",code="OK"}} 3',
            f'cloudml_serving_requests_total{{{LABELS},protocol="grpc",code="OK"}} 2',
            'cloudml_serving_refused_total{protocol="http",code="INVALID_ARGUMENT"} 1',
            'cloudml_serving_refused_total{protocol="http",code="NOT_FOUND"} 1',
            'cloudml_serving_refused_total{protocol="grpc",code="NOT_FOUND"} 1',
            f'cloudml_serving_batch_rows_bucket{{{LABELS},le="1"}} 2',
            f'cloudml_serving_batch_rows_bucket{{{LABELS},le="4"}} 5',
            f"cloudml_serving_batch_rows_sum{{{LABELS}}} 11.0",
            f"cloudml_serving_batch_rows_count{{{LABELS}}} 5",
            f'cloudml_serving_request_seconds_bucket{{{LABELS},le="+Inf"}} 5',
            f"cloudml_serving_waiting_requests{{{LABELS}}} 0",
            ':tensorflow:serving:request_count{model_name="linear",status="OK"} 5',
        ):
            assert line in lines
        sums = {
            line.split("{")[0]: float(line.split()[1]) for line in lines if "seconds_sum" in line
        }
        assert (
            0
            < sums["cloudml_serving_run_seconds_sum"]
            < sums["cloudml_serving_request_seconds_sum"]
        )
        assert "process_open_fds" in "".join(metrics(running, "/monitoring/prometheus/metrics"))


def test_models_that_were_not_asked_have_no_histograms(tmp_path: Path) -> None:
    """Scraping 23 models that nobody called took 200 kB, and takes 6."""
    configs = []
    for number in range(23):
        save_linear(tmp_path / f"model_{number}" / "1")
        configs.append(
            f'config {{ name: "model_{number}" base_path: "{tmp_path}/model_{number}" }}'
        )
    (tmp_path / "models").write_text(f"model_config_list {{ {' '.join(configs)} }}")
    with model_server("--model_config_file", str(tmp_path / "models")) as running:
        quiet = metrics(running)
        assert not [line for line in quiet if "_bucket" in line]
        assert len("\n".join(quiet)) < 7_000
        ask(running, "POST", "/v1/models/model_7:predict", {"instances": [1, 2, 3]})
        buckets = [line for line in metrics(running) if "_bucket" in line]
        assert {re.findall(r'model(?:_name)?="([^"]+)"', line)[0] for line in buckets} == {
            "model_7"
        }


def test_openmetrics_for_a_scraper_that_asks_for_it(linear: Running) -> None:
    ask(linear, "POST", PREDICT, {"instances": [1]})
    accept = (
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{linear.port}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert (
            answer.headers["Content-Type"]
            == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        )
        lines = answer.read().decode().split("\n")
    assert lines[-2:] == ["# EOF", ""]
    assert "# TYPE cloudml_serving_requests counter" in lines
    assert [
        line
        for line in lines
        if line.startswith(f'cloudml_serving_requests_total{{{LABELS},protocol="http"')
    ]
    assert "# TYPE :tensorflow:serving:request_count unknown" in lines
