"""A loop of Optuna on one of its storages, in its own environment, for ``ask_tell``:
``python optuna_loop.py journal|sqlite FILE random|tpe TRIALS make|run``.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")


def storage_of(name: str, file: str) -> Any:
    if name == "sqlite":
        return f"sqlite:///{file}"
    return optuna.storages.JournalStorage(JournalFileBackend(file))


def main() -> None:
    name, file, algorithm, trials, task = sys.argv[1:]
    storage = storage_of(name, file)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    if task == "make":
        optuna.create_study(study_name="study", storage=storage)
        return
    study = optuna.load_study(study_name="study", storage=storage, sampler=samplers[algorithm]())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    pairs = 0
    while True:
        trial = study.ask()
        if trial.number >= int(trials):
            break
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        study.tell(trial, (x - 0.3) ** 2 + (y - 0.7) ** 2)
        pairs += 1
    json.dump({"pairs": pairs}, sys.stdout)


if __name__ == "__main__":
    main()
