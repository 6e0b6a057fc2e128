"""Runs the trials of a study as processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from cloud_ml.errors import CloudMlError, Conflict
from cloud_ml.models.parameter_file import VARIABLE, encode_parameters, fill_placeholder
from cloud_ml.sdk.ask_tell import LocalStudy, TrialHandle
from cloud_ml.tracking.metric_lines import LONGEST_LINE, STEP, metric_pattern, shown_line

_LOOK_S = 0.2
_LONGEST_LINE = 65_536
_MOST_NAMED, _SHOWN_OF_LINE = 5, 100
_STEP = re.compile(STEP, re.ASCII)

Value = tuple[str, int | None, float]
"""A metric, its step if one was said, and its value."""


@dataclass(frozen=True)
class LocalRun:
    """What each trial runs.

    Attributes:
        command: The program and its arguments; those of the trial come behind.
        metrics: The objectives.
        parameters_as: How it gets the parameters of the trial, as for trials that are jobs.
        grace_s: How long a trial may take to end when it is asked to.
        echo: Prints a line of a trial.
    """

    command: Sequence[str]
    metrics: Sequence[str]
    grace_s: float
    echo: Callable[[int, str], None]
    parameters_as: str = "arguments"

    def arguments_of(self, parameters: Mapping[str, Any], file: Path) -> list[str]:
        """The command of a trial, whose file of parameters would be this one."""
        if self.parameters_as == "file":
            return fill_placeholder(self.command, str(file))
        if self.parameters_as == "environment":
            return list(self.command)
        return [*self.command, *(f"--{name}={_text_of(each)}" for name, each in parameters.items())]

    def variables_of(self, parameters: Mapping[str, Any], file: Path) -> dict[str, str]:
        """The variables of a trial. Writes its file of parameters, if it has one."""
        if self.parameters_as == "file":
            file.write_text(encode_parameters(parameters), "utf-8")
            return {VARIABLE: str(file)}
        if self.parameters_as == "environment":
            return {name: _text_of(value) for name, value in parameters.items()}
        return {}


@dataclass
class LocalTrials:
    """Asks for trials, runs them, and tells how they ended, several at a time.

    Args:
        study: Which one.
        run: What a trial runs.
    """

    study: LocalStudy
    run: LocalRun
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _problem: CloudMlError | None = None

    def run_all(self, parallel: int) -> None:
        """Run trials until there is none left. Interrupted, those that run are stopped and told.

        Raises:
            CloudMlError: The server refuses a trial, or is away for long.
            KeyboardInterrupt: All trials that ran have been told.
        """
        for _ in range(parallel):
            threading.Thread(target=self._work).start()
        left, interrupted = parallel, False
        while left:
            try:
                self._ended.acquire()  # Thread.join forgets a thread when it is interrupted
                left -= 1
            except KeyboardInterrupt:
                interrupted = True
                self._stopping.set()
        if self._problem is not None:
            raise self._problem
        if interrupted:
            raise KeyboardInterrupt

    def _work(self) -> None:
        try:
            while not self._stopping.is_set() and (trial := self.study.ask()) is not None:
                self._run_trial(trial)
        except CloudMlError as error:
            self._problem = self._problem or error
            self._stopping.set()
        finally:
            self._ended.release()

    def _run_trial(self, trial: TrialHandle) -> None:
        with tempfile.TemporaryDirectory(prefix="cloudml-hp-") as folder:
            path = Path(folder) / "metrics.jsonl"
            path.touch()
            file = Path(folder) / "parameters.json"
            variables = self.run.variables_of(trial.parameters, file)
            try:
                process = subprocess.Popen(  # noqa: S603 - what its user named
                    self.run.arguments_of(trial.parameters, file),
                    env={
                        **os.environ,
                        "CLOUDML_METRICS": str(path),
                        "PYTHONUNBUFFERED": "1",
                        **variables,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal then reaches only this process, which asks the trials
                    # to end. The new process group also lets us kill a trial with all its
                    # children.
                    start_new_session=True,
                )
            except OSError as error:
                self.study.tell(trial, state="failed", message=f"it did not start: {error}")
                return
            RunningTrial(self, trial, process, path).follow()

    @property
    def stopping(self) -> bool:
        """Whether the user wants all trials to end."""
        return self._stopping.is_set()


class RunningTrial:
    """A trial that runs: its values are reported, and its end is told."""

    def __init__(
        self,
        trials: LocalTrials,
        trial: TrialHandle,
        process: subprocess.Popen[bytes],
        path: Path,
    ) -> None:
        self._study = trials.study
        self._run = trials.run
        self._trials = trials
        self._trial = trial
        self._process = process
        self._path = path
        self._read = 0
        self._pause = 0.01
        self._lock = threading.Lock()
        self._new: list[Value] = []
        self._last: dict[str, float] = {}
        self._step = -1
        self._reports = True
        self._has_file = False  # then what it prints says the same again
        self._last_line = ""

    def follow(self) -> None:
        """Wait for the end of the process, and tell it."""
        assert self._process.stdout is not None
        reader = threading.Thread(target=self._read_output, args=(self._process.stdout,))
        reader.start()
        stop_sent = False
        try:
            while not self._over():
                self._report()
                if (self._trial.should_stop() or self._trials.stopping) and not stop_sent:
                    stop_sent = True
                    self._end()
        finally:
            self._signal(signal.SIGKILL)  # also processes that it left
            reader.join()
            self._process.wait()
        self._report()
        self._tell()

    def _over(self) -> bool:
        time.sleep(self._pause)
        self._pause = min(_LOOK_S, 2 * self._pause)
        return _has_ended(self._process)

    def _end(self) -> None:
        """Ask the process to end, and kill it if it does not in time."""
        self._signal(signal.SIGTERM)
        late = time.monotonic() + self._run.grace_s
        while not _has_ended(self._process) and time.monotonic() < late:
            time.sleep(_LOOK_S / 4)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read_output(self, output: IO[bytes]) -> None:
        for line in iter(lambda: output.readline(_LONGEST_LINE), b""):
            text = line.decode("utf-8", "replace").rstrip()
            if text:
                self._last_line = text
            self._run.echo(self._trial.number, text)
            with self._lock:
                self._new += values_of_line(line.rstrip(b"\n"), self._run.metrics)

    def _report(self) -> None:
        """Take in what is new, and report it if the study has one objective."""
        with self._lock:
            printed, self._new = self._new, []
        reported = list(self._read_metrics())
        self._has_file = self._has_file or bool(reported)
        for name, step, value in reported if self._has_file else printed:
            self._last[name] = value
            if name != self._run.metrics[0] or len(self._run.metrics) > 1:
                continue
            self._step = self._step + 1 if step is None else step
            if self._reports and not self._trial.should_stop():
                try:
                    self._trial.report(self._step, value)
                except Conflict:  # the study keeps no further reports, or has ended
                    self._reports = False

    def _read_metrics(self) -> Iterator[Value]:
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        # Leave an incomplete last line for the next read.
        end = data.rfind(b"\n") + 1
        self._read += end
        for line in data[:end].splitlines():
            yield from values_of_report(line)

    def _tell(self) -> None:
        values = [self._last[name] for name in self._run.metrics if name in self._last]
        code = self._process.returncode
        if self._trial.should_stop():
            self._study.tell(self._trial, values[0] if values else None)
        elif self._trials.stopping:
            self._study.tell(self._trial, state="stopped", message="interrupted by its user")
        elif code:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            detail = f": {self._last_line}" if self._last_line else ""
            self._study.tell(self._trial, state="failed", message=f"{how}{detail}"[:300])
        elif len(values) < len(self._run.metrics):
            self._study.tell(self._trial, state="metric_missing", message=self._missing())
        else:
            self._study.tell(self._trial, values[0] if len(values) == 1 else values)

    def _missing(self) -> str:
        """What the trial lacks, and what to print or report."""
        metric = next(name for name in self._run.metrics if name not in self._last)
        others = ", ".join(sorted(self._last)[:_MOST_NAMED])
        if others:
            found = f", but {others}; name one of them as the objective, "
        else:
            line = self._last_line[:_SHOWN_OF_LINE]
            found = f" (its output ends with {line!r}): " if line else ": "
        return (
            f"it reported no {metric}{found}print lines such as {metric}=0.25, or call "
            f"cloud_ml.job.report(step, {metric}=0.25)"
        )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended. It is not reaped, where that is possible: then its group can be
    killed, and the number is no other one's yet.
    """
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    how = os.WEXITED | os.WNOWAIT | os.WNOHANG
    return os.waitid(os.P_PID, process.pid, how) is not None


def values_of_report(line: bytes) -> list[Value]:
    """The values of a line that ``cloud_ml.job.report`` wrote; none of any other."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return []
    metrics = entry.get("metrics") if isinstance(entry, dict) else None
    if not isinstance(metrics, dict):
        return []
    step = entry.get("step")
    step = step if isinstance(step, int) and not isinstance(step, bool) else None
    return [
        (name, step, value) for name, each in metrics.items() if (value := _float(each)) is not None
    ]


def values_of_line(line: bytes, metrics: Sequence[str]) -> list[Value]:
    """The values of these metrics in a line of output: ``loss: 0.25``, ``loss=0.25``, or JSON. The
    server finds the same in the logs of trials that are jobs.
    """
    if len(line) > LONGEST_LINE:
        return []
    text = shown_line(line).decode("utf-8", "replace")
    found = _STEP.search(text)
    step = int(found["step"]) if found else None
    return [
        (name, step, value)
        for name in metrics
        if (value := _last_value(text, _pattern_of(name))) is not None
    ]


@cache
def _pattern_of(metric: str) -> re.Pattern[str]:
    return re.compile(metric_pattern(metric), re.ASCII)


def _last_value(text: str, pattern: re.Pattern[str]) -> float | None:
    """The last value in a line. What ends one may stand before the next name, too."""
    value, at = None, 0
    while found := pattern.search(text, at):
        value, at = float(found["value"]), found.end("value")
    return value


def _float(value: Any) -> float | None:
    """A number, also one that ``cloud_ml.job`` wrote as a text because JSON has none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
