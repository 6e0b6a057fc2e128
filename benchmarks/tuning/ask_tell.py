"""How many pairs of ask and tell two loops make in a second, each durable before it is answered, beside
Optuna's storages on the same disk. Run: ``python benchmarks/run.py tuning.ask_tell`` (ASK_TRIALS=1000:
longer studies).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import KEY, SECRET, Figure, Server, temporary_folder
from peers.having import Absent, folder_of

from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.studies.study import Study

TRIALS = int(os.environ.get("ASK_TRIALS", "500"))
REPORTS = 20
"""Of each trial, where reports are measured."""
WORKERS = 2
_PEER_TRIALS = 200
"""Optuna's storages are slower, and take as long for fewer."""
_SPACE = {"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}}
_TARGET = 150.0
_RATIO_TARGET = 4.0
"""To Optuna's journal, which made 36.9 pairs a second on the disk for which this was set."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Search:
    """A study and how its loops go about it: with ``together``, one request tells the end of a trial
    and asks for the next.
    """

    algorithm: str
    trials: int
    together: bool = False
    reports: int = 0

    @property
    def study(self) -> str:
        requests = "together" if self.together else "apart"
        return f"{self.algorithm}-{self.reports}-{requests}"

    def __str__(self) -> str:
        title = f"{self.algorithm}, {self.trials} trials"
        if self.together:
            title += ", in one request"
        return f"{title}, {self.reports} reports each" if self.reports else title


_SEARCHES = (
    _Search("random", TRIALS),
    _Search("random", TRIALS, together=True),
    _Search("tpe", TRIALS),
    _Search("tpe", TRIALS, together=True),
    _Search("auto", TRIALS // 5),
    _Search("random", TRIALS // 5, reports=REPORTS),
)


def run() -> list[Figure]:
    with temporary_folder() as folder:
        peers = _peers(folder)
        figures = [*_ours(folder, peers)]
        for name, rate in peers.items():
            print(f"  {name}: {rate:.1f} pairs/s")
        return figures


def _ours(folder: Path, peers: dict[str, float]) -> list[Figure]:
    server = Server(folder)
    figures: list[Figure] = []
    try:
        server.start()
        for search in _SEARCHES:
            took, server_s = _measure(server, search)
            rate, cost = search.trials / took, 1000 * server_s / search.trials
            note = f"{cost:.1f} ms of the server's processors each"
            what = f"ask + tell a second, {search}"
            alone = not search.reports and not search.together
            peer = peers.get(f"journal, {search.algorithm}") if alone else None
            target = 0.0 if search.reports or search.algorithm == "auto" else _TARGET
            figures.append(
                Figure(what, rate, "/s", target, peer, "Optuna's journal", least=True, note=note)
            )
            if peer is not None:
                figures.append(_beside_optuna(search.algorithm, rate, peer, peers))
        return figures
    finally:
        server.stop()


def _beside_optuna(algorithm: str, rate: float, journal: float, peers: dict[str, float]) -> Figure:
    sqlite = peers[f"sqlite, {algorithm}"]
    note = f"{rate / sqlite:.2g} x to Optuna's SQLite, {sqlite:.1f} a second"
    what = f"ask + tell a second, {algorithm}, beside Optuna's journal"
    return Figure(what, rate / journal, "x", _RATIO_TARGET, least=True, note=note)


def _measure(server: Server, search: _Search) -> tuple[float, float]:
    """The seconds that the loops took for a study, and those of the server's processors."""
    name, trials = search.study, search.trials
    with server.client() as client:
        client.studies.local(name, _SPACE, algorithm=search.algorithm, max_trials=trials, seed=1)
        before = _processor_s(server)
        took = _loops(
            [sys.executable, Path(__file__).with_name("ask_worker.py"), server.endpoint, KEY,
             SECRET, name, str(search.reports), "together" if search.together else "apart"]
        )  # fmt: skip
        spent = _processor_s(server) - before
        study = client.studies.wait(name, timeout=30)
    _check(study, trials)
    return took, spent


def _check(study: Study, trials: int) -> None:
    """The answers are right: each trial once, each with its own value."""
    assert [trial.number for trial in study.trials] == list(range(trials))
    for trial in study.trials:
        x, y = trial.parameters["x"], trial.parameters["y"]
        assert trial.value == (x - 0.3) ** 2 + (y - 0.7) ** 2, trial


def _loops(command: Sequence[str | Path]) -> float:
    """Seconds from the start of the loops, which are ready, to the end of the last."""
    loops = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(WORKERS)
    ]
    for loop in loops:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"ready\n"
    began = time.perf_counter()
    for loop in loops:
        assert loop.stdin is not None
        loop.stdin.write(b"go\n")
        loop.stdin.flush()
    pairs = 0
    for loop in loops:
        assert loop.stdout is not None
        pairs += json.loads(loop.stdout.read())["pairs"]
        assert loop.wait() == 0
    assert pairs > 0
    return time.perf_counter() - began


def _processor_s(server: Server) -> float:
    """The time of processors that the server and all below it have had."""
    tree = [pid for pid in server.pids for pid in (pid, *proctree.descendants(pid))]
    total = 0
    for pid in dict.fromkeys(tree):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def _peers(folder: Path) -> dict[str, float]:
    """Pairs a second of Optuna's storages, by the storage and the algorithm."""
    try:
        python = folder_of("optuna") / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return {}
    driver = Path(__file__).with_name("optuna_loop.py")
    found = {}
    for storage in ("journal", "sqlite"):
        for algorithm in ("random", "tpe"):
            file = folder / f"{storage}-{algorithm}"
            trials = str(_PEER_TRIALS)
            subprocess.run([python, driver, storage, file, algorithm, trials, "make"], check=True)
            took = _loops([python, driver, storage, file, algorithm, trials, "run"])
            found[f"{storage}, {algorithm}"] = _PEER_TRIALS / took
    return found
