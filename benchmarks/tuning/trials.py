"""Trials as jobs: how many trials of a study end in a second, beside jobs that are submitted one by
one, and beside Ray Tune's; and how soon a trial that is stopped early is told so. Run: ``python benchmarks/run.py
tuning.trials`` (TRIALS=150 TRIAL_ROUNDS=9 STOPS=100: longer).
"""

from __future__ import annotations

import os
import subprocess
import time
from itertools import count
from pathlib import Path

from harness import (
    Figure,
    Server,
    finished,
    high,
    median,
    serving,
    temporary_folder,
    train_job,
    upload,
    wheel,
)
from peers.having import Absent, folder_of, version_of
from rounds import in_pairs, interval
from tracking.event_files import FILE_HEAD, event, simple_value

from cloud_ml.models.studies.study import Study

TRIALS, ROUNDS = int(os.environ.get("TRIALS", "40")), int(os.environ.get("TRIAL_ROUNDS", "5"))
STOPS = int(os.environ.get("STOPS", "30"))
PLACES = 2
"""So many jobs run at a time."""
_RAY_TRIALS, _RAY_LIMIT_S = 8, 240
"""Ray Tune takes seconds for a trial."""
_REPORTS = """
import sys
from cloud_ml import job
job.report(1, loss=float(sys.argv[-1].partition("=")[2]))
"""
_WAITS = """
import os, random, signal, sys, time
{setup}

def clock():
    return time.clock_gettime(time.CLOCK_MONOTONIC)

def leave(*_):
    print(reported, clock(), flush=True)
    os._exit(0)

value = float(sys.argv[-1].partition("=")[2])
signal.signal(signal.SIGTERM, leave)
# Whatever looks at metrics from time to time must not be in step with the trial.
time.sleep(random.uniform(0, 0.5))
reported = clock()
{report}
if value > 0:
    time.sleep(60)
"""
"""Prints when it reported, and when it was told to end. The trial with the value 0 ends by itself."""
_REPORT = {"setup": "from cloud_ml import job", "report": "job.report(1, loss=value)"}
_WRITE = {
    "setup": "file = open('events.out.tfevents.1.trial', 'wb', buffering=0)\nEVENTS = {events}",
    "report": "file.write(EVENTS[value])",
}
"""Ways in which a trial tells its loss: with ``cloud_ml.job``, and in an event file."""


def run() -> list[Figure]:
    settings = {"CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": PLACES}
    with temporary_folder() as folder, serving(**settings) as server:
        return [*rates(server, folder), *stops(server, folder)]


def rates(server: Server, folder: Path) -> list[Figure]:
    """Trials and jobs a second, by turns."""
    uri, numbers = _code(server, folder / "reports", _REPORTS), count()
    trials, jobs = zip(
        *in_pairs(
            lambda: trials_per_second(server, uri, f"trials-{next(numbers)}"),
            lambda: jobs_per_second(server, uri, f"jobs-{next(numbers)}"),
            ROUNDS,
        ),
        strict=True,
    )
    ratios = [mine / other for mine, other in zip(trials, jobs, strict=True)]
    least, most = interval(ratios)
    note = f"{least:.2f} to {most:.2f}; {median(trials):.3g} and {median(jobs):.3g} a second"
    beside_jobs = "trials a second, beside jobs"
    return [
        Figure(beside_jobs, median(ratios), "x", 0.9, least=True, note=note),
        Figure("trials a second", median(trials), "/s", 0.0, *_ray_tune(folder), least=True),
    ]


def _ray_tune(folder: Path) -> tuple[float | None, str]:
    """Ray Tune's trials a second, as many at a time, each an actor that reports one value; and its
    name.
    """
    try:
        python = folder_of("ray-tune") / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return None, ""
    command = [python, "-m", "tuning.ray_driver", folder / "ray", str(_RAY_TRIALS), str(PLACES)]
    try:
        ended = subprocess.run(
            command, cwd=Path(__file__).parents[1], env={**os.environ, "HOME": str(folder)},
            check=True, capture_output=True, text=True, timeout=_RAY_LIMIT_S,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"  Ray Tune gives no figure: {error} {str(error.stderr)[-500:]}")
        return None, ""
    return float(ended.stdout.split()[-1]), f"Ray Tune {version_of('ray-tune')}"


def jobs_per_second(server: Server, uri: str, prefix: str) -> float:
    """Jobs that are submitted at once, each with another argument."""
    calls, began = server.calls(), time.monotonic()
    submitted = []
    for number in range(TRIALS):
        job = train_job(f"{prefix}-{number}", uri)
        job.job_args = f"--x={number / TRIALS}"
        submitted.append(calls.submit(job))
    for one in submitted:
        finished(calls, one)
    return TRIALS / (time.monotonic() - began)


def trials_per_second(server: Server, uri: str, name: str) -> float:
    """Trials of a study that runs as many at a time as there are places."""
    with server.client() as client:
        began = time.monotonic()
        job = train_job(name, uri)
        space = {"x": {"min": 0.0, "max": 1.0}}
        client.studies.submit(
            job, space, algorithm="random", seed=1, max_trials=TRIALS, parallel=PLACES
        )
        study = client.studies.wait(name, timeout=600)
        took = time.monotonic() - began
    assert study.states == {"Completed": TRIALS}, (study.states, study.message)
    for trial in study.trials:
        assert trial.value == trial.parameters["x"], trial
    return TRIALS / took


def stops(server: Server, folder: Path) -> list[Figure]:
    """From a value that makes ``asha`` stop a trial to SIGTERM in that trial."""
    # Each is worse than all before it, so none but the first is among the best quarter.
    values = [0.0, *(0.3 + number / STOPS for number in range(STOPS))]
    events = {value: FILE_HEAD + event(1, simple_value("loss", value)) for value in values}
    write = {**_WRITE, "setup": _WRITE["setup"].format(events=events)}
    reported = _stops_ms(
        server, "stops", _code(server, folder / "waits", _WAITS.format(**_REPORT)), values
    )
    written = _stops_ms(
        server, "file-stops", _code(server, folder / "writes", _WAITS.format(**write)), values
    )
    early = "to SIGTERM of a trial that is stopped early"
    return [
        Figure(f"report {early}, median", median(reported), "ms", 150),
        Figure(f"report {early}, p95", high(reported, 0.95), "ms", 500),
        Figure(f"value in an event file {early}, median", median(written), "ms", 300),
        Figure(f"value in an event file {early}, p95", high(written, 0.95), "ms", 1_000),
    ]


def _stops_ms(server: Server, name: str, uri: str, values: list[float]) -> list[float]:
    """Milliseconds until each trial but the first, which is the best, is told to end."""
    with server.client() as client:
        client.studies.submit(
            train_job(name, uri), {"x": {"min": 0.0, "max": 2.0}}, algorithm="random",
            trials=[{"x": value} for value in values], max_trials=len(values), parallel=1,
            stopper="asha", stopper_options={"factor": 4},
        )  # fmt: skip
        study = client.studies.wait(name, timeout=600)
    return [_stop_ms(server, study, number) for number in range(1, len(values))]


def _stop_ms(server: Server, study: Study, number: int) -> float:
    trial = study.trials[number]
    assert trial.state == "EarlyStopped", trial
    with server.calls().log(trial.job) as log:
        reported, ended = map(float, log.read().split())
    return 1000 * (ended - reported)


def _code(server: Server, folder: Path, source: str) -> str:
    folder.mkdir()
    return upload(server.client(), wheel(folder, source))


if __name__ == "__main__":
    for figure in run():
        print(figure)
