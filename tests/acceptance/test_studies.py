"""Studies on a real server: what a person types, what its trials report, and a server that is
killed in between.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.train_job import TrainJob
from support.event_files import EVENT_WRITER
from support.server import RealServer, eventually, serving, trainer

_SAMPLED = {"lr": {"min": 0.0, "max": 1.0}, "layers": {"min": 1, "max": 4, "type": "int"}}
_REPORTS = """
import argparse
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--optimizer", default="sgd")
arguments = parser.parse_args()
for step in range(10):
    job.report(step, loss=abs(arguments.lr - 0.2) + 1 / (step + 1))
"""
_READS_A_FILE = """
import json, os, sys
from cloud_ml import job
assert sys.argv[1:] == ["--config", os.environ["CLOUDML_PARAMETERS"]], sys.argv
parameters = json.load(open(sys.argv[2]))
assert parameters["name"] == "0.5" and parameters["cache"] is True, parameters
job.report(1, loss=parameters["lr"])
"""
_NOISY = """
import os, sys
from cloud_ml import job
lr = float(sys.argv[-1].partition("=")[2])
job.report(1, loss=lr + int(os.environ["CLOUDML_SEED"]) % 1000 / 1e6)
"""
_POPULATION = """
import argparse, json, os
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--forgets", action="store_true")
arguments = parser.parse_args()
found = job.latest()
state = json.load(open(found.path)) if found else {"steps": []}
begin = len(state["steps"])
for step in range(begin, begin + 3):
    state["steps"].append(arguments.lr)
    job.report(step, loss=abs(arguments.lr - 0.3))  # so the worst is the worst at any time
if not arguments.forgets:
    path = os.path.join(job.checkpoint_dir(), "state-%d.json" % len(state["steps"]))
    json.dump(state, open(path, "w"))
    job.saved(path, len(state["steps"]))
print("rates", json.dumps(state["steps"]))
"""
_STUDY = """
name: rates
job:
  module_name: trainer.task
  trainer_uri: {code}
  framework: python
space:
  lr: [0.1, 0.2, 0.4]
  optimizer: [adam]
objective: loss:min
algorithm: grid
"""


def test_a_study_of_a_folder_finds_the_best(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(_STUDY.format(code=trainer(tmp_path / "rates", _REPORTS)))
    output = server.cli("hp", "submit", "-f", str(file), "--watch", timeout_s=120).good().out
    assert output.splitlines()[-1] == "rates is Completed: the best loss is 0.1, of trial 1"
    study = client.studies.describe("rates")
    assert [round(trial.value or 0, 3) for trial in study.trials] == [0.2, 0.1, 0.3]
    assert study.best is not None
    assert study.best.parameters == {"lr": 0.2, "optimizer": "adam"}
    series = client.get_train_job("rates-hp-1").series()
    assert [(one.name, one.count) for one in series] == [("loss", 10)]
    listed = json.loads(server.cli("hp", "trials", "rates", "--sort", "value", "-o", "json").out)
    assert [trial["number"] for trial in listed] == [1, 0, 2]
    runs = json.loads(
        server.cli("runs", "list", "--filter", "tags.study = 'rates'", "-o", "json").good().out
    )
    assert sorted(run["name"] for run in runs) == [f"rates-hp-{n}" for n in range(3)]
    first = server.cli("hp", "trials", "rates", "--sort", "value", "--limit", "1").good()
    assert listed[0]["job"] in first.out
    assert f"These are 1 of {len(listed)} trials." in first.err
    table = server.cli("hp", "trials", "rates", "-o", "csv").good().out.splitlines()
    assert table[0] == "number,job,state,value,step,params.lr,params.optimizer,message"
    assert table[2].endswith(",9,0.2,adam,")
    points = server.cli("runs", "metrics", "rates-hp-1", "--name", "loss", "-o", "csv").good().out
    assert [line.split(",")[0] for line in points.splitlines()] == ["step", *map(str, range(10))]
    plots = tmp_path / "rates.svg"
    assert server.cli("hp", "plot", "rates", "-o", str(plots)).good()
    circles = list(ET.parse(plots).iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3 * (1 + 2 + 1)  # a history, two slices and a contour of three trials
    best = server.cli("hp", "best", "rates", "-o", "csv").good().out.splitlines()
    assert best[0] == "number,job,values.loss,params.lr,params.optimizer"
    assert best[1].startswith("1,rates-hp-1,")
    few = server.cli("hp", "importance", "rates")
    assert (few.code, "3 trials of rates have completed; importance takes 5" in few.err) == (
        1,
        True,
    )
    wrong = server.cli("hp", "submit", "rates", "-f", str(file))
    assert (wrong.code, "already" in wrong.err) == (1, True)
    assert server.cli("hp", "delete", "rates", "--wait").good()
    assert [job.name for job in client.list_train_jobs(name="rates-hp-*")] == []


def test_copies_of_a_trial_belong_to_no_study(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code, file = str(trainer(tmp_path / "copied", _REPORTS)), tmp_path / "study.yaml"
    text = _STUDY.format(code=code).replace("rates", "shown")
    file.write_text(
        text.replace("framework: python", "framework: python\n  labels: {team: vision}")
    )
    assert server.cli("hp", "submit", "-f", str(file), "--watch", timeout_s=120).good()
    trial = "shown-hp-1"
    assert client.describe_train_job(trial).spec["labels"] == {"study": "shown", "team": "vision"}
    own, document = {"team": "vision"}, tmp_path / "trial.yaml"
    document.write_text(server.cli("jobs", "export", trial).good().out)
    described = json.loads(server.cli("jobs", "describe", trial, "-o", "json").good().out)
    (tmp_path / "described.json").write_text(json.dumps(described["spec"]))
    copies = {
        "copy-cloned": ("clone", trial, "copy-cloned", "--set", "lr=0.3"),
        "copy-marked": ("clone", trial, "copy-marked", "--label", "by=me"),
        "copy-rerun": ("rerun", trial, "-n", "copy-rerun"),
        "copy-exported": ("submit", "-f", str(document), "-n", "copy-exported"),
        "copy-typed": ("submit", "-f", str(tmp_path / "described.json"), "-n", "copy-typed"),
        "copy-asked": ("rerun", trial, "-n", "copy-asked", "--label", "study=mine"),
    }
    for name, words in copies.items():
        assert server.cli("jobs", *words).good()
        assert client.get_train_job(name).wait(60).succeeded
    labels = {name: client.describe_train_job(name).spec["labels"] for name in copies}
    others = {"copy-marked": {**own, "by": "me"}, "copy-asked": {**own, "study": "mine"}}
    assert labels == dict.fromkeys(copies, own) | others
    again = client.reproduce_train_job(trial)
    uid = client.describe_train_job(trial).uid
    assert client.describe_train_job(again.again).spec["labels"] == {**own, "reproduces": uid}
    copy = client.clone_train_job(again.again, {"lr": 0.4})
    assert (copy.job.spec["labels"], copy.wait(60).succeeded) == (own, True)
    beside = TrainJob(
        "beside", "trainer.task", code, job_args=["--lr=0.9"], labels={"study": "shown"}
    )
    assert client.submit_train_job(beside).wait(60).succeeded
    runs = server.cli("runs", "list", "--filter", "tags.study = 'shown'", "-o", "json").good()
    found = sorted(run["name"] for run in json.loads(runs.out))
    assert found == ["beside", *(f"shown-hp-{number}" for number in range(3))]


_SAVES = """
import argparse, os, pathlib
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
rate = parser.parse_args().lr
folder = pathlib.Path(os.environ["CLOUDML_OUTPUT_PATH"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "weights.txt").write_text(str(rate))
job.report(1, loss=abs(rate - 0.2))
"""


def test_the_best_trial_is_registered_from_the_command_line(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    job = TrainJob("digits", "trainer.task", str(trainer(tmp_path / "digits", _SAVES)),
                   framework="python", output_path="fds://cloudml/of-digits")  # fmt: skip
    client.studies.submit(job, {"lr": [0.1, 0.2, 0.4]}, algorithm="grid")
    assert client.studies.wait("digits", 120).phase == "Completed"
    output = server.cli("hp", "best", "digits", "--register", "reader").good().out
    assert output == "reader has version 1: fds://cloudml/of-digits/1 of digits-hp-1\n"
    words = ("hp", "best", "digits", "--register", "reader", "--trial", "2", "-o", "json")
    other = server.cli(*words).good().json()
    assert (other["version"], other["source"]) == ("2", "fds://cloudml/of-digits/2")
    versions = {one["version"]: one["source"] for one in client.model_registry.versions("reader")}
    sources = {"1": "fds://cloudml/of-digits/1", "2": "fds://cloudml/of-digits/2"}
    assert versions == sources
    for source, text in zip(sources.values(), ("0.2", "0.4"), strict=True):
        client.storage.download(f"{source}/weights.txt", tmp_path / "weights")
        assert (tmp_path / "weights").read_text() == text
    absent = server.cli("hp", "best", "digits", "--register", "reader", "--trial", "7")
    assert (absent.code, "trial" in absent.err) == (1, True)
    alone = server.cli("hp", "best", "digits", "--trial", "1")
    assert (alone.code, "--trial goes with --register MODEL" in alone.err) == (2, True)


_LEAVES = """
import argparse, os, pathlib
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
rate = parser.parse_args().lr
pathlib.Path("weights.txt").write_text(os.environ["SCALE"] + str(rate))
job.report(1, loss=abs(rate - 0.2))
"""


def test_outputs_of_trials_without_a_folder_are_registered_and_shown(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    (script := tmp_path / "leaves.py").write_text(_LEAVES)
    words = ("hp", "submit", "leaves", str(script), "-s", "lr=0.1,0.2", "--algorithm", "grid")
    assert server.cli(*words, "-e", "SCALE=x", "--label", "team=blue", "--watch").good()
    output = server.cli("hp", "best", "leaves", "--register", "left").good().out
    (version,) = client.model_registry.versions("left")
    assert output == f"left has version 1: {version['source']} of leaves-hp-1\n"
    client.storage.download(f"{version['source']}/weights.txt", tmp_path / "weights")
    assert (tmp_path / "weights").read_text() == "x0.2"
    assert server.cli("tensorboard", "create", "-n", "left", "--study", "leaves").good()
    client.tensorboards.delete("left")
    refused = server.cli("tensorboard", "create", "-n", "big", "--study", "leaves", "-M", "9999G")
    assert (refused.code, "more than this server has: at most" in refused.err) == (1, True)
    job = client.get_train_job("leaves-hp-0").job
    assert (job.spec["labels"]["team"], job.spec["environment"]) == ("blue", {"SCALE": "x"})
    other = ("hp", "submit", "folder", str(script), "-s", "lr=0.1", "-e", "SCALE=", "--watch")
    assert server.cli(*other, "--output-path", "fds://cloudml/of-folder").good()
    assert client.studies.describe("folder").trials[0].output_path == "fds://cloudml/of-folder/0"


_STEPS = """
import argparse, os, signal, sys, time
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
def leave(*_):
    print("told to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
job.report(1, loss=rate)
while rate > 0.5:  # a bad trial never ends by itself
    time.sleep(0.05)
job.report(2, loss=rate / 2)
"""


@pytest.mark.slow
def test_trials_that_do_badly_end_early_though_the_server_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        client = server.client()
        job = TrainJob(
            "early", "trainer.task", str(trainer(tmp_path / "code", _STEPS)), framework="python"
        )
        space = {"rate": [0.1, 0.2, 0.9, 0.8]}
        client.studies.submit(
            job, space, algorithm="grid", parallel=2, stopper="asha", stopper_options={"factor": 4}
        )  # fmt: skip
        eventually(lambda: client.studies.describe("early").ended >= 1, "a trial", limit_s=120)
        server.kill()
        server.start()
        client = server.client()
        study = client.studies.wait("early", 240)
        assert study.phase == "Completed", study.message
        states = {trial.parameters["rate"]: trial.state for trial in study.trials}
        assert (states[0.9], states[0.8]) == ("EarlyStopped", "EarlyStopped")
        assert states[0.1] == "Completed"
        for trial in study.trials:
            if trial.parameters["rate"] == 0.2:
                continue  # it may end by itself in the moment in which it is told to end
            log = b"".join(client.get_train_job(trial.job).logs())
            assert (b"told to end" in log) == (trial.state == "EarlyStopped")
            assert trial.value == trial.parameters["rate"] / (
                2 if trial.state == "Completed" else 1
            )


_WRITES = (
    EVENT_WRITER
    + """
import sys
rate = float(sys.argv[-1].partition("=")[2])
file = None
for step in range(40000):
    if "@source@" == "log":
        print("Epoch: %d, loss: %s" % (step, rate), flush=True)
    elif step > 4:  # the folder of its files may come later
        file = file or opened("runs/now")
        file.write(scalar("loss", rate, step))
        file.flush()
    time.sleep(0.05)
"""
)


@pytest.mark.parametrize("source", ["log", "event_file"])
def test_a_trial_ends_early_by_what_it_writes_long_before_its_files_are_due(
    source: str, tmp_path: Path
) -> None:
    with serving(tmp_path, CLOUDML_METRICS_FILES_PERIOD_S="3600") as server:
        client = server.client()
        code = trainer(tmp_path / "code", _WRITES.replace("@source@", source))
        job = TrainJob(
            "told",
            "trainer.task",
            str(code),
            framework="python",
            metric_patterns=["epoch"] if source == "log" else None,
        )
        client.studies.submit(
            job, {"rate": [0.9]}, algorithm="grid", max_failed=9,
            stopper="threshold", stopper_options={"above": 0.5},
        )  # fmt: skip
        study = client.studies.wait("told", 120)
        assert [trial.state for trial in study.trials] == ["EarlyStopped"], study.message


def test_a_study_is_steered_from_the_command_line(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code = trainer(tmp_path / "steered", _REPORTS)
    job = TrainJob("steered", "trainer.task", str(code), framework="python")
    client.studies.submit(job, {"lr": {"min": 0.0, "max": 1.0}}, max_trials=2, max_time="1h")
    assert server.cli("hp", "wait", "steered", timeout_s=120).good()
    extended = server.cli("hp", "extend", "steered", "--trials", "5", "--target", "0.11").good().out
    assert extended == "steered has 7 trials now, 2 of which have ended\n"
    queued = server.cli("hp", "enqueue", "steered", "lr=0.2").good().out
    assert queued == "steered has 8 trials now; this one comes next\n"
    study = client.studies.wait("steered", 120)
    assert (study.phase, study.reason) == ("Completed", "TargetReached")
    wrong = server.cli("hp", "enqueue", "steered", "rate=0.2")
    assert (wrong.code, "trials[0]" in wrong.err) == (1, True)
    lists = client.studies.submit(
        TrainJob("few", "trainer.task", str(code), framework="python"), {"lr": [0.1, 0.2]},
        max_trials=1,
    )  # fmt: skip
    most = server.cli("hp", "extend", lists.name, "--trials", "9").good()
    assert "few has 2 trials now" in most.out
    assert "no more combinations" in most.err
    with pytest.raises(TypeError, match="a list of trials is expected"):
        client.studies.enqueue("steered", {"lr": 0.2})  # type: ignore[arg-type]
    again = server.cli("hp", "pause", "steered")
    assert (again.code, "there is nothing to pause" in again.err) == (1, True)
    assert "allowed: extend, enqueue, keep, or a new study" in again.err
    twice = server.cli("hp", "submit", "steered", str(code), "-s", "lr=1,2")
    assert (twice.code, "cloudml hp extend steered --trials N" in twice.err) == (1, True)
    shown = server.cli("status", "steered")
    assert (shown.code, "steered is a study; use: cloudml hp" in shown.err) == (2, True)


_WAITS = """
import argparse, time
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
job.report(1, loss=parser.parse_args().lr)
time.sleep(600)
"""


def test_trials_that_run_or_wait_are_shown_with_what_is_known(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path / "waiting", _WAITS))
    job = TrainJob("waiting", "trainer.task", code, framework="python")
    named = [{"lr": 0.125}, {"lr": 0.25}]
    client.studies.submit(
        job, {"lr": {"min": 0, "max": 1, "type": "float"}}, trials=named, parallel=1, max_trials=2
    )

    def shown() -> list[list[str]]:
        lines = server.cli("hp", "trials", "waiting").good().out.splitlines()
        return [line.split() for line in lines[1:]]

    eventually(
        lambda: ["waiting-hp-0", "Running", "0.125", "lr=0.125"] in shown(), "a value", limit_s=120
    )
    assert ["Queued", "lr=0.25"] in shown()
    described = server.cli("hp", "describe", "waiting").good().out
    assert "0 of 2 have ended, 1 at a time (1 Running)" in described
    assert server.cli("hp", "enqueue", "waiting", "lr=0.9").good()
    extended = server.cli("hp", "extend", "waiting", "--trials", "1", "-s", "lr=0.2:0.5").good()
    assert extended.out == "waiting has 3 trials now, 0 of which have ended\n"
    assert extended.err == (
        "Dropped, as the changed space excludes it: trial lr=0.9: lr is 0.9; allowed is 0.2 to "
        "0.5, as the space says\n"
    )
    assert ["Queued", "lr=0.25"] in shown()
    assert ["Queued", "lr=0.9"] not in shown()
    assert "TrialDropped" in server.cli("hp", "events", "waiting").good().out
    client.studies.act("waiting", "stop")
    client.studies.wait("waiting", 120)
    described = server.cli("hp", "describe", "waiting").good().out
    assert "1 of 3 have ended, 1 at a time (1 Stopped)" in described


_WAITS_FOR_A_FILE = """
import argparse, os, pathlib, time
from cloud_ml import job
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parsed = parser.parse_args()
while not pathlib.Path(os.environ["CLOUDML_STORAGE"], "cloudml", "go-on").exists():
    time.sleep(0.05)
job.report(1, loss=parsed.lr)
"""


def test_only_one_trial_waits_for_a_place_and_a_later_job_is_next_but_one(tmp_path: Path) -> None:
    with serving(tmp_path, CLOUDML_CONTROLLER_MAX_RUNNING_JOBS="2") as server:
        client = server.client()
        code = str(trainer(tmp_path / "code", _WAITS_FOR_A_FILE))
        job = TrainJob("wide", "trainer.task", code, framework="python")
        client.studies.submit(
            job, {"lr": {"min": 0, "max": 1, "type": "float"}}, parallel=8, max_trials=8
        )

        def phases() -> dict[str, str]:
            return {one.name: one.phase for one in client.list_train_jobs()}

        eventually(
            lambda: sorted(phases().values()) == ["Queued", "Running", "Running"],
            "two trials that run and one that waits",
            limit_s=120,
        )
        plain = TrainJob("plain", "trainer.task", code, framework="python", job_args=["--lr", "1"])
        client.submit_train_job(plain)
        eventually(lambda: "plain" in phases(), "the later job")
        assert sorted(phases()) == ["plain", "wide-hp-0", "wide-hp-1", "wide-hp-2"]
        server.bucket("go-on").touch()
        study = client.studies.wait("wide", 120)
        assert (study.phase, len(study.trials)) == ("Completed", 8)
        began = {name: client.describe_train_job(name).started_at for name in phases()}
        before = [name for name, at in began.items() if str(at) < str(began["plain"])]
        assert len(before) <= 4, before


def test_a_trial_without_a_value_is_told_what_it_printed_last(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path / "typo", "print('epoch 3')\nprint('accurracy', 0.5)"))
    job = TrainJob("typo", "trainer.task", code, framework="python")
    client.studies.submit(job, {"lr": [0.1]}, objective="accuracy:max", max_trials=1)
    (trial,) = client.studies.wait("typo", 120).trials
    assert trial.state == "MetricMissing"
    assert "(its log ends with 'accurracy 0.5'): name as the objective" in trial.message


_EXPERIMENT = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: katib}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: grid}
  parallelTrialCount: 2
  parameters:
  - name: rate
    parameterType: discrete
    feasibleSpace: {list: ["0.1", "0.3"]}
  trialTemplate:
    primaryContainerName: training
    trialParameters: [{name: learningRate, reference: rate}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            containers:
            - name: training
              image: docker.io/somebody/training:latest
              command: [python3, -m, trainer.task, "--lr=${trialParameters.learningRate}"]
"""
_PRINTS = """
import sys
lr = float(sys.argv[-1].partition("=")[2])
for step in range(3):
    print(f"epoch {step}: loss={lr + 1 / (step + 1):.4f}", flush=True)
"""


def test_an_experiment_of_katib_runs_with_code_of_this_machine(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(_EXPERIMENT)
    code = str(trainer(tmp_path / "katib", _PRINTS))
    result = server.cli(
        "hp", "submit", "-f", str(file), "-u", code, "-F", "python", "-W", timeout_s=120
    )
    assert result.good().out.splitlines()[-1] == (
        "katib is Completed: the best loss is 0.4333, of trial 0"
    )
    assert "the image 'docker.io/somebody/training:latest' is not run" in result.err
    missing = server.cli("hp", "submit", "again", "-f", str(file))
    assert (missing.code, "such as -u FOLDER" in missing.err) == (1, True)


def test_a_study_of_options_runs(server: RealServer, tmp_path: Path) -> None:
    code = str(trainer(tmp_path / "optional", _REPORTS))
    result = server.cli(
        "hp", "submit", "optional", "-m", "trainer.task", "-u", code, "-F", "python",
        "-s", "lr=0.1,0.2", "--algorithm", "grid", "-W", timeout_s=120,
    )  # fmt: skip
    assert result.good().out.splitlines()[-1] == (
        "optional is Completed: the best loss is 0.1, of trial 1"
    )


def test_trials_find_their_parameters_in_a_file(server: RealServer, tmp_path: Path) -> None:
    code = str(trainer(tmp_path / "filed", _READS_A_FILE))
    space = ["-s", "lr=0.1,0.2", "-s", 'name=["0.5"]', "-s", "cache=[true]"]
    result = server.cli(
        *("hp", "submit", "filed", "-m", "trainer.task", "-u", code, "-F", "python", *space),
        *("--parameters-as", "file", "-a", "--config {parameters_file}"),
        *("--algorithm", "grid", "-W"),
        timeout_s=120,
    )
    assert (
        result.good().out.splitlines()[-1] == "filed is Completed: the best loss is 0.1, of trial 0"
    )
    condition = "params.lr = '0.2' and params.cache = 'true'"
    runs = json.loads(server.cli("runs", "list", "--filter", condition, "-o", "json").good().out)
    assert [run["name"] for run in runs] == ["filed-hp-1"]
    # A job that runs again has the same file.
    assert server.cli("jobs", "rerun", "filed-hp-0", "-n", "filed-again", "--watch").good()


def test_the_best_of_noisy_trials_has_the_best_mean(
    server: RealServer, client: CloudMlClient, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path / "noisy", _NOISY))
    result = server.cli(
        *("hp", "submit", "noisy", "-m", "trainer.task", "-u", code, "-F", "python"),
        *("-s", "lr=0.1,0.2,0.3", "--algorithm", "grid", "--parallel", "3"),
        *("--repeats", "2", "--repeat-best", "2", "-W"),
        timeout_s=120,
    )
    assert result.good().out.splitlines()[-1].endswith("(mean of 3 runs), of trial 0")
    study = client.studies.describe("noisy")
    assert [trial.repeat_of for trial in study.trials] == [None, None, None, 0, 1, 0, 1]
    of_best = [trial.value or 0 for trial in study.trials if 0 in (trial.number, trial.repeat_of)]
    assert len(set(of_best)) == 3, "each run has another seed"
    assert study.best is not None
    assert study.best.mean == pytest.approx(sum(of_best) / 3)
    assert study.best.runs == 3
    table = server.cli("hp", "trials", "noisy", "--sort", "value").good().out.splitlines()
    assert [line.split()[0].rpartition("-")[2] for line in table[1:]] == list("0351462")
    assert "(3 runs)" in table[1]
    assert table[2].endswith("repeat of trial 0")
    more = ("hp", "extend", "noisy", "--trials", "1", "-s", "lr=0.1,0.2,0.3,0.4")
    assert server.cli(*more).good().out == "noisy has 8 trials now, 7 of which have ended\n"


@pytest.mark.slow
def test_members_of_a_population_go_on_from_checkpoints_though_the_server_is_killed(
    tmp_path: Path,
) -> None:
    code = trainer(tmp_path / "population", _POPULATION)
    file = tmp_path / "study.yaml"
    file.write_text(
        f"name: members\njob: {{module_name: trainer.task, trainer_uri: {code}, framework: python}}\n"
        "space: {lr: {min: 0.01, max: 1, scale: log}}\nalgorithm: pbt\nseed: 3\n"
        "algorithm_options: {population: 4, resample_probability: 0}\n"
        "max_trials: 12\nparallel: 2\n"
    )
    with serving(tmp_path) as server:
        assert server.cli("hp", "submit", "-f", str(file)).good()
        for count in (2, 6):
            _wait_until_ended(server, count, "members")
            server.kill()
            server.start()
        study = server.client().studies.wait("members", 120)
        assert study.phase == "Completed", study.message
        assert len(study.trials) == 12
        rates: dict[int, list[float]] = {}
        for trial in study.trials:
            log = server.cli("jobs", "logs", trial.job).good().out
            line = next(one for one in log.splitlines() if one.startswith("rates "))
            rates[trial.number] = json.loads(line.removeprefix("rates "))
            before = [] if trial.parent is None else rates[trial.parent]
            assert rates[trial.number] == [*before, *[trial.parameters["lr"]] * 3]
            job = server.client().describe_train_job(trial.job)
            parent = None if trial.parent is None else f"members-hp-{trial.parent}"
            assert (job.attempt, job.spec.get("restore_from")) == (1, parent)
        members = [trial.member for trial in study.trials]
        assert members[:4] == [0, 1, 2, 3]
        by_number = {trial.number: trial for trial in study.trials}
        taken = [
            trial
            for trial in study.trials
            if trial.parent is not None and by_number[trial.parent].member != trial.member
        ]
        assert taken, "somebody took from one of the best"
        for trial in taken:
            assert trial.parent is not None
            factor = trial.parameters["lr"] / by_number[trial.parent].parameters["lr"]
            assert factor == pytest.approx(0.8) or factor == pytest.approx(1.2)
        table = server.cli("hp", "trials", "members").good().out
        assert f"member {taken[0].member} goes on from trial {taken[0].parent}" in table
        described = server.cli("hp", "describe", "members").good().out
        assert "4 members, quantile 0.25, resample_probability 0" in described
        reasons = [event.reason for event in server.client().studies.events("members")]
        assert reasons.count("TrialExploits") == len(taken)


def test_a_population_without_checkpoints_fails_with_the_reason(
    server: RealServer, tmp_path: Path
) -> None:
    code = str(trainer(tmp_path / "forgetful", _POPULATION))
    result = server.cli(
        *("hp", "submit", "forgetful", "-m", "trainer.task", "-u", code, "-F", "python"),
        *("-s", "lr=0.01:1:log", "--algorithm", "pbt", "--population", "2", "-a", "--forgets"),
        "-W",
        timeout_s=120,
    )
    assert result.code != 0
    # Three that failed alike, or four in all: on a quick machine, one look finds four.
    end = result.out.splitlines()[-1]
    assert end.startswith("forgetful is Failed: ")
    assert "restore_from names no checkpoint: forgetful-hp-" in end


@pytest.mark.slow
def test_loops_of_users_lose_no_trial_and_repeat_none_though_the_server_is_killed(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server, ThreadPoolExecutor(2) as pool:
        space = {"lr": {"min": 0.0, "max": 1.0}}
        server.client().studies.local("mine", space, algorithm="tpe", max_trials=60)

        def loop(together: bool) -> dict[int, float]:
            study, own_values = server.client().studies.local("mine"), {}
            trial = study.ask()
            while trial is not None:
                number, value = trial.number, trial.parameters["lr"]
                for step in range(3):
                    trial.report(step, value + step)
                if together:
                    trial = study.tell_and_ask(trial, value)
                else:
                    study.tell(trial, value)
                    trial = study.ask()
                own_values[number] = value
            return own_values

        loops = [pool.submit(loop, together) for together in (False, True)]
        for done in (10, 25, 40):
            eventually(
                lambda: server.client().studies.describe("mine").ended >= done,  # noqa: B023
                f"{done} trials",
                limit_s=120,
            )
            server.kill()
            server.start()
        first, second = (each.result(300) for each in loops)
        study = server.client().studies.wait("mine", 120)
        assert first.keys() | second.keys() == set(range(60))
        assert not first.keys() & second.keys()
        values = first | second
        assert {trial.number: trial.value for trial in study.trials} == values
        curves = server.client().studies.curves("mine").curves
        assert {one.number: one.values for one in curves} == {
            number: [value, value + 1, value + 2] for number, value in values.items()
        }
        output = server.cli("server", "check", "--data-dir", str(server.data)).good().out
        assert f"{4 * 60} items of lists, each of a record that is there." in output


def _tuners(server: RealServer) -> list[psutil.Process]:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children()
    return [one for one in children if "cloud_ml.tuning.optuna_program" in one.cmdline()]


@pytest.mark.slow
def test_a_sampler_of_optuna_suggests_the_same_though_tuner_and_server_are_killed(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:

        def search(name: str, killed: bool) -> list[dict[str, float]]:
            studies = server.client().studies
            study = studies.local(
                name, _SAMPLED, algorithm="optuna:TPESampler", max_trials=10, seed=5,
                algorithm_options={"n_startup_trials": 4},
            )  # fmt: skip
            while (trial := study.ask()) is not None:
                value = (trial.parameters["lr"] - 0.3) ** 2 + trial.parameters["layers"]
                study.tell(trial, value)
                if killed and trial.number == 4:
                    (tuner,) = _tuners(server)
                    tuner.kill()
                if killed and trial.number == 7:
                    server.kill()
                    server.start()
                    study = server.client().studies.local(name)
            done = server.client().studies.wait(name, 60)
            assert done.algorithm_options == {"n_startup_trials": 4}
            reasons = [event.reason for event in server.client().studies.events(name)]
            assert "TunerFailed" not in reasons
            output = server.cli("hp", "describe", name).good().out
            assert "optuna:TPESampler, n_startup_trials 4, seed 5" in output
            return [dict(one.parameters) for one in done.trials]

        assert search("undisturbed", killed=False) == search("disturbed", killed=True)


@pytest.mark.slow
def test_a_server_that_is_killed_loses_no_trial_and_repeats_none(tmp_path: Path) -> None:
    with serving(tmp_path) as server, ThreadPoolExecutor(1) as pool:
        client = server.client()
        job = TrainJob(
            "killed", "trainer.task", str(trainer(tmp_path / "code", _REPORTS)), framework="python"
        )
        space = {"lr": {"min": 0.0, "max": 1.0}, "optimizer": ["sgd"]}
        client.studies.submit(job, space, max_trials=12, parallel=2, seed=7)
        waiting = pool.submit(client.studies.wait, "killed", 240)
        for done in (2, 5, 8):
            _wait_until_ended(server, done)
            server.kill()
            server.start()
            client = server.client()
        study = waiting.result(300)
        assert study.phase == "Completed"
        assert [trial.number for trial in study.trials] == list(range(12))
        for trial in study.trials:
            lr = float(trial.parameters["lr"])
            assert trial.value is not None
            assert abs(trial.value - abs(lr - 0.2) - 0.1) < 1e-6
            events = [event.reason for event in client.get_train_job(trial.job).events()]
            assert events.count("Submitted") == 1


def _wait_until_ended(server: RealServer, count: int, name: str = "killed") -> None:
    studies = server.client().studies

    def ended() -> bool:
        trials = studies.describe(name).trials
        return sum(trial.state != "Running" for trial in trials) >= count

    eventually(ended, f"{count} trials", limit_s=120)
