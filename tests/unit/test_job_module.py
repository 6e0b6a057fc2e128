"""``cloud_ml.job``: what code in a job imports."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import cloud_ml
from cloud_ml import job
from cloud_ml.domain.metrics.reports import read_reports as read_values
from cloud_ml.domain.workloads.checkpoints import line_of_rename
from cloud_ml.domain.workloads.progress import read_reports

SOURCE = Path(job.__file__)
COPY = SOURCE.parent / "environments" / "compat" / "job"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDML_CHECKPOINT_DIR", str(tmp_path / "kept"))
    for name in ("CLOUDML_RESTORE_FROM", "CLOUDML_ROLE", "CLOUDML_INDEX", "CLOUDML_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    return Path(job.checkpoint_dir())


def test_old_interpreters_understand_it() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"), feature_version=(3, 6))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {*sys.stdlib_module_names} - {"__future__"}


@pytest.mark.parametrize("sdk", [False, True])
def test_it_is_there_with_and_without_an_installed_sdk(sdk: bool, tmp_path: Path) -> None:
    path = [str(Path(cloud_ml.__file__).parents[1])] * sdk + [str(COPY)]
    code = "from cloud_ml import job; job.checkpoint_dir()"
    code += "; from cloud_ml.client import CloudMlClient" * sdk
    environment = {"PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, "-S", "-c", code], env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / "checkpoints").is_dir()


@pytest.mark.parametrize("statement", ["from cloud_ml import job", "import cloud_ml.job as job"])
def test_it_is_there_beside_an_sdk_without_it(statement: str, tmp_path: Path) -> None:
    sdk = tmp_path / "sdk" / "cloud_ml"
    sdk.mkdir(parents=True)
    (sdk / "__init__.py").write_text("def __getattr__(name): raise AttributeError(name)")
    (sdk / "client.py").write_text("CloudMlClient = 'that of the SDK'")
    code = f"""
import site, sys
site.addsitedir({str(COPY)!r})
sys.path.insert(0, {str(sdk.parent)!r})
from cloud_ml.client import CloudMlClient
print("cloud_ml_job_import" in sys.modules, CloudMlClient)
{statement}
print(job.__file__)
"""
    output = subprocess.check_output([sys.executable, "-S", "-c", code], cwd=tmp_path, text=True)
    assert output.splitlines() == ["False that of the SDK", str(COPY / "cloud_ml" / "job.py")]


def test_the_newest_that_is_there_is_handed_on(folder: Path) -> None:
    assert job.latest() is None
    for step in (1, 2, 3):
        (folder / f"step-{step}.pt").touch()
    job.saved("step-1.pt", 1)
    job.saved(folder / "step-2.pt", step=2)
    assert job.latest() == (str(folder / "step-2.pt"), 2)
    (folder / "step-2.pt").unlink()
    assert job.latest() == (str(folder / "step-1.pt"), 1)


def test_half_a_line_of_a_killed_task_harms_no_other(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / ".saved.jsonl").write_bytes(b'{"path": "a", "st')
    job.saved("a")
    with (folder / ".saved.jsonl").open("ab") as note:
        note.write(b'\n[]\n{"path": null}\n\xff' + b"[" * 100_000)
    assert job.latest() == (str(folder / "a"), None)


def test_the_attempt_is_noted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a").touch()
    for attempt, noted in (("3", 3), ("x", None), ("9" * 5000, None)):
        monkeypatch.setenv("CLOUDML_ATTEMPT", attempt)
        job.saved("a", 1)
        last = (folder / ".saved.jsonl").read_text().splitlines()[-1]
        assert json.loads(last).get("attempt") == noted


def test_tasks_may_note_at_the_same_time(folder: Path) -> None:
    (folder / "a").touch()
    threads = [
        threading.Thread(target=lambda: [job.saved("a", step) for step in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (folder / ".saved.jsonl").read_text().split()
    assert len([line for line in lines if line == '"a",']) == 200


def test_tensorflows_own_note_counts_if_it_is_newer(folder: Path) -> None:
    (folder / "old.pt").touch()
    job.saved("old.pt", 1)
    (folder / "model.ckpt-7.index").touch()
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    os.utime(folder / "checkpoint", (4e9, 4e9))
    assert job.latest() == (str(folder / "model.ckpt-7"), 7)
    (folder / "model.ckpt-7.index").unlink()
    assert job.latest() == (str(folder / "old.pt"), 1)


def test_what_was_renamed_counts_only_without_a_report(folder: Path) -> None:
    for name in ("renamed-2.pt", "saved-1.pt"):
        (folder / name).touch()
    lines = [line_of_rename(name, 4e9, 1) for name in ("earlier-1.pt", "renamed-2.pt", "gone-3.pt")]
    (folder / ".renamed.jsonl").write_bytes(b"".join(lines))
    assert job.latest() == (str(folder / "renamed-2.pt"), 2)
    job.saved("saved-1.pt", 1)
    assert job.latest() == (str(folder / "saved-1.pt"), 1)
    (folder / "saved-1.pt").unlink()
    assert job.latest() is None


@pytest.mark.parametrize(
    ("name", "noted", "step"),
    [
        ("best.pt", '{"path": "best.pt", "step": 7, "time": 1}', 7),
        ("step-5.pt", '{"path": "step-5.pt", "step": 7, "time": 1}', 7),
        ("deep/er/best", '{"path": "deep/er/best", "step": 7, "time": 1}', 7),
        ("step-5.pt", '{"path": "other.pt", "step": 7, "time": 1}', 5),
        ("step-5.pt", '{"path": "step-5.pt", "step": "x", "time": 1}\n[7]\nhalf a l', 5),
        ("epoch=3-step=20.ckpt", "", 20),
        ("30", "", 30),
        ("best.pt", '{"path": "best.pt", "step": null, "time": 1}', None),
    ],
)
def test_the_step_of_another_jobs_checkpoint_is_what_that_job_noted_else_in_the_name(
    name: str, noted: str, step: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".checkpoints" / "other-u1"
    (folder / name).mkdir(parents=True)
    (folder / ".saved.jsonl").write_text(noted)
    monkeypatch.setenv("CLOUDML_CHECKPOINT_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("CLOUDML_RESTORE_FROM", str(folder / name))
    assert job.latest() == (str(folder / name), step)


def test_at_first_the_checkpoint_of_another_job(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other-5"
    monkeypatch.setenv("CLOUDML_RESTORE_FROM", str(other))
    assert job.latest() is None
    other.touch()
    assert job.latest() == (str(other), 5)
    (folder / "own").touch()
    job.saved("own")
    assert job.latest() == (str(folder / "own"), None)


@pytest.mark.parametrize("path", ["../x", ".", "/etc/passwd", "a" * 1001])
def test_a_path_elsewhere_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(ValueError, match=f"allowed is one below {folder}"):
        job.saved(path)


@pytest.mark.parametrize("step", [1.5, True, -1, "1", float("nan")])
def test_a_step_is_a_whole_number(folder: Path, step: object) -> None:
    (folder / "a").touch()
    with pytest.raises(ValueError, match="whole number"):
        job.saved("a", step)  # type: ignore[arg-type]


def test_what_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(folder / "none")):
        job.saved("none")


def test_the_tasks_of_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.cluster() == ("master", 0, {})
    monkeypatch.setenv("CLOUDML_ROLE", "worker")
    monkeypatch.setenv("CLOUDML_INDEX", "1")
    monkeypatch.setenv("CLOUDML_CLUSTER", '{"worker": ["worker-0:20000", "worker-1:20001"]}')
    assert job.cluster() == ("worker", 1, {"worker": ["worker-0:20000", "worker-1:20001"]})


def test_lightgbm_is_told_addresses_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDML_MACHINES", "localhost:20000,127.0.0.1:20001")
    monkeypatch.setenv("CLOUDML_PORT", "20001")
    assert job.lightgbm() == {
        "machines": "127.0.0.1:20000,127.0.0.1:20001",
        "local_listen_port": 20001,
        "num_machines": 2,
        "tree_learner": "data",
        "time_out": 120,
    }


@pytest.mark.parametrize("machines", ["", "worker-0:20000"])
def test_lightgbm_trains_alone_where_it_is_alone(
    machines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDML_MACHINES", machines)
    assert job.lightgbm() == {}


def test_the_notice_of_a_stop_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUDML_NOTICE", raising=False)
    assert job.notice() is None
    monkeypatch.setenv("CLOUDML_NOTICE", str(tmp_path / "notice"))
    assert job.notice() is None
    (tmp_path / "notice").write_text('{"reason": "Paused", "deadline": 5}')
    assert job.notice() == ("Paused", 5.0)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"reason": "x"}', "\xff", "[" * 100_000])
def test_a_notice_that_cannot_be_read_is_none(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notice").write_text(text, "latin-1")
    monkeypatch.setenv("CLOUDML_NOTICE", str(tmp_path / "notice"))
    assert job.notice() is None


@pytest.mark.parametrize("with_function", [False, True])
def test_code_may_go_on_for_the_grace_time(with_function: bool) -> None:
    code = (
        "import os, signal, sys; from cloud_ml import job\n"
        f"job.on_preempt({'lambda: sys.exit(7)' if with_function else ''})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(8)"
    )
    environment = {"PYTHONPATH": str(Path(cloud_ml.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, check=False)
    assert done.returncode == (7 if with_function else 8)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="function is 5"):
        job.on_preempt(5)  # type: ignore[arg-type]


# ---- reports


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports"
    monkeypatch.setenv("CLOUDML_PROGRESS", str(path))
    return path


def test_figures_are_kept_as_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: Path
) -> None:
    path = tmp_path / "points"
    monkeypatch.setenv("CLOUDML_METRICS", str(path))
    job.report(3, loss=2, auc=math.nan)
    job.progress(0.25)
    monkeypatch.setenv("CLOUDML_TASK_RESTART", "2")
    job.report(loss=math.inf)
    found = read_values(path.read_bytes(), full=False).values
    shown = [(one.name, one.step, str(one.value), one.restart) for one in found]
    assert shown == [("loss", 3, "2.0", 0), ("auc", 3, "nan", 0), ("loss", None, "inf", 2)]
    assert reports.stat().st_size < job._MOST_REPORTED


def test_parameters_are_kept_beside_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: Path
) -> None:
    path = tmp_path / "points"
    monkeypatch.setenv("CLOUDML_METRICS", str(path))
    job.params({"model.layers": 3, "long": "\N{GRINNING FACE}" * 5000}, lr=0.1)
    job.params(lr=0.2)
    found = read_values(path.read_bytes(), full=False)
    long = "\N{GRINNING FACE}" * 5000
    assert found.params == {"model.layers": "3", "long": long, "lr": "0.1"}
    assert found.values == []
    assert not reports.exists()


@pytest.mark.parametrize(
    "values",
    [{}, {"": 1}, {"a\nb": 1}, {"a" * 251: 1}, {"a": "x" * 5001}, {3: 1},
     {f"p{number}": 1 for number in range(101)}],
)  # fmt: skip
def test_other_parameters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Mapping[str, object]
) -> None:
    monkeypatch.setenv("CLOUDML_METRICS", str(tmp_path / "points"))
    with pytest.raises(ValueError, match="allowed are"):
        job.params(values)
    assert not (tmp_path / "points").exists()


def test_what_is_reported_is_read_by_the_platform(reports: Path) -> None:
    job.report(3, loss=2, auc=0.5)
    job.report(loss=1.5)
    found = read_reports(reports.read_bytes())
    assert found is not None
    assert (found.step, found.metrics) == (3, {"loss": 1.5, "auc": 0.5})
    job.progress(0.25)
    job.progress(step=5, of=20)
    found = read_reports(reports.read_bytes())
    assert found is not None
    assert (found.step, found.of, found.fraction) == (5, 20, 0.25)


@pytest.mark.parametrize(
    "call",
    [
        lambda: job.report(loss=10**400),
        job.report,
        lambda: job.report(-1),
        lambda: job.report(1.5),  # type: ignore[arg-type]
        lambda: job.report(True),
        lambda: job.report(loss="low"),  # type: ignore[arg-type]
        lambda: job.report(**{"a\nb": 1.0}),
        lambda: job.report(**{"": 1.0}),
        lambda: job.report(**{f"m{number}": 1.0 for number in range(33)}),
        job.progress,
        lambda: job.progress(1.5),
        lambda: job.progress("half"),  # type: ignore[arg-type]
        lambda: job.progress(0.5, step=1, of=2),
        lambda: job.progress(step=1),
        lambda: job.progress(of=1),
        lambda: job.progress(step=3, of=2),
        lambda: job.progress(step=0, of=0),
        lambda: job.progress(percent=5),  # type: ignore[call-arg]
    ],
)
def test_other_forms_of_a_report_are_refused(call: Callable[[], None], reports: Path) -> None:
    with pytest.raises((TypeError, ValueError)):
        call()
    assert not reports.exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1,), "step is -1; allowed is a whole number from 0 to 999999999999999999, or None"),
        (({"loss": 1},), r"step is {'loss': 1}; .* Figures are named: report\(step, \*\*figures\)"),
        ({"": 1.0}, "a figure is named ''; allowed are 1 to 100 printable characters"),
        ({"loss": 10**400}, "loss is beyond what a float can be"),
    ],
)
def test_a_refused_report_says_what_is_allowed(values: Any, message: str, reports: Path) -> None:
    with pytest.raises(ValueError, match=message):
        job.report(**values) if isinstance(values, dict) else job.report(*values)


def test_reports_take_no_more_than_so_much(reports: Path) -> None:
    for step in range(6000):
        job.report(step, loss=0.123456789)
    assert reports.stat().st_size < 300_000
    found = read_reports(reports.read_bytes())
    assert found is not None
    assert found.step == 5999


def test_a_report_that_cannot_be_written_stops_no_training(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports.mkdir()
    job.report(1)
    monkeypatch.delenv("CLOUDML_PROGRESS")
    job.progress(0.5)
