"""``cloudml hp run --local``: trials of a study as processes of the user's machine."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cloud_ml.errors import NotFound
from cloud_ml.sdk.studies import Studies
from support.server import RealServer, eventually, serving

PRINTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--epochs", type=int)
options = parser.parse_args()
for epoch in range(options.epochs):
    print(f"Epoch {epoch}: loss = {(options.lr - 0.3) ** 2 + 1 / (epoch + 1)}")
"""
REPORTS = """
import sys, time
from cloud_ml import job
lr = float(sys.argv[-1].partition("=")[2])
for step in range(1, 4):
    job.report(step, loss=lr, other=1)
if lr > 5:
    print("too large", flush=True)
    sys.exit(3)
while lr == 3:
    time.sleep(0.05)
"""


READS_A_FILE = """
import json, os, sys
assert sys.argv[1:] == ["--config", os.environ["CLOUDML_PARAMETERS"]], sys.argv
parameters = json.load(open(sys.argv[2]))
assert parameters == {"lr": 0.5, "name": "0.5", "cache": True, "layers": 2}, parameters
print("loss:", parameters["lr"])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


def test_the_objective_is_what_trials_print(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    ran = server.cli(
        *("hp", "run", "--local", "-n", "printed", "-s", "lr=0.1,0.3,0.9", "--algorithm", "grid"),
        *("--parallel", "2", "--python", sys.executable, "train.py", "--epochs", "2"),
        folder=tmp_path,
    ).good()
    assert "printed: the best is trial 1 with 0.5" in ran.out
    assert "[0] Epoch 1: loss" in ran.out
    study = server.client().studies.wait("printed")
    assert [one.state for one in study.trials] == ["Completed"] * 3
    assert study.phase == "Completed"


def test_trials_that_do_badly_are_stopped_and_those_that_fail_are_told(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(REPORTS)
    study_file = tmp_path / "study.yaml"
    study_file.write_text(
        "space: {lr: [1, 3, 9]}\nalgorithm: grid\nstopper: threshold\n"
        "stopper_options: {above: 2}\nobjective: loss:min\n"
    )
    ran = server.cli(
        *("hp", "run", "--local", "-n", "stopped-early", "-f", "study.yaml"),
        *("--python", sys.executable, "train.py"),
        folder=tmp_path,
    ).good()
    study = server.client().studies.describe("stopped-early")
    assert [one.state for one in study.trials[:2]] == ["Completed", "EarlyStopped"], ran.out
    assert study.trials[0].value == 1.0


def test_interrupted_trials_are_told_and_the_study_goes_on(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(REPORTS)
    command = ["hp", "run", "--local", "-n", "interrupted", "--python", sys.executable]
    space = ["-s", "lr=3,1,7", "--algorithm", "grid"]
    studies = server.client().studies
    typed = (*command, *space, "--grace", "5", "train.py", "--note", "two words")
    process = server.spawn(*typed, folder=tmp_path, hears_ctrl_c=True)
    try:
        eventually(lambda: _values(studies, "interrupted") == [3.0], "the first trial has reported")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "Stopped" in out, err
    (again,) = (line for line in err.splitlines() if line.startswith("Go on: "))
    program, *words = shlex.split(again.removeprefix("Go on: "))
    given = ["--grace", "5", "train.py", "--note", "two words"]
    assert (program, words) == ("cloudml", [*command, *given])
    ran = server.cli(*words, folder=tmp_path)
    found = studies.describe("interrupted")
    assert [one.state for one in found.trials] == ["Stopped", "Completed", "Failed"], ran.err
    assert found.trials[2].message == "exit code 3: too large"


def test_trials_of_a_process_that_was_killed_are_named(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPORTS)
    command = ["hp", "run", "--local", "-n", "killed", "--python", sys.executable]
    space = ["-s", "lr=3,1", "--algorithm", "grid"]
    studies = server.client().studies
    process = server.spawn(*command, *space, "train.py", folder=tmp_path, hears_ctrl_c=True)
    try:
        eventually(lambda: _values(studies, "killed") == [3.0], "the first trial has reported")
        trials = psutil.Process(process.pid).children()
    finally:
        process.kill()
        process.communicate()
    for trial in trials:
        trial.kill()
    ran = server.cli(*command, "train.py", folder=tmp_path)
    assert ran.code == 0, ran.err
    assert "Other processes run trials of killed: 0. If they are gone, cloudml hp stop" in ran.err
    assert server.cli("hp", "stop", "killed").code == 0
    eventually(lambda: studies.describe("killed").phase == "Stopped", "the study has ended")


def test_parameters_are_a_file(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(READS_A_FILE)
    (tmp_path / "study.yaml").write_text(
        "space: {lr: [0.5], name: ['0.5'], cache: [true], layers: [2]}\n"
        "algorithm: grid\nparameters_as: file\n"
    )
    command = ["hp", "run", "--local", "-n", "filed", "-f", "study.yaml"]
    script = ["--python", sys.executable, "train.py", "--config", "{parameters_file}"]
    ran = server.cli(*command, *script, folder=tmp_path).good()
    assert "filed: the best is trial 0 with 0.5" in ran.out


def test_a_study_file_says_all_that_a_local_study_has(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPORTS)
    words = ("hp", "run", "--local", "--python", sys.executable)
    earlier = ("-n", "earlier", "-s", "lr=1,2", "--algorithm", "grid", "--max_trials", "1")
    server.cli(*words, *earlier, "train.py", folder=tmp_path).good()
    text = (
        "name: whole\nspace: {lr: {min: 1, max: 2}}\nalgorithm: gp\nmax_trials: 3\nparallel: 3\n"
        "max_failed: 1\nsame_failures: 0\nmax_time: 20m\nwarm_start: [earlier]\n"
    )
    (tmp_path / "study.yaml").write_text(text)
    server.cli(*words, "-f", "study.yaml", "train.py", folder=tmp_path).good()
    study = server.client().studies.describe("whole")
    assert (study.parallel, study.max_failed, study.same_failures) == (3, 1, 0)
    assert (study.max_time, study.warm_start, study.ended) == ("20m", ["earlier"], 3)
    named = ("-f", "study.yaml", "-n", "named", "--parallel", "2", "--seed", "1")
    server.cli(*words, *named, "train.py", folder=tmp_path).good()
    assert server.client().studies.describe("named").parallel == 2
    for field in ("repeats: 2", "keep_checkpoints: best", "parallel: 101"):
        (tmp_path / "study.yaml").write_text(f"name: refused\nspace: {{lr: [1]}}\n{field}\n")
        ran = server.cli(*words, "-f", "study.yaml", "train.py", folder=tmp_path)
        assert (ran.code, field.partition(":")[0] in ran.err, "refused" in ran.out) == (
            1,
            True,
            False,
        )
    assert _values(server.client().studies, "refused") == []


def test_a_study_whose_trials_fail_at_once_ends_with_the_reason(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "fast.py").write_text("print('done')\n")
    words = ("hp", "run", "--local", "-n", "fast", "-s", "x=0:1", "--objective", "acc:max")
    ran = server.cli(
        *words, "--trials", "2", "--python", sys.executable, "fast.py", folder=tmp_path
    )
    assert ran.code == 3, ran.out
    assert "fast is Failed: no trial completed with a value of the metric" in ran.out
    study = server.client().studies.describe("fast")
    assert (study.phase, study.states) == ("Failed", {"MetricMissing": 2})
    assert study.trials[0].message == (
        "it reported no acc (its output ends with 'done'): print lines such as acc=0.25, or call "
        "cloud_ml.job.report(step, acc=0.25)"
    )


def test_trials_on_this_machine_are_not_called_jobs(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPORTS)
    words = ("hp", "run", "--local", "-n", "here", "-s", "lr=1,2", "--algorithm", "grid")
    ran = server.cli(*words, "--python", sys.executable, "train.py", folder=tmp_path).good()
    listed = server.cli("hp", "trials", "here").good().out.splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["TRIAL", "STATE"],
        ["0", "Completed"],
        ["1", "Completed"],
    ]
    rows = server.cli("hp", "trials", "here", "-o", "csv").good().out.splitlines()
    assert rows[1].startswith("0,,Completed,")
    shown = [
        ran.out,
        *(server.cli("hp", *words).good().out for words in (["list"], ["describe", "here"])),
        server.cli("hp", "best", "here").good().out,
    ]
    for command, outputs in (
        ("describe", ("json", "yaml")),
        ("curves", ("table", "csv", "json", "name")),
    ):
        shown += [server.cli("hp", command, "here", "-o", one).good().out for one in outputs]
    server.cli("hp", "plot", "here", "-o", "here.html", folder=tmp_path).good()
    shown.append((tmp_path / "here.html").read_text())
    assert [("-hp-" in text) for text in shown] == [False] * len(shown)
    assert "1 (trial 0)" in shown[1]
    assert "trial 1: " in shown[-1]
    assert server.cli("hp", "trials", "here", "-o", "name").good().out.split() == ["0", "1"]
    for command in ("logs", "status"):
        refused = server.cli(command, "here")
        assert "here is a study; use: cloudml hp" in refused.err
        assert "A loop of yours runs its trials" in refused.err
        assert "-hp-0" not in refused.err


def test_without_local_the_other_command_is_named(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    ran = server.cli("hp", "run", "train.py", folder=tmp_path)
    assert (ran.code, "cloudml hp submit" in ran.err) == (2, True)
    ran = server.cli("hp", "run", "--local", "train.py", folder=tmp_path)
    assert (ran.code, "-s NAME=VALUES" in ran.err) == (2, True)


def _values(studies: Studies, name: str) -> list[float | None]:
    try:
        return [one.value for one in studies.describe(name).trials]
    except NotFound:
        return []
