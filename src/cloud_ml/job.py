"""For code that runs in a job: its checkpoints, and the tasks beside it.

Standard library only, and the syntax of Python 3.6, since any runtime may import it. Outside of a
job everything works the same, with checkpoints in the folder ``checkpoints``::

    from cloud_ml import job

    start = job.latest()
    step = load(start.path) if start else 0
    ...
    path = os.path.join(job.checkpoint_dir(), "step-%d.pt" % step)
    torch.save(state, path)
    job.saved(path, step)
"""

import atexit
import io
import json
import operator
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from types import FrameType
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union


class Checkpoint(NamedTuple):
    """A complete checkpoint: a file, a folder, or the common beginning of several files."""

    path: str
    step: Optional[int]


class Cluster(NamedTuple):
    """The task's own role and index, and the addresses of all tasks by their role."""

    role: str
    task_index: int
    addresses: Dict[str, List[str]]


class Notice(NamedTuple):
    """Why the task is to stop, such as ``Paused``, and when it is killed: seconds since the epoch.

    The reasons are those of jobs.
    """

    reason: str
    deadline: float


_SAVED, _RENAMED = ".saved.jsonl", ".renamed.jsonl"
_TENSORFLOW = "checkpoint"
_TENSORFLOW_PATH = re.compile(r'^model_checkpoint_path: "([^"]+)"', re.MULTILINE)
_STEP = re.compile(r"-(\d{1,18})$")
_STEP_OF_FILE = re.compile(r"(?:^|[-_=])([0-9]{1,18})(?:\.[A-Za-z]\w*)*$")
_MOST_DEPTH = 4
_ATTEMPT = re.compile(r"[0-9]{1,9}\Z")
_LONGEST_NAME = 1000
_MOST_STEPS = 10**18
_TAIL = 1 << 18
_MOST_REPORTED = 1 << 18
_MOST_METRICS = 32
_LONGEST_METRIC = 100
_MOST_PARAMS = 100
_LONGEST_PARAM = 5000
_PARAM_NAME = re.compile(r"[/\w.\- :]{1,250}\Z")
_LIGHTGBM_MINUTES = 120
"""How long LightGBM waits for the others before it fails; its own default."""


def checkpoint_dir() -> str:
    """The folder for the job's checkpoints, kept over attempts; made if it is not there."""
    folder = os.environ.get("CLOUDML_CHECKPOINT_DIR") or os.path.abspath("checkpoints")
    os.makedirs(folder, exist_ok=True)
    return folder


def saved(path: "Union[str, os.PathLike[str]]", step: Optional[int] = None) -> None:
    """Say that a checkpoint is complete. Only such a checkpoint is handed to the next attempt.

    Args:
        path: A file or folder in ``checkpoint_dir()``, or the beginning that the names of several
            files have in common, as TensorFlow writes them.
        step: How far the training was.

    Raises:
        ValueError: The path lies elsewhere, or the step is no whole number.
        FileNotFoundError: There is nothing at the path.
    """
    if step is not None:
        step = _check_step(step)
    folder = checkpoint_dir()
    name = os.path.relpath(os.path.join(folder, os.fspath(path)), folder)
    if name == os.curdir or name.split(os.sep)[0] == os.pardir or len(name) > _LONGEST_NAME:
        raise ValueError(f"path is {path!r}; allowed is one below {folder}")
    if not _exists(os.path.join(folder, name)):
        raise FileNotFoundError(f"there is no checkpoint {os.path.join(folder, name)}")
    entry = {"path": name, "step": step, "time": time.time()}
    attempt = os.environ.get("CLOUDML_ATTEMPT", "")
    if _ATTEMPT.match(attempt):
        entry["attempt"] = int(attempt)
    # A line feed first: a task that was killed may have left half a line.
    line = f"\n{json.dumps(entry)}\n"
    target = os.open(os.path.join(folder, _SAVED), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(target, line.encode("utf-8"))
    finally:
        os.close(target)


def latest() -> Optional[Checkpoint]:
    """The newest complete checkpoint, or None if there is none to go on from.

    It is the last one that ``saved`` was told, or that TensorFlow has noted in its file
    ``checkpoint``; without these, the last one that was renamed into the folder in a job. At first
    it may be that of another job: see ``--restore-from``.
    """
    folder = checkpoint_dir()
    notes = [_noted(folder, _SAVED), _tensorflow(folder)]
    if not any(notes):
        notes = [_noted(folder, _RENAMED)]
    found = [one for note in notes for one in _first_there(note)]
    if found:
        return max(found, key=lambda one: one[0])[1]
    given = os.environ.get("CLOUDML_RESTORE_FROM")
    return Checkpoint(given, _given_step(given)) if given and _exists(given) else None


def report(step: Optional[int] = None, **metrics: float) -> None:
    """Say how far the training is, and figures such as the loss: ``report(step, loss=0.3)``.

    Every value is kept as a point of its series, also NaN and infinities. ``cloudml runs metrics``
    shows them, and ``cloudml jobs describe`` the last ones. Without a step, a value follows the
    last one of its series. A report is a sign of life for ``--hang-timeout``, and a new step is
    progress: a job that fails at the same place again and again is given up.

    Raises:
        ValueError: There is nothing to report, the step is no whole number, a figure is no number,
            or there are too many figures.
    """
    if step is None and not metrics:
        raise ValueError(
            "nothing is reported; allowed is a step, figures such as loss=0.3, or both"
        )
    if len(metrics) > _MOST_METRICS:
        raise ValueError(f"there are {len(metrics)} figures; allowed are {_MOST_METRICS} at a time")
    entry: Dict[str, object] = {} if step is None else {"step": _check_step(step)}
    if metrics:
        entry["metrics"] = {name: _figure(name, value) for name, value in metrics.items()}
        _append_points(entry)
    _append_report(entry)


def params(values: Optional[Mapping[str, object]] = None, **more: object) -> None:
    """Say which parameters the training has: ``params(lr=0.1)``, or ``params({"model.layers": 3})``.

    They are parameters of the job's run, beside the arguments of the job: ``cloudml runs list
    --filter 'params.lr = "0.1"'`` finds it. A parameter keeps its first value.

    Raises:
        ValueError: There is none, a name or a value is too long, or there are too many.
    """
    named = dict(values or {}, **more)
    if not 0 < len(named) <= _MOST_PARAMS:
        raise ValueError(f"there are {len(named)} parameters; allowed are 1 to {_MOST_PARAMS}")
    checked = {name: _param(name, named[name]) for name in named}
    for name, value in checked.items():
        _append_line("CLOUDML_METRICS", {"params": {name: value}}, None)


def progress(
    fraction: Optional[float] = None, *, step: Optional[int] = None, of: Optional[int] = None
) -> None:
    """Say which part of the work is done: ``progress(0.25)``, or ``progress(step=5, of=20)``.

    Raises:
        TypeError: It is neither of these forms.
        ValueError: The part is no number from 0 to 1, or step and of are no whole numbers.
    """
    if fraction is not None and step is None and of is None:
        part = _figure("fraction", fraction)
        if not 0 <= part <= 1:
            raise ValueError(f"fraction is {fraction!r}; allowed is a number from 0 to 1")
        _append_report({"fraction": part})
    elif fraction is None and step is not None and of is not None:
        done, most = _check_step(step), _check_step(of)
        if most < 1 or done > most:
            raise ValueError(f"step is {step!r} of {of!r}; allowed is a step from 0 to of")
        _append_report({"step": done, "of": most})
    else:
        raise TypeError("progress takes a fraction from 0 to 1, or step and of, and nothing else")


def cluster() -> Cluster:
    """The tasks of the job. A job of one task is ``master`` 0, and knows no addresses."""
    environment = os.environ
    return Cluster(
        environment.get("CLOUDML_ROLE", "master"),
        int(environment.get("CLOUDML_INDEX", "0")),
        json.loads(environment.get("CLOUDML_CLUSTER", "{}")),
    )


def lightgbm() -> Dict[str, Union[str, int]]:
    """Parameters with which LightGBM trains on all tasks of the job; none in a job of one task.

    Each task trains on its own part of the data, as in
    ``lightgbm.train({"objective": "binary", **job.lightgbm()}, mine)``.
    """
    machines = [one for one in os.environ.get("CLOUDML_MACHINES", "").split(",") if one]
    if len(machines) < 2:
        return {}
    return {
        "machines": ",".join(_numeric(one) for one in machines),
        "local_listen_port": int(os.environ["CLOUDML_PORT"]),
        "num_machines": len(machines),
        "tree_learner": "data",
        "time_out": _LIGHTGBM_MINUTES,
    }


def notice() -> Optional[Notice]:
    """Why and until when the task is to stop; None while it may go on."""
    try:
        with open(os.environ.get("CLOUDML_NOTICE") or os.devnull, "rb") as file:
            found = json.loads(file.read(_TAIL).decode("utf-8", "replace"))
        return Notice(str(found["reason"]), float(found["deadline"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def on_preempt(function: Optional[Callable[[], object]] = None) -> None:
    """Call a function when the task is to stop, such as for a pause or at its time limit.

    SIGTERM does not end the task any more: it goes on until it ends by itself, or is killed when
    the grace time is over. The function may save a checkpoint and call ``sys.exit``. Without a
    function, the code asks ``notice()`` itself, after each step say.

    Raises:
        ValueError: It was called in another thread than the main one.
        TypeError: The function cannot be called.
    """
    if function is not None and not callable(function):
        raise TypeError(f"function is {function!r}; allowed is one that can be called, or None")

    def stop(number: int, frame: Optional[FrameType]) -> None:
        del number, frame
        if function is not None:
            function()

    signal.signal(signal.SIGTERM, stop)


def optuna_proxy() -> Dict[str, Union[str, int]]:
    """Where Optuna's client finds the studies of the platform: ``host`` and ``port``.

    ``optuna.storages.GrpcStorageProxy(**job.optuna_proxy())`` is a storage. The first call of a
    process starts ``cloudml hp proxy``, which ends with the process. It serves the processes of
    this task and no others.

    Raises:
        RuntimeError: It does not start. Says why.
    """
    if not _PROXIES or _PROXIES[0][0].poll() is not None:
        _PROXIES[:] = [_start_proxy()]
    return {"host": "localhost", "port": _PROXIES[0][1]}


_PROXIES: List[Tuple["subprocess.Popen[bytes]", int]] = []
"""The proxy of this process, if it has been started, and its port."""


def _start_proxy() -> Tuple["subprocess.Popen[bytes]", int]:
    """Start a proxy, and wait until it listens."""
    own = os.path.dirname(sys.executable)
    program = shutil.which("cloudml", path=own) or shutil.which("cloudml")
    if program is None:
        raise RuntimeError(
            "the proxy for Optuna's client needs the command cloudml: add cloud-ml[optuna] to the "
            "requirements of the job"
        )
    with tempfile.TemporaryFile() as stderr_file:
        started = subprocess.Popen(  # noqa: S603 - our own command
            [program, "hp", "proxy"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr_file,
        )
        assert started.stdout is not None
        line = started.stdout.readline().decode("utf-8", "replace")
        found = re.search(r"port=(\d+)\)", line)
        if found is None:
            started.wait()
            stderr_file.seek(0)
            reason = stderr_file.read(_TAIL).decode("utf-8", "replace").strip()
            raise RuntimeError(reason or "the proxy for Optuna's client does not start")
    atexit.register(started.terminate)
    return started, int(found.group(1))


def _numeric(address: str) -> str:
    """LightGBM finds itself in the list of machines by its IP address; it looks up no names."""
    host, _, port = address.rpartition(":")
    return f"{socket.gethostbyname(host)}:{port}"


def _check_step(step: int) -> int:
    try:
        number = operator.index(step)  # also of NumPy and of tensors
    except TypeError:
        number = -1
    if isinstance(step, bool) or not 0 <= number < _MOST_STEPS:
        allowed = f"a whole number from 0 to {_MOST_STEPS - 1}, or None"
        if isinstance(step, Mapping):
            allowed += ". Figures are named: report(step, **figures)"
        raise ValueError(f"step is {step!r:.100}; allowed is {allowed}")
    return number


def _figure(name: str, value: float) -> float:
    if not 0 < len(name) <= _LONGEST_METRIC or not name.isprintable():
        allowed = f"1 to {_LONGEST_METRIC} printable characters"
        raise ValueError(f"a figure is named {name[:_LONGEST_METRIC]!r}; allowed are {allowed}")
    try:
        return float(value)  # also of NumPy and of tensors
    except OverflowError:
        raise ValueError(
            f"{name} is beyond what a float can be; allowed is a smaller number"
        ) from None
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {str(value)[:100]}; allowed is a number") from None


def _param(name: str, value: object) -> str:
    if not isinstance(name, str) or not _PARAM_NAME.match(name):
        allowed = "1 to 250 letters, digits, '_', '-', '.', ':', '/' and blanks"
        raise ValueError(
            f"a parameter is named {str(name)[:_LONGEST_METRIC]!r}; allowed are {allowed}"
        )
    text = str(value)
    if len(text) > _LONGEST_PARAM:
        raise ValueError(f"{name} has {len(text)} characters; allowed are {_LONGEST_PARAM}")
    return text


def _append_points(entry: Dict[str, object]) -> None:
    """Keep the figures for good. Nothing of the file is removed: its reader may be away."""
    restart = int(os.environ.get("CLOUDML_TASK_RESTART") or 0)
    _append_line("CLOUDML_METRICS", dict(entry, restart=restart) if restart else entry, None)


def _append_report(entry: Dict[str, object]) -> None:
    """Say how far the task is. Only the end of the file is read."""
    _append_line("CLOUDML_PROGRESS", entry, _MOST_REPORTED)


def _append_line(variable: str, entry: Dict[str, object], most: Optional[int]) -> None:
    """Outside of a job there is nobody to tell. A full disk stops no training."""
    path = os.environ.get(variable)
    if not path:
        return
    # A line feed first: a task that was killed may have left half a line.
    line = f"\n{json.dumps(dict(entry, time=time.time()))}\n"
    try:
        target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return
    try:
        if most is not None and os.fstat(target).st_size > most:
            os.ftruncate(target, 0)
        os.write(target, line.encode("utf-8"))
    except OSError:
        pass
    finally:
        os.close(target)


def _noted(folder: str, name: str) -> List[Tuple[float, Checkpoint]]:
    """What the end of a note says; the newest first."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - _TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
            path = os.path.join(folder, entry["path"])
            found.append((float(entry["time"]), Checkpoint(path, entry["step"])))
        except (ValueError, KeyError, TypeError, RecursionError):  # half a line, or another's
            continue
    return found


def _given_step(given: str) -> Optional[int]:
    """The step of a checkpoint in the folder of another job: what that job noted, else the number
    at the end of the name.
    """
    folder, name = os.path.split(given.rstrip("/"))
    found = _STEP_OF_FILE.search(name)
    for _ in range(_MOST_DEPTH):
        for _, one in _noted(folder, _SAVED):
            if one.path == given.rstrip("/") and isinstance(one.step, int):
                return one.step
        folder = os.path.dirname(folder)
    return int(found.group(1)) if found else None


def _first_there(noted: List[Tuple[float, Checkpoint]]) -> List[Tuple[float, Checkpoint]]:
    """The first one that is still there, if any is."""
    return next(([one] for one in noted if _exists(one[1].path)), [])


def _tensorflow(folder: str) -> List[Tuple[float, Checkpoint]]:
    """What TensorFlow's own note says, if there is one."""
    note = os.path.join(folder, _TENSORFLOW)
    try:
        with open(note, encoding="utf-8", errors="replace") as file:
            found = _TENSORFLOW_PATH.search(file.read(_TAIL))
        if found is None:
            return []
        path = os.path.join(folder, found.group(1))
        return [(os.stat(note).st_mtime, Checkpoint(path, _step_of(path)))]
    except OSError:
        return []


def _step_of(path: str) -> Optional[int]:
    found = _STEP.search(path)
    return int(found.group(1)) if found else None


def _exists(path: str) -> bool:
    """Whether there is such a file or folder, or files whose names begin so."""
    try:
        return os.path.exists(path) or os.path.exists(path + ".index")
    except ValueError:  # before Python 3.8, of text that no path can be
        return False
